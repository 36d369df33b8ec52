//! Programs that use the lazily consistent shared memory, and what is checked of it: each load gives the last store before it in the order
//! of synchronisation or one that is not ordered with it, locks exclude, barriers let nobody pass before all have arrived, and no operation
//! waits for ever.

mod rounds;
mod scenario;

pub use rounds::{TESTS, Test};
pub use scenario::{LazyScenario, LazyShape};

use std::collections::BTreeMap;

use mapwire_dsm::{
    Access as Wanted, Combine, Counters, Dsm, NumberType, ObjectCall, ObjectKind, Outcome as DsmOutcome, PAGE_BYTES,
    Progress, Reduce, Verb,
};
use mapwire_node::{Act, Ask, Told};
use mapwire_vmmc::service::{Access, Change};
use mapwire_wire::{Endpoint, NodeId};

use super::SHARED;
use super::buggy::Buggy;
use crate::canary::Canary;
use crate::checks::happens_before::{Clock, Oracle, join};
use crate::cluster::{Cluster, FIRST_ADDRESS, Observer, StoreBy, Violation};
use crate::coverage::{Condition, Coverage};
use crate::random::Random;
use crate::segments::Segments;
use rounds::{BYTES, LOCKS, Op, Round, VARIABLES};

/// The number of the object at which all meet.
const BARRIER: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Allocating,
    Nothing,
    /// A call that makes an object.
    Preparing,
    /// A load, or a store of this value, at this byte.
    Touching(u64, Option<u8>),
    Locking(u8),
    /// A call that gives back what it reads, or what it holds.
    Unlocking(u8, bool),
    /// A call that tells a flag of its arrival.
    Arriving,
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
    /// Its round, and its next operation there.
    next: (usize, usize),
    /// Barriers at which it has arrived.
    barriers: usize,
    random: Random,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LazySeen {
    /// Of all ranks.
    pub counters: Counters,
    pub loads: u64,
    /// Races that were found.
    pub races: u64,
    pub rounds: usize,
}

/// The programs and what must be true of them.
#[derive(Debug)]
struct Programs {
    shape: LazyShape,
    programs: Vec<Program>,
    rounds: Vec<Round>,
    /// Where the variables begin, once they are allocated.
    start: Option<u64>,
    oracle: Oracle,
    /// The value stored last, in time, and by which thread, of each variable's byte.
    last: BTreeMap<u64, (u8, usize)>,
    lock_clocks: Vec<Clock>,
    holders: Vec<Option<usize>>,
    /// How many read each lock.
    readers: [u32; LOCKS as usize],
    /// For each barrier, how many have arrived, and what they knew.
    arrived: Vec<(usize, Clock)>,
    /// What each rank may do with each page.
    rights: BTreeMap<(Endpoint, u64), Access>,
    segments: Segments,
    canary: Option<Canary>,
    /// Copies that are made late, as the bug has it.
    late: Vec<(Endpoint, Change)>,
    coverage: Coverage,
    loads: u64,
    races: u64,
    counters: Counters,
    violation: Option<(u64, Violation)>,
}

impl Programs {
    /// The number of a thread among those of its rank.
    fn thread_of(&self, who: usize) -> u16 {
        (who % usize::from(self.shape.threads)) as u16
    }

    fn may(&self, at: Endpoint, place: u64, stores: bool) -> bool {
        match self.rights.get(&(at, place / PAGE_BYTES)) {
            Some(Access::Write) => true,
            Some(Access::Read) => !stores,
            _ => false,
        }
    }

    fn again(&mut self, cluster: &mut Cluster, who: usize) {
        let most_ns = self.shape.think_ns;
        let after_ns = 1 + self.programs[who].random.below(most_ns);
        cluster.schedule(cluster.now_ns() + after_ns, who as u32);
    }

    /// A call of the shared memory; then all that follows from it.
    fn call<R>(&mut self, cluster: &mut Cluster, who: usize, call: impl FnOnce(&mut Dsm) -> R) -> Option<R> {
        self.programs[who].is_pending = true;
        let at = self.programs[who].at;
        let (node, _) = cluster.parts(at.node);
        let done = node.call(at.process, SHARED, |shared: &mut Buggy| call(shared.shared_mut().dsm_mut()));
        cluster.settle(at.node, self);
        done
    }

    fn go(&mut self, cluster: &mut Cluster, who: usize) {
        match self.programs[who].doing {
            Doing::Nothing if self.start.is_none() => self.allocate(cluster, who),
            Doing::Nothing => self.begin(cluster, who),
            Doing::Touching(place, store) if self.may(self.programs[who].at, place, store.is_some()) => {
                self.touch(cluster, who, place, store);
            }
            Doing::Touching(place, store) => {
                let access = if store.is_some() { Wanted::Write } else { Wanted::Read };
                let clock_ns = cluster.clock_ns(self.programs[who].at.node);
                let (thread, page) = (self.thread_of(who), place / PAGE_BYTES);
                match self.call(cluster, who, |dsm| dsm.handle_fault(clock_ns, thread, 0, page, access)) {
                    Some(Ok(Progress::Pending)) => {}
                    Some(Ok(Progress::Done)) => {
                        self.programs[who].is_pending = false;
                        self.again(cluster, who);
                    }
                    other => {
                        self.broke(cluster.now_ns(), "shared memory", format!("thread {who}: a fault gave {other:?}"))
                    }
                }
            }
            _ => {}
        }
    }

    /// A thread calls an object.
    fn call_object(&mut self, cluster: &mut Cluster, who: usize, call: ObjectCall) {
        let thread = self.thread_of(who);
        match self.call(cluster, who, |dsm| dsm.call_object(thread, call)) {
            Some(Ok(())) => {}
            other => self.broke(cluster.now_ns(), "objects", format!("thread {who}: {call:?} gave {other:?}")),
        }
    }

    /// A call of the object that a lock is.
    fn lock_call(&self, lock: u8, kind: ObjectKind, verb: Verb) -> ObjectCall {
        // A semaphore has one for all; what is done once is not done.
        let argument = (kind == ObjectKind::Semaphore).into();
        ObjectCall { object: 64 + 8 * u64::from(lock), kind, verb, argument }
    }

    /// Makes the next of the objects that must be made, or lets all begin.
    fn prepare(&mut self, cluster: &mut Cluster, who: usize, done: usize) {
        let mut calls = Vec::new();
        for (lock, kind) in (0..).zip(self.shape.locks) {
            calls.extend(kind.map(|kind| self.lock_call(lock, kind, Verb::Init)));
        }
        let argument = self.programs.len() as u64;
        let made = self.shape.barriers.map(|kind| ObjectCall { object: BARRIER, kind, verb: Verb::Init, argument });
        calls.extend(made);
        match calls.get(done) {
            Some(call) => {
                self.programs[who].doing = Doing::Preparing;
                self.programs[who].next = (0, done + 1);
                self.call_object(cluster, who, *call);
            }
            None => {
                self.programs[who].doing = Doing::Nothing;
                self.programs[who].next = (0, 0);
                (0..self.programs.len()).for_each(|who| self.again(cluster, who));
            }
        }
    }

    /// Whether a thread only loads under the lock that it is about to take.
    fn only_loads(&self, who: usize, lock: u8) -> bool {
        let (round, next) = self.programs[who].next;
        let ops = self.rounds[round].ops[who][next..].iter();
        ops.take_while(|op| **op != Op::Unlock(lock)).all(|op| matches!(op, Op::Load(_)))
    }

    /// The first thread allocates for all.
    fn allocate(&mut self, cluster: &mut Cluster, who: usize) {
        self.programs[who].doing = Doing::Allocating;
        let thread = self.thread_of(who);
        if let Some(Err(error)) = self.call(cluster, who, |dsm| dsm.alloc(thread, BYTES)) {
            self.broke(cluster.now_ns(), "shared memory", format!("an allocation failed: {error}"));
        }
    }

    /// A thread begins its next operation.
    fn begin(&mut self, cluster: &mut Cluster, who: usize) {
        let now_ns = cluster.now_ns();
        let (round, next) = self.programs[who].next;
        let Some(ops) = self.rounds.get(round).map(|round| &round.ops[who]) else {
            self.programs[who].doing = Doing::Finished;
            return;
        };
        let Some(op) = ops.get(next).copied() else {
            self.programs[who].next = (round + 1, 0);
            return self.again(cluster, who);
        };
        self.programs[who].next = (round, next + 1);
        let start = self.start.unwrap_or_default();
        let place = |variable: u8| start + VARIABLES[usize::from(variable)];
        let thread = self.thread_of(who);
        match op {
            Op::Load(variable) => self.programs[who].doing = Doing::Touching(place(variable), None),
            Op::Store(variable) => {
                let value = self.programs[who].random.next() as u8;
                self.programs[who].doing = Doing::Touching(place(variable), Some(value));
            }
            Op::Lock(lock) => {
                self.programs[who].doing = Doing::Locking(lock);
                if let Some(kind) = self.shape.locks[usize::from(lock)] {
                    let shares = kind == ObjectKind::RwLock && self.only_loads(who, lock);
                    let call = self.lock_call(lock, kind, if shares { Verb::Share } else { Verb::Take });
                    return self.call_object(cluster, who, call);
                }
                match self.call(cluster, who, |dsm| dsm.lock(thread, lock.into())) {
                    Some(Ok(Progress::Done)) => {
                        self.programs[who].is_pending = false;
                        self.locked(cluster, who, lock);
                    }
                    Some(Ok(Progress::Pending)) => {}
                    other => self.broke(now_ns, "locks", format!("thread {who}: a lock gave {other:?}")),
                }
                return;
            }
            Op::Unlock(lock) if self.holders[usize::from(lock)] != Some(who) => {
                self.readers[usize::from(lock)] -= 1;
                self.programs[who].doing = Doing::Unlocking(lock, true);
                return self.call_object(cluster, who, self.lock_call(lock, ObjectKind::RwLock, Verb::Give));
            }
            Op::Unlock(lock) => {
                self.holders[usize::from(lock)] = None;
                self.lock_clocks[usize::from(lock)] = self.oracle.clocks[who].clone();
                if let Some(kind) = self.shape.locks[usize::from(lock)] {
                    self.programs[who].doing = Doing::Unlocking(lock, false);
                    return self.call_object(cluster, who, self.lock_call(lock, kind, Verb::Give));
                }
                let unlocked = self.call(cluster, who, |dsm| dsm.unlock(thread, lock.into()));
                self.programs[who].is_pending = false;
                if !matches!(unlocked, Some(Ok(()))) {
                    self.broke(now_ns, "locks", format!("thread {who}: to unlock gave {unlocked:?}"));
                }
            }
            Op::Barrier => {
                let barrier = self.programs[who].barriers;
                self.programs[who].doing = Doing::Waiting;
                self.programs[who].barriers += 1;
                let (arrived, clock) = &mut self.arrived[barrier];
                *arrived += 1;
                join(clock, &self.oracle.clocks[who]);
                match self.shape.barriers {
                    None => {}
                    Some(ObjectKind::Flag) => {
                        self.programs[who].doing = Doing::Arriving;
                        let call =
                            ObjectCall { object: BARRIER, kind: ObjectKind::Flag, verb: Verb::Give, argument: 1 };
                        return self.call_object(cluster, who, call);
                    }
                    Some(kind) => {
                        let sum = Combine { how: Reduce::Sum, of: NumberType::U64 };
                        let verb = if kind == ObjectKind::Barrier { Verb::Take } else { Verb::Reduce(sum) };
                        return self.call_object(cluster, who, ObjectCall { object: BARRIER, kind, verb, argument: 1 });
                    }
                }
                if let Some(Err(error)) = self.call(cluster, who, |dsm| dsm.barrier(thread, (barrier % 3) as u32)) {
                    self.broke(now_ns, "barriers", format!("thread {who}: {error}"));
                }
                return;
            }
        }
        self.again(cluster, who);
    }

    fn locked(&mut self, cluster: &mut Cluster, who: usize, lock: u8) {
        self.coverage.note(Condition::Locked);
        let shares = self.shape.locks[usize::from(lock)] == Some(ObjectKind::RwLock) && self.only_loads(who, lock);
        let lock = usize::from(lock);
        let other = if shares { self.holders[lock] } else { self.holders[lock].replace(who) };
        if other.is_some() || !shares && self.readers[lock] > 0 {
            let text =
                format!("lock {lock} is held by thread {who} and by {other:?} or {} readers", self.readers[lock]);
            self.broke(cluster.now_ns(), "locks", text);
        }
        self.readers[lock] += u32::from(shares);
        join(&mut self.oracle.clocks[who], &self.lock_clocks[lock]);
        self.programs[who].doing = Doing::Nothing;
        self.again(cluster, who);
    }

    /// A load or store that the rank's rights allow.
    fn touch(&mut self, cluster: &mut Cluster, who: usize, place: u64, store: Option<u8>) {
        let at = self.programs[who].at;
        let now_ns = cluster.now_ns();
        let (_, memory) = cluster.parts(at.node);
        if let Some(value) = store {
            memory.write(at.process.0, FIRST_ADDRESS + place, &[value]);
            // Twins of the page that the bug makes late.
            let page = place / PAGE_BYTES * PAGE_BYTES;
            let is_due = |late: &mut (Endpoint, Change)| matches!(*late, (of, Change::Copy { from, .. }) if (of, from) == (at, page));
            for (_, change) in self.late.extract_if(.., is_due) {
                memory.change(at.process.0, change);
            }
            self.oracle.store(who, place as usize, value);
            self.last.insert(place, (value, who));
        } else {
            let mut found = [0];
            memory.read(at.process.0, FIRST_ADDRESS + place, &mut found);
            let allowed = self.oracle.allowed(who, place as usize);
            self.loads += 1;
            if !allowed.contains(&found[0]) {
                let test = self.rounds.get(self.programs[who].next.0).and_then(|round| round.test);
                let text = format!(
                    "thread {who} loads {} at {place:#x}, and the stores allow {allowed:?} ({})",
                    found[0],
                    test.unwrap_or("drawn")
                );
                self.broke(now_ns, "release consistency", text);
            }
            if let Some((value, by)) = self.last.get(&place).copied() {
                let of_other = by / usize::from(self.shape.threads) != who / usize::from(self.shape.threads);
                if value != found[0] {
                    self.coverage.note(Condition::LazyRaced);
                } else if of_other && allowed.len() == 1 {
                    self.coverage.note(Condition::LazyLoaded);
                }
            }
        }
        self.programs[who].doing = Doing::Nothing;
        self.again(cluster, who);
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

    /// What a rank reports as a race is one.
    fn check_races(&mut self, cluster: &mut Cluster, at: Endpoint) {
        let threads = usize::from(self.shape.threads);
        loop {
            let (node, _) = cluster.parts(at.node);
            let race = node.call(at.process, SHARED, |shared: &mut Buggy| shared.shared_mut().dsm_mut().poll_race());
            let Some(race) = race.flatten() else { return };
            self.races += 1;
            self.coverage.note(Condition::LazyRaceFound);
            let ranks = race.ranks.map(usize::from);
            let between = |a: usize, b: usize| {
                let of = [a / threads, b / threads];
                of == ranks || [of[1], of[0]] == ranks
            };
            let mut bytes = race.offset_bytes..race.offset_bytes + race.length_bytes;
            if !bytes.all(|at| self.oracle.has_race(at as usize, between)) {
                self.broke(cluster.now_ns(), "release consistency", format!("{race:?} is none"));
            }
        }
    }

    /// Continues a thread whose call is over. False if no call was.
    fn take_outcome(&mut self, cluster: &mut Cluster, who: usize) -> bool {
        if !self.programs[who].is_pending {
            return false;
        }
        let (at, thread) = (self.programs[who].at, self.thread_of(who));
        let (node, _) = cluster.parts(at.node);
        let outcome = node.call(at.process, SHARED, |shared: &mut Buggy| shared.shared_mut().take_outcome(thread));
        let Some(outcome) = outcome.flatten() else { return false };
        self.programs[who].is_pending = false;
        self.resume(cluster, who, outcome);
        true
    }

    /// What a thread waited for is over.
    fn resume(&mut self, cluster: &mut Cluster, who: usize, outcome: Result<DsmOutcome, mapwire_node::SharedEnd>) {
        match (outcome, self.programs[who].doing) {
            (Ok(DsmOutcome::Served(_)), Doing::Touching(..)) => self.again(cluster, who),
            (Ok(DsmOutcome::Locked | DsmOutcome::Value(_)), Doing::Locking(lock)) => self.locked(cluster, who, lock),
            (Ok(DsmOutcome::Value(_)), Doing::Unlocking(lock, is_reader)) => {
                if is_reader {
                    let clock = self.oracle.clocks[who].clone();
                    join(&mut self.lock_clocks[usize::from(lock)], &clock);
                }
                self.programs[who].doing = Doing::Nothing;
                self.again(cluster, who);
            }
            (Ok(DsmOutcome::Value(_)), Doing::Preparing) => self.prepare(cluster, who, self.programs[who].next.1),
            (Ok(DsmOutcome::Value(_)), Doing::Arriving) => {
                self.programs[who].doing = Doing::Waiting;
                let argument = (self.programs[who].barriers * self.programs.len()) as u64;
                let call = ObjectCall { object: BARRIER, kind: ObjectKind::Flag, verb: Verb::Take, argument };
                self.call_object(cluster, who, call);
            }
            (Ok(DsmOutcome::Passed | DsmOutcome::Value(_)), Doing::Waiting) => {
                self.coverage.note(Condition::Passed);
                let barrier = self.programs[who].barriers - 1;
                let (arrived, clock) = &self.arrived[barrier];
                join(&mut self.oracle.clocks[who], clock);
                if *arrived != self.programs.len() {
                    let text = format!("thread {who} passes barrier {barrier}, and {arrived} threads have arrived");
                    self.broke(cluster.now_ns(), "barriers", text);
                }
                self.programs[who].doing = Doing::Nothing;
                self.again(cluster, who);
            }
            (Ok(DsmOutcome::Allocated(address)), Doing::Allocating) => {
                self.start = Some(address.offset_bytes);
                self.prepare(cluster, who, 0);
            }
            (outcome, doing) => {
                let text = format!("thread {who} is at {doing:?} and gets {outcome:?}");
                self.broke(cluster.now_ns(), "shared memory", text);
            }
        }
    }
}

impl crate::run::Programs for Programs {
    type Seen = LazySeen;

    fn violation(&self) -> Option<&(u64, Violation)> {
        self.violation.as_ref()
    }

    fn finish(self, coverage: &mut Coverage) -> LazySeen {
        coverage.add(&self.coverage);
        coverage.note_many(Condition::LazyMoved, self.counters.home_moves);
        LazySeen { counters: self.counters, loads: self.loads, races: self.races, rounds: self.rounds.len() }
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
        let mut who = 0;
        while who < self.programs.len() {
            // What a thread then calls may be over at once.
            if !self.take_outcome(cluster, who) {
                who += 1;
            }
        }
    }

    fn rest(&mut self, cluster: &mut Cluster) {
        for who in 0..self.programs.len() {
            let doing = self.programs[who].doing;
            if doing != Doing::Finished {
                self.broke(cluster.now_ns(), "liveness", format!("thread {who} waits for ever: {doing:?}"));
            }
        }
        for who in (0..self.programs.len()).step_by(usize::from(self.shape.threads)) {
            let at = self.programs[who].at;
            let (node, _) = cluster.parts(at.node);
            let counters = node.call(at.process, SHARED, |shared: &mut Buggy| shared.shared().dsm().counters());
            self.counters = self.counters + counters.unwrap_or_default();
            self.check_races(cluster, at);
        }
    }
}

impl Observer for Programs {
    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told) {
        if !matches!(told, Told::PathChanged { .. }) {
            self.broke(now_ns, "delivery", format!("{at}: {told:?}"));
        }
    }

    fn asked(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) {
        self.segments.note(at, ask);
        let Act::Protect { region, access, .. } = ask.act else { return };
        let at = Endpoint { node: at, process: ask.process };
        for page in region.offset / PAGE_BYTES..(region.offset + region.bytes).div_ceil(PAGE_BYTES) {
            let right = self.rights.entry((at, page)).or_insert(Access::None);
            let is_reduced = (*right, access) == (Access::Write, Access::Read);
            let is_kept = match self.canary {
                Some(Canary::LateInvalidation) => access == Access::None,
                Some(Canary::UnnoticedHome) => is_reduced,
                _ => false,
            };
            if !is_kept {
                *right = access;
            }
        }
    }

    fn store(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) -> StoreBy {
        if self.canary == Some(Canary::LostStore) && matches!(ask.act, Act::StoreChanges { .. }) {
            return StoreBy::Nothing { is_claimed: true };
        }
        self.segments.store(at, ask).unwrap_or(StoreBy::Nothing { is_claimed: false })
    }

    fn changes(&mut self, at: Endpoint, change: Change) -> Vec<Change> {
        if matches!(change, Change::Merge { .. }) {
            self.coverage.note(Condition::LazyMerged);
        }
        match (self.canary, change) {
            (Some(Canary::LateTwin), Change::Copy { .. }) => {
                self.late.push((at, change));
                Vec::new()
            }
            (Some(Canary::LostMerge), Change::Merge { page, copy, fetched: from }) => {
                [page, copy].map(|to| Change::Copy { from, to }).to_vec()
            }
            _ => vec![change],
        }
    }

    fn violated(&mut self, now_ns: u64, violation: Violation) {
        self.violation.get_or_insert((now_ns, violation));
    }
}
