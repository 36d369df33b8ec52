//! A job in virtual time: ranks with real bytes and enforced protections, and a network that delays at will but keeps the order of each
//! pair. Checks the invariants at every step.

use crate::program::{Thread, ThreadState};
use crate::random::Random;
use mapwire_dsm::Progress;
use mapwire_dsm::{Action, Address, Config, Dsm, Message, Minipage, Outcome, PAGE_BYTES, Protection, Rank, Units};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ops::Range;

/// Parameters that a seed decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) ranks: u16,
    pub(crate) threads: u16,
    pub(crate) views: u16,
    pub(crate) pages: u32,
    pub(crate) locks: u32,
    pub(crate) hold_ns: u64,
    pub(crate) lock_local_passes: u8,
    pub(crate) phases: u32,
    pub(crate) steps: u32,
    pub(crate) write_percent: u64,
    pub(crate) delay_ns: u64,
    pub(crate) think_ns: u64,
    /// Percentage of minipages stored at once into the receiver's segment; others travel in pieces before the message.
    pub(crate) direct_percent: u64,
    pub(crate) piece_bytes: u64,
    /// Percentage of pieces read only on arrival, the latest that a network interface could.
    pub(crate) late_percent: u64,
}

impl Shape {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let think_ns = [50, 500, 3_000][random.below(3) as usize];
        // Without holds nothing promises progress while all threads fight for few minipages: a pause between
        // grant and use that is long against the network could starve them. So it is short then.
        let hold_ns = [0, 1_000, 5_000][random.below(3) as usize];
        Shape {
            ranks: 2 + random.below(7) as u16,
            threads: 1 + random.below(3) as u16,
            views: 1 + random.below(8) as u16,
            pages: 192,
            locks: 1 + random.below(4) as u32,
            hold_ns,
            lock_local_passes: random.below(4) as u8,
            phases: 1 + random.below(3) as u32,
            steps: 5 + random.below(20) as u32,
            write_percent: [10, 50, 90][random.below(3) as usize],
            delay_ns: [100, 2_000, 20_000][random.below(3) as usize],
            think_ns: if hold_ns == 0 { 50 } else { think_ns },
            direct_percent: [0, 50, 100][random.below(3) as usize],
            piece_bytes: [64, 1000, 16_384][random.below(3) as usize],
            late_percent: [0, 50, 100][random.below(3) as usize],
        }
    }
}

impl Shape {
    /// A job of many ranks, each of which does little, so that it ends soon.
    #[allow(dead_code, reason = "the fuzzer draws small jobs")]
    pub(crate) fn large(ranks: u16, random: &mut Random) -> Self {
        Shape { ranks, threads: 1, pages: 96, phases: 2, steps: 6, write_percent: 10, ..Shape::draw(random) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Deliver { from: Rank, to: Rank },
    Step { rank: Rank, thread: u16 },
    Hold { rank: Rank },
}

/// Under way from one rank to another.
enum Packet {
    Message(Vec<u8>),
    /// Bytes read on sending.
    Store {
        offset: usize,
        bytes: Vec<u8>,
    },
    /// Bytes read as late as possible.
    LateStore {
        range: Range<usize>,
    },
}

pub(crate) struct Machine {
    pub(crate) dsm: Dsm,
    memory: Vec<u8>,
    /// Indexed by view and page.
    protections: Vec<Protection>,
}

pub(crate) struct Cluster {
    pub(crate) shape: Shape,
    pub(crate) random: Random,
    pub(crate) now_ns: u64,
    pub(crate) machines: Vec<Machine>,
    pub(crate) threads: Vec<Thread>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    event_count: u64,
    network: Vec<VecDeque<Packet>>,
    last_delivery_ns: Vec<u64>,
    /// The one memory that all must see: the last value written to each byte.
    truth: Vec<u8>,
    pub(crate) allocations_begun: usize,
    /// Allocated minipages, by address.
    pub(crate) minipages: Vec<Minipage>,
    /// Number of ranks where each page of a view is readable, and writable.
    rights: HashMap<(u16, usize), (u32, u32)>,
    pub(crate) lock_holders: Vec<Option<(Rank, u16)>>,
    /// The order in which the managers saw the ranks' requests.
    lock_queues: Vec<VecDeque<Rank>>,
    /// How often each lock's counter was increased.
    pub(crate) increments: Vec<u64>,
    pub(crate) counters_at: Vec<Minipage>,
    pub(crate) arrivals: Vec<u32>,
}

impl Cluster {
    /// A job with shape and chances drawn from `random`.
    pub(crate) fn new(mut random: Random) -> Self {
        Cluster::of(Shape::draw(&mut random), random)
    }

    /// A job of that shape, with chances drawn from `random`.
    pub(crate) fn of(shape: Shape, random: Random) -> Self {
        let pairs = usize::from(shape.ranks) * usize::from(shape.ranks);
        let bytes = shape.pages as usize * PAGE_BYTES as usize;
        let machines = (0..shape.ranks).map(|rank| {
            let config = Config {
                participants: shape.threads,
                locks: shape.locks,
                barriers: 3,
                chunk_pages: 2,
                hold_ns: shape.hold_ns,
                lock_local_passes: shape.lock_local_passes,
                ..Config::new(rank, shape.ranks, shape.threads, shape.pages, shape.views)
            };
            Machine {
                dsm: Dsm::new(config).unwrap(),
                memory: vec![0; bytes],
                protections: vec![Protection::None; usize::from(shape.views) * shape.pages as usize],
            }
        });
        let machines = machines.collect();
        let mut cluster = Cluster {
            shape,
            now_ns: 0,
            machines,
            threads: Vec::new(),
            events: BinaryHeap::new(),
            event_count: 0,
            network: (0..pairs).map(|_| VecDeque::new()).collect(),
            last_delivery_ns: vec![0; pairs],
            truth: vec![0; bytes],
            allocations_begun: 0,
            minipages: Vec::new(),
            rights: HashMap::new(),
            lock_holders: vec![None; shape.locks as usize],
            lock_queues: (0..shape.locks).map(|_| VecDeque::new()).collect(),
            increments: vec![0; shape.locks as usize],
            counters_at: Vec::new(),
            arrivals: vec![0; shape.phases as usize],
            random,
        };
        for rank in 0..shape.ranks {
            for thread in 0..shape.threads {
                cluster.threads.push(Thread::new(rank, thread));
                cluster.later(Event::Step { rank, thread }, shape.think_ns);
            }
        }
        cluster
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse((time_ns, self.event_count, event)));
    }

    fn later(&mut self, event: Event, within_ns: u64) {
        let delay = 1 + self.random.below(within_ns);
        self.at(self.now_ns + delay, event);
    }

    /// Runs the job to its end.
    pub(crate) fn run(&mut self) {
        let limit = 10_000_000;
        while let Some(Reverse((time_ns, _, event))) = self.events.pop() {
            assert!(self.event_count < limit, "no end after {limit} events: somebody starves");
            self.now_ns = time_ns;
            match event {
                Event::Deliver { from, to } => self.deliver(from, to),
                Event::Step { rank, thread } => self.step(rank, thread),
                Event::Hold { rank } => {
                    self.machines[usize::from(rank)].dsm.release_holds(time_ns);
                    self.execute(rank);
                }
            }
        }
        for thread in &self.threads {
            assert!(thread.is_finished(), "{thread:?} was never served");
        }
        assert!(self.lock_holders.iter().all(Option::is_none));
        self.check_counters();
    }

    fn check_counters(&self) {
        for (minipage, &increments) in self.counters_at.iter().zip(&self.increments) {
            let at = minipage.offset_bytes as usize;
            let counted = u64::from_le_bytes(self.truth[at..at + 8].try_into().unwrap());
            assert_eq!(counted, increments, "a lock let two threads count at once");
        }
        let sum =
            |f: fn(&mapwire_dsm::Counters) -> u64| -> u64 { self.machines.iter().map(|m| f(&m.dsm.counters())).sum() };
        assert_eq!(sum(|c| c.messages_sent), sum(|c| c.messages_received));
    }

    fn deliver(&mut self, from: Rank, to: Rank) {
        let pair = usize::from(from) * usize::from(self.shape.ranks) + usize::from(to);
        let packet = self.network[pair].pop_front();
        let bytes = match packet.expect("a packet for each delivery") {
            Packet::Message(bytes) => bytes,
            Packet::Store { offset, bytes } => return self.store_remote(to, offset, &bytes),
            Packet::LateStore { range } => {
                let bytes = self.machines[usize::from(from)].memory[range.clone()].to_vec();
                return self.store_remote(to, range.start, &bytes);
            }
        };
        let machine = &mut self.machines[usize::from(to)];
        let (message, payload) = Message::parse(&bytes).unwrap();
        if let Message::LockRequest { lock } = message {
            self.lock_queues[lock as usize].push_back(from);
        }
        if let Err(error) = machine.dsm.handle_message(self.now_ns, from, message, payload) {
            panic!("rank {to}, {message:?}: {error}");
        }
        self.execute(to);
    }

    /// Carries out a rank's actions, in order.
    pub(crate) fn execute(&mut self, rank: Rank) {
        while let Some(action) = self.machines[usize::from(rank)].dsm.poll_action() {
            match action {
                Action::Send { to, message } => self.send(rank, to, message, None),
                Action::SendMinipage { to, minipage, message } => {
                    self.send(rank, to, message, Some(minipage));
                }
                Action::Protect { minipage, protection } => self.protect(rank, minipage, protection),
                Action::Resume { thread, outcome } => self.resume(rank, thread, outcome),
                other => panic!("{other:?} under sequential consistency"),
            }
        }
        if let Some(time_ns) = self.machines[usize::from(rank)].dsm.poll_hold() {
            self.at(time_ns.max(self.now_ns + 1), Event::Hold { rank });
        }
    }

    fn send(&mut self, from: Rank, to: Rank, message: Message, minipage: Option<Minipage>) {
        assert_ne!(from, to, "a rank sends itself nothing");
        self.check_lock_order(from, to, message);
        if let Some(minipage) = minipage {
            let at = usize::from(minipage.view) * self.shape.pages as usize;
            let page = at + minipage.first_page() as usize;
            assert_eq!(
                self.machines[usize::from(to)].protections[page],
                Protection::None,
                "{minipage:?} would be overwritten under rank {to}"
            );
            self.send_bytes(from, to, range(&minipage));
        }
        let bytes = self.machines[usize::from(from)].dsm.encode(to, &message);
        let packet = Packet::Message(bytes.to_vec());
        self.put_under_way(from, to, packet);
    }

    /// Copies bytes to another rank, either at once or in pieces.
    fn send_bytes(&mut self, from: Rank, to: Rank, range: Range<usize>) {
        let source = &self.machines[usize::from(from)].memory;
        if self.random.chance(self.shape.direct_percent) {
            let bytes = source[range.clone()].to_vec();
            return self.store_remote(to, range.start, &bytes);
        }
        for offset in range.clone().step_by(self.shape.piece_bytes as usize) {
            let piece = offset..range.end.min(offset + self.shape.piece_bytes as usize);
            let packet = if self.random.chance(self.shape.late_percent) {
                Packet::LateStore { range: piece }
            } else {
                let bytes = self.machines[usize::from(from)].memory[piece].to_vec();
                Packet::Store { offset, bytes }
            };
            self.put_under_way(from, to, packet);
        }
    }

    fn store_remote(&mut self, to: Rank, offset: usize, bytes: &[u8]) {
        self.machines[usize::from(to)].memory[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    fn put_under_way(&mut self, from: Rank, to: Rank, packet: Packet) {
        let pair = usize::from(from) * usize::from(self.shape.ranks) + usize::from(to);
        let delay = 1 + self.random.below(self.shape.delay_ns);
        let time_ns = (self.now_ns + delay).max(self.last_delivery_ns[pair]);
        self.last_delivery_ns[pair] = time_ns;
        self.network[pair].push_back(packet);
        self.at(time_ns, Event::Deliver { from, to });
    }

    /// Ranks must get a lock in the order in which its manager saw their requests.
    fn check_lock_order(&mut self, from: Rank, to: Rank, message: Message) {
        match message {
            Message::LockForward { lock, successor } if successor == from => {
                self.lock_queues[lock as usize].push_back(from);
            }
            Message::LockToken { lock } => {
                assert_eq!(self.lock_queues[lock as usize].pop_front(), Some(to), "lock {lock} out of order");
                assert_eq!(self.lock_holders[lock as usize], None, "lock {lock} passed on while held");
            }
            _ => {}
        }
    }

    fn protect(&mut self, rank: Rank, minipage: Minipage, protection: Protection) {
        let machine = &mut self.machines[usize::from(rank)];
        let row = usize::from(minipage.view) * self.shape.pages as usize;
        let first = minipage.first_page() as usize;
        for page in first..first + minipage.pages() as usize {
            let before = core::mem::replace(&mut machine.protections[row + page], protection);
            let (readers, writers) = self.rights.entry((minipage.view, page)).or_insert((0, 0));
            let change = |count: &mut u32, least| {
                *count -= u32::from(before >= least);
                *count += u32::from(protection >= least);
            };
            change(readers, Protection::Read);
            change(writers, Protection::Write);
            assert!(
                *writers == 0 || (*readers, *writers) == (1, 1),
                "page {page} of {minipage:?} has {readers} readers, {writers} of them writers"
            );
        }
        if protection != Protection::None {
            let range = range(&minipage);
            assert!(machine.memory[range.clone()] == self.truth[range], "rank {rank} opens {minipage:?} with old data");
        }
    }

    fn resume(&mut self, rank: Rank, thread: u16, outcome: Outcome) {
        let index = self.index(rank, thread);
        match (outcome, self.threads[index].state) {
            (Outcome::Locked, ThreadState::Locking(lock)) => self.take_lock(rank, thread, lock),
            (Outcome::Allocated(address), ThreadState::Allocating { bytes, unit_bytes }) => {
                self.add_allocation(address, bytes, unit_bytes);
            }
            (Outcome::Passed, ThreadState::InBarrier(phase)) => {
                let all = u32::from(self.shape.ranks) * u32::from(self.shape.threads);
                assert_eq!(self.arrivals[phase as usize], all, "barrier {phase} opened early");
            }
            _ => {}
        }
        self.threads[index].resumed(outcome);
        self.later(Event::Step { rank, thread }, self.shape.think_ns);
    }

    pub(crate) fn take_lock(&mut self, rank: Rank, thread: u16, lock: u32) {
        let holder = self.lock_holders[lock as usize].replace((rank, thread));
        assert_eq!(holder, None, "lock {lock} has two holders");
    }

    fn add_allocation(&mut self, address: Address, length_bytes: u64, unit_bytes: u64) {
        let Address { view, offset_bytes } = address;
        if unit_bytes >= length_bytes {
            return self.add_minipage(Minipage { view, offset_bytes, length_bytes });
        }
        let units = Units { view, first_page: (offset_bytes / PAGE_BYTES) as u32, length_bytes, unit_bytes };
        assert_eq!(units.address(), address);
        for number in 0..units.count() {
            let minipage = units.unit(number, self.shape.views).unwrap();
            if minipage.length_bytes >= 8 {
                self.add_minipage(minipage);
            }
        }
    }

    fn add_minipage(&mut self, minipage: Minipage) {
        let new = range(&minipage);
        for other in &self.minipages {
            let old = range(other);
            assert!(new.end <= old.start || old.end <= new.start, "{minipage:?} overlaps {other:?}");
        }
        self.minipages.push(minipage);
        if self.counters_at.len() < self.shape.locks as usize && minipage.length_bytes >= 8 {
            self.counters_at.push(minipage);
        }
    }

    pub(crate) fn index(&self, rank: Rank, thread: u16) -> usize {
        usize::from(rank) * usize::from(self.shape.threads) + usize::from(thread)
    }

    /// Reads eight bytes of the shared memory as a rank sees it; `None` if it would fault.
    pub(crate) fn load(&mut self, rank: Rank, minipage: Minipage, offset: u64) -> Option<u64> {
        let at = self.place(rank, minipage, offset, Protection::Read)?;
        let machine = &self.machines[usize::from(rank)];
        let seen = &machine.memory[at..at + 8];
        assert_eq!(seen, &self.truth[at..at + 8], "rank {rank} read old data of {minipage:?}");
        Some(u64::from_le_bytes(seen.try_into().unwrap()))
    }

    /// Writes eight bytes; `None` if it would fault.
    pub(crate) fn store(&mut self, rank: Rank, minipage: Minipage, offset: u64, value: u64) -> Option<()> {
        let at = self.place(rank, minipage, offset, Protection::Write)?;
        let bytes = value.to_le_bytes();
        self.machines[usize::from(rank)].memory[at..at + 8].copy_from_slice(&bytes);
        self.truth[at..at + 8].copy_from_slice(&bytes);
        Some(())
    }

    fn place(&self, rank: Rank, minipage: Minipage, offset: u64, least: Protection) -> Option<usize> {
        let at = (minipage.offset_bytes + offset) as usize;
        let row = usize::from(minipage.view) * self.shape.pages as usize;
        let protections = &self.machines[usize::from(rank)].protections;
        let both = [at, at + 7].map(|at| protections[row + at / PAGE_BYTES as usize]);
        both.iter().all(|&protection| protection >= least).then_some(at)
    }

    /// Whether a call was over at once; first carries out its actions.
    pub(crate) fn done(&mut self, rank: Rank, progress: Progress) -> bool {
        self.execute(rank);
        progress == Progress::Done
    }

    /// Schedules a thread to act again soon.
    pub(crate) fn again(&mut self, rank: Rank, thread: u16) {
        self.later(Event::Step { rank, thread }, self.shape.think_ns);
    }
}

fn range(minipage: &Minipage) -> Range<usize> {
    let start = minipage.offset_bytes as usize;
    start..start + minipage.length_bytes as usize
}
