//! Programs that use the shared memory, and what is checked of it: each load gives what the last store left, no two ranks may store at
//! once nor load while another may, locks exclude, go in turn to the threads of a rank and are not kept from another rank that waits,
//! barriers let nobody pass before all have arrived, and no operation waits for ever.

mod ahead;
mod buggy;
pub mod lazy;
mod litmus;
mod locks;
mod scenario;

pub use litmus::{LITMUS, Litmus, Op, Seen, VARIABLES, Variant, allowed};
pub use scenario::SharedScenario;

use std::collections::{BTreeMap, BTreeSet};

use mapwire_dsm::{Access as Wanted, Address, Dsm, Outcome as DsmOutcome, PAGE_BYTES, Progress};
use mapwire_node::{Act, Ask, Told};
use mapwire_vmmc::service::{Access, Region};
use mapwire_wire::{Endpoint, HandlerId, NodeId};

use crate::canary::Canary;
use crate::cluster::{Cluster, FIRST_ADDRESS, Observer, StoreBy, Violation};
use crate::coverage::{Condition, Coverage};
use crate::random::Random;
use crate::segments::Segments;
use buggy::Buggy;
use litmus::Tests;

/// The handler id of the shared memory.
const SHARED: HandlerId = HandlerId(3);
/// Pages of the shared memory.
const PAGES: u32 = 128;
/// Bytes of a small allocation.
const UNIT_BYTES: u64 = 64;
/// Events of a run at most, for each thread.
const MOST_EVENTS: u64 = 1_000_000;

/// A load or store of a word.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// The allocation, by number, and the word's place in it in bytes.
    allocation: usize,
    offset: u64,
    store: Option<u64>,
    /// It is part of an addition under this lock.
    lock: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Nothing,
    Allocating,
    Touching(Touch),
    /// It gives a mutex back.
    Unlocking,
    /// For a lock, since the so-manieth call.
    Locking(u32, u64),
    Waiting,
    Finished,
}

/// A thread of a rank.
#[derive(Debug)]
struct Program {
    at: Endpoint,
    doing: Doing,
    /// Its operation is under way in the shared memory.
    is_pending: bool,
    steps_left: u32,
    phase: u32,
    /// Which of the units it reads next if it goes through them.
    walk: u32,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
pub struct SharedShape {
    pub ranks: u16,
    pub processes: u16,
    pub threads: u16,
    pub allocations: u32,
    /// The last of the allocations, which share a page, are read one after the other and requested together.
    pub units: u32,
    pub locks: u32,
    /// Barriers that the ranks pass.
    pub phases: u32,
    /// Operations of each rank between two barriers.
    pub steps: u32,
    /// How long a rank keeps what it was granted.
    pub hold_ns: u64,
    /// How often threads of a rank may hand a lock to each other while another rank waits for it.
    pub lock_passes: u8,
    /// Locks are mutexes that the ranks keep.
    pub mutexes: bool,
}

/// The programs and what must be true of them.
#[derive(Debug)]
struct Programs {
    shape: SharedShape,
    programs: Vec<Program>,
    truth: Vec<u8>,
    /// The rank that stored to each allocation last.
    writers: Vec<Option<usize>>,
    coverage: Coverage,
    allocations: Vec<(Address, u64)>,
    /// Who may do what with the region that starts at a view's byte.
    rights: BTreeMap<(u16, u64), BTreeMap<usize, Access>>,
    holders: Vec<Option<usize>>,
    /// The rank that unlocked each lock last, and how often in a row while another rank waited.
    handed: Vec<(usize, u32)>,
    /// Calls of threads for locks.
    asked: u64,
    additions: Vec<u64>,
    arrived: Vec<BTreeSet<usize>>,
    segments: Segments,
    canary: Option<Canary>,
    /// Draws when the bug shows.
    random: Random,
    /// Litmus tests, which alone say then whether memory is as it must be.
    tests: Option<Tests>,
    /// Steps that are left out, by number.
    left_out: Vec<bool>,
    violation: Option<(u64, Violation)>,
}

impl Programs {
    fn rank(&self, at: Endpoint) -> usize {
        usize::from(at.node.0) * usize::from(self.shape.processes) + usize::from(at.process.0)
    }

    /// The rank of a thread, counted over all.
    fn rank_of(&self, who: usize) -> usize {
        who / usize::from(self.shape.threads)
    }

    /// Its number among those of its rank.
    fn thread_of(&self, who: usize) -> u16 {
        (who % usize::from(self.shape.threads)) as u16
    }

    /// View and first byte of what a load or store touches: the allocation, or one of the pages of a long one.
    fn unit_of(&self, touch: &Touch) -> (u16, u64) {
        let (Address { view, offset_bytes }, bytes) = self.allocations[touch.allocation];
        let within = if bytes > PAGE_BYTES { touch.offset / PAGE_BYTES * PAGE_BYTES } else { 0 };
        (view, offset_bytes + within)
    }

    /// A rank has been given this right to a unit, and no more.
    fn note_right(&mut self, now_ns: u64, rank: usize, at: (u16, u64), access: Access) {
        self.check_store(now_ns, rank, at, access);
        let rights = self.rights.entry(at).or_default();
        rights.insert(rank, access);
        let has = |wanted| rights.values().filter(|has| **has == wanted).count();
        let (readers, writers) = (has(Access::Read), has(Access::Write));
        // Litmus tests judge by what was loaded.
        if self.tests.is_none() && (writers > 1 || (writers == 1 && readers > 0)) {
            let (view, offset) = at;
            let text = format!("{readers} ranks may load and {writers} store at view {view}, {offset:#x}");
            self.broke(now_ns, "sequential consistency", text);
        }
    }

    /// What a thread may do with it.
    fn may(&self, who: usize, touch: &Touch) -> bool {
        let rights = self.rights.get(&self.unit_of(touch));
        match rights.and_then(|rights| rights.get(&self.rank_of(who))) {
            Some(Access::Write) => true,
            Some(Access::Read) => touch.store.is_none(),
            _ => false,
        }
    }

    /// The thread of a thread goes on.
    fn go(&mut self, cluster: &mut Cluster, who: usize) {
        let now_ns = cluster.now_ns();
        match self.programs[who].doing {
            Doing::Nothing => self.begin(cluster, who),
            Doing::Touching(touch) if self.may(who, &touch) => self.touch(cluster, who, touch),
            Doing::Touching(touch) => {
                let (address, _) = self.allocations[touch.allocation];
                let page = (address.offset_bytes + touch.offset) / PAGE_BYTES;
                let wanted = match touch.store {
                    Some(_) => Wanted::Write,
                    None => Wanted::Read,
                };
                let clock_ns = cluster.clock_ns(self.programs[who].at.node);
                let thread = self.thread_of(who);
                let progress =
                    self.call(cluster, who, |dsm| dsm.handle_fault(clock_ns, thread, address.view, page, wanted));
                match progress {
                    Some(Ok(Progress::Done)) => {
                        self.programs[who].is_pending = false;
                        self.again(cluster, who, 10);
                    }
                    Some(Ok(Progress::Pending)) => self.note_fault(who, touch.allocation),
                    other => self.broke(now_ns, "shared memory", format!("thread {who}: a fault gave {other:?}")),
                }
            }
            Doing::Allocating | Doing::Locking(..) | Doing::Unlocking | Doing::Waiting | Doing::Finished => {}
        }
    }

    /// A call of the shared memory; then all that follows from it.
    fn call<R>(&mut self, cluster: &mut Cluster, who: usize, call: impl FnOnce(&mut Dsm) -> R) -> Option<R> {
        // An operation that is over at once has no outcome to be taken.
        self.programs[who].is_pending = true;
        let at = self.programs[who].at;
        let (node, _) = cluster.parts(at.node);
        let done = node.call(at.process, SHARED, |shared: &mut Buggy| call(shared.shared_mut().dsm_mut()));
        cluster.settle(at.node, self);
        done
    }

    fn again(&mut self, cluster: &mut Cluster, who: usize, most_ns: u64) {
        let after_ns = 1 + self.programs[who].random.below(most_ns);
        cluster.schedule(cluster.now_ns() + after_ns, who as u32);
    }

    fn begin(&mut self, cluster: &mut Cluster, who: usize) {
        let now_ns = cluster.now_ns();
        let SharedShape { allocations, units, locks, phases, steps, .. } = self.shape;
        if self.allocations.len() < allocations as usize {
            // Rank 0 allocates for all.
            self.programs[who].doing = Doing::Allocating;
            let number = self.allocations.len() as u32;
            let is_small = number < locks || number >= allocations - units;
            let bytes = if is_small { UNIT_BYTES } else { self.programs[who].random.spread(8, 9_000) };
            self.allocations.push((Address { view: 0, offset_bytes: 0 }, bytes));
            let thread = self.thread_of(who);
            if let Some(Err(error)) = self.call(cluster, who, |dsm| dsm.alloc(thread, bytes)) {
                self.broke(now_ns, "shared memory", format!("an allocation failed: {error}"));
            }
            return;
        }
        self.prefetch(cluster, who);
        if let Some(tests) = &mut self.tests {
            return match tests.next(who) {
                Some((round, op)) => self.test(cluster, who, round, op),
                None => self.programs[who].doing = Doing::Finished,
            };
        }
        let program = &mut self.programs[who];
        if program.steps_left == 0 {
            if program.phase == phases {
                program.doing = Doing::Finished;
                return;
            }
            program.steps_left = steps;
            return self.meet(cluster, who);
        }
        program.steps_left -= 1;
        let step = (who as u32 * phases + program.phase) * steps + program.steps_left;
        let is_left_out = self.left_out.get(step as usize).copied().unwrap_or(false);
        if program.random.chance(30) {
            let lock = program.random.below(locks.into()) as u32;
            if !is_left_out {
                return self.lock(cluster, who, lock);
            }
            return self.again(cluster, who, 500);
        }
        let (first, count) = (u64::from(locks), u64::from(allocations - locks));
        let mut allocation = (first + program.random.below(count)) as usize;
        let walks = units > 0 && program.random.chance(60);
        if walks {
            allocation = (allocations - units + program.walk % units) as usize;
            program.walk += 1;
        }
        let words = self.allocations[allocation].1 / 8;
        let touch = Touch {
            allocation,
            offset: 8 * program.random.below(words),
            store: program.random.chance(50).then(|| program.random.next()).filter(|_| !walks),
            lock: None,
        };
        if !is_left_out {
            program.doing = Doing::Touching(touch);
        }
        self.again(cluster, who, 500);
    }

    /// A thread waits for a minipage.
    fn note_fault(&mut self, who: usize, allocation: usize) {
        let first = who - usize::from(self.thread_of(who));
        let others = first..first + usize::from(self.shape.threads);
        let is_same = |other: usize| {
            let Program { doing, is_pending, .. } = &self.programs[other];
            let is_it = matches!(doing, Doing::Touching(touch) if touch.allocation == allocation);
            other != who && *is_pending && is_it
        };
        if others.into_iter().any(is_same) {
            self.coverage.note(Condition::SharedFault);
        }
    }

    /// A thread waits for all others.
    fn meet(&mut self, cluster: &mut Cluster, who: usize) {
        let program = &mut self.programs[who];
        let phase = program.phase;
        program.doing = Doing::Waiting;
        program.phase += 1;
        self.arrived[phase as usize].insert(who);
        let thread = self.thread_of(who);
        if let Some(Err(error)) = self.call(cluster, who, |dsm| dsm.barrier(thread, phase % 3)) {
            self.broke(cluster.now_ns(), "barriers", format!("thread {who}: {error}"));
        }
    }

    /// A thread does what a litmus test has it do next.
    fn test(&mut self, cluster: &mut Cluster, who: usize, round: usize, op: Op) {
        let touch = |variable: u8, store| {
            Doing::Touching(Touch {
                allocation: (self.shape.locks + u32::from(variable)) as usize,
                offset: 0,
                store,
                lock: None,
            })
        };
        self.programs[who].doing = match op {
            Op::Load(variable) => touch(variable, None),
            Op::Store(variable, value) => touch(variable, Some(Tests::stored(round, value))),
            Op::Lock => return self.lock(cluster, who, 0),
            Op::Barrier => return self.meet(cluster, who),
            Op::Unlock => {
                self.unlock(cluster, who, 0);
                if !self.shape.mutexes {
                    self.tested(cluster, who);
                }
                return;
            }
        };
        self.again(cluster, who, 10);
    }

    /// A thread has done what a litmus test had it do.
    fn tested(&mut self, cluster: &mut Cluster, who: usize) {
        self.programs[who].doing = Doing::Nothing;
        let Some(tests) = &mut self.tests else { return };
        let most_ns = tests.most_ns;
        let before = tests.seen.len();
        let said = tests.note_done(who);
        let after = tests.seen.len();
        self.coverage.note_many(Condition::Litmus, (after - before) as u64);
        if let Some(text) = said {
            self.broke(cluster.now_ns(), "litmus", text);
        }
        self.again(cluster, who, most_ns);
    }

    /// A load or store that the thread's rights allow.
    fn touch(&mut self, cluster: &mut Cluster, who: usize, touch: Touch) {
        let now_ns = cluster.now_ns();
        let (address, _) = self.allocations[touch.allocation];
        let start = (address.offset_bytes + touch.offset) as usize;
        let range = start..start + 8;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let at = self.programs[who].at;
        let (_, memory) = cluster.parts(at.node);
        let mut found = [0; 8];
        memory.read(at.process.0, FIRST_ADDRESS + start as u64, &mut found);
        let found = u64::from_le_bytes(found);
        let expected = word(&self.truth[range.clone()]);
        if found != expected && self.tests.is_none() {
            let text = format!("thread {who} finds {found:#x} at {start:#x}, and {expected:#x} was stored last");
            self.broke(now_ns, "sequential consistency", text);
        }
        let rank = self.rank_of(who);
        let writer = &mut self.writers[touch.allocation];
        if touch.store.is_some() {
            *writer = Some(rank);
        } else if writer.is_some_and(|writer| writer != rank) {
            self.coverage.note(Condition::Loaded);
        }
        if let Some(value) = touch.store {
            let (_, memory) = cluster.parts(at.node);
            let address = FIRST_ADDRESS + start as u64;
            memory.write(at.process.0, address, &value.to_le_bytes());
            self.truth[range].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(tests) = &mut self.tests {
            if touch.store.is_none() {
                tests.note_loaded(who, found);
            }
            return self.tested(cluster, who);
        }
        self.programs[who].doing = Doing::Nothing;
        match (touch.lock, touch.store) {
            (Some(_), None) => {
                let store = Some(found + 1);
                self.programs[who].doing = Doing::Touching(Touch { store, ..touch });
            }
            (Some(lock), Some(_)) => {
                self.additions[lock as usize] += 1;
                self.unlock(cluster, who, lock);
                if self.shape.mutexes {
                    return;
                }
            }
            (None, _) => {}
        }
        self.again(cluster, who, 2_000);
    }

    /// Lets each rank import the memory of each other.
    fn ask_imports(&mut self, cluster: &mut Cluster) {
        let firsts = self.programs.iter().step_by(usize::from(self.shape.threads));
        let ranks: Vec<Endpoint> = firsts.map(|program| program.at).collect();
        if let Err(text) = self.segments.ask(cluster, &ranks) {
            self.broke(0, "shared memory", text);
        }
        for at in ranks {
            cluster.settle(at.node, self);
        }
    }

    /// Imports may have their outcomes; with the last the programs begin.
    fn enter_imports(&mut self, cluster: &mut Cluster) {
        if self.segments.is_ready() {
            return;
        }
        if let Err(text) = self.segments.enter(cluster) {
            self.broke(cluster.now_ns(), "shared memory", text);
        } else if self.segments.is_ready() {
            cluster.schedule(cluster.now_ns(), 0);
        }
    }
}

impl crate::run::Programs for Programs {
    /// What the loads of litmus tests gave.
    type Seen = Vec<Seen>;

    fn violation(&self) -> Option<&(u64, Violation)> {
        self.violation.as_ref()
    }

    fn finish(self, coverage: &mut Coverage) -> Vec<Seen> {
        coverage.add(&self.coverage);
        self.tests.map_or_else(Vec::new, |tests| tests.seen)
    }

    fn runs_at(&self, who: u32) -> Option<NodeId> {
        Some(self.programs[who as usize].at.node)
    }

    fn event(&mut self, cluster: &mut Cluster, who: u32) -> bool {
        self.go(cluster, who as usize);
        false
    }

    /// Operations of ranks may be over.
    fn follow_up(&mut self, cluster: &mut Cluster) {
        self.enter_imports(cluster);
        for who in 0..self.programs.len() {
            if !self.programs[who].is_pending {
                continue;
            }
            let at = self.programs[who].at;
            let thread = self.thread_of(who);
            let (node, _) = cluster.parts(at.node);
            let outcome = node.call(at.process, SHARED, |shared: &mut Buggy| shared.shared_mut().take_outcome(thread));
            let now_ns = cluster.now_ns();
            let Some(outcome) = outcome.flatten() else { continue };
            self.programs[who].is_pending = false;
            match (outcome, self.programs[who].doing) {
                (Ok(DsmOutcome::Served(_)), Doing::Touching(_)) => {
                    self.again(cluster, who, 500);
                }
                (Ok(DsmOutcome::Locked), Doing::Locking(lock, _)) => {
                    let (lost, double) = (Canary::LostWaiter, Canary::DoubleGrant);
                    if self.other_waiter(who, lock, lost).is_some() {
                        continue;
                    }
                    let swapped = Canary::SwappedWaiters;
                    if let Some(other) = self.other_waiter(who, lock, swapped) {
                        self.locked(cluster, other, lock);
                        continue;
                    }
                    self.locked(cluster, who, lock);
                    if let Some(other) = self.other_waiter(who, lock, double) {
                        self.programs[other].is_pending = false;
                        self.locked(cluster, other, lock);
                    }
                }
                (Ok(DsmOutcome::Value(_)), Doing::Locking(lock, _)) => self.locked(cluster, who, lock),
                (Ok(DsmOutcome::Value(_)), Doing::Unlocking) if self.tests.is_some() => self.tested(cluster, who),
                (Ok(DsmOutcome::Value(_)), Doing::Unlocking) => {
                    self.programs[who].doing = Doing::Nothing;
                    self.again(cluster, who, 2_000);
                }
                (Ok(DsmOutcome::Passed), Doing::Waiting) => {
                    self.coverage.note(Condition::Passed);
                    let phase = self.programs[who].phase - 1;
                    let arrived = self.arrived[phase as usize].len();
                    if arrived != self.programs.len() {
                        let text = format!("thread {who} passes barrier {phase}, and {arrived} ranks have arrived");
                        self.broke(now_ns, "barriers", text);
                    }
                    if self.tests.is_some() {
                        self.tested(cluster, who);
                        continue;
                    }
                    self.programs[who].doing = Doing::Nothing;
                    self.again(cluster, who, 2_000);
                }
                (Ok(DsmOutcome::Allocated(address)), Doing::Allocating) => {
                    if let Some(last) = self.allocations.last_mut() {
                        last.0 = address;
                    }
                    self.programs[who].doing = Doing::Nothing;
                    if self.allocations.len() < self.shape.allocations as usize {
                        self.again(cluster, who, 100);
                    } else {
                        for who in 0..self.programs.len() {
                            self.again(cluster, who, 1_000);
                        }
                    }
                }
                (outcome, doing) => {
                    let text = format!("thread {who} is at {doing:?} and gets {outcome:?}");
                    self.broke(now_ns, "shared memory", text);
                }
            }
        }
    }

    fn rest(&mut self, cluster: &mut Cluster) {
        let now_ns = cluster.now_ns();
        for who in 0..self.programs.len() {
            let doing = self.programs[who].doing;
            if !matches!(doing, Doing::Finished) {
                self.broke(now_ns, "liveness", format!("thread {who} waits for ever: {doing:?}"));
            }
        }
        for lock in 0..self.additions.len() {
            let start = self.allocations[lock].0.offset_bytes as usize;
            let word = self.truth[start..start + 8].try_into().unwrap_or_default();
            let (word, additions) = (u64::from_le_bytes(word), self.additions[lock]);
            if word != additions {
                let text = format!("{additions} additions under lock {lock} gave {word}");
                self.broke(now_ns, "locks", text);
            }
        }
    }
}

impl Observer for Programs {
    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told) {
        if !matches!(told, Told::PathChanged { .. }) {
            self.broke(now_ns, "delivery", format!("{at}: {told:?}"));
        }
    }

    fn asked(&mut self, now_ns: u64, at: NodeId, ask: &Ask) {
        let rank = self.rank(Endpoint { node: at, process: ask.process });
        self.segments.note(at, ask);
        if let Act::Protect { region, access, .. } = ask.act {
            let Region { view, offset, bytes, .. } = region;
            if self.canary == Some(Canary::LateInvalidation) && access == Access::None && self.random.chance(5) {
                return;
            }
            // Several pages of a long allocation may be opened at once.
            for offset in (offset..offset + bytes).step_by(PAGE_BYTES as usize) {
                self.note_right(now_ns, rank, (view, offset), access);
            }
        }
    }

    fn store(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) -> StoreBy {
        if self.canary == Some(Canary::LostStore) && self.random.chance(5) {
            return StoreBy::Nothing { is_claimed: true };
        }
        self.segments.store(at, ask).unwrap_or(StoreBy::Nothing { is_claimed: false })
    }

    fn violated(&mut self, now_ns: u64, violation: Violation) {
        self.violation.get_or_insert((now_ns, violation));
    }
}
