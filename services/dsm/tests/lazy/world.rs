//! Ranks with real bytes, twins and enforced protections, and a network that delays at will but keeps the order of each pair.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use mapwire_dsm::{Access, Action, Config, Dsm, Message, Outcome, Progress, Protection, Rank, Thread};

use crate::random::Random;

pub(crate) const PAGE: usize = 4096;

#[derive(Debug)]
enum Packet {
    Message(Vec<u8>),
    Store {
        at: usize,
        bytes: Vec<u8>,
    },
    /// Bytes that the network interface reads as late as it may.
    Late {
        at: usize,
        count: usize,
    },
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Deliver {
        from: Rank,
        to: Rank,
    },
    /// The home's memory is read for a fetch.
    Read {
        by: Rank,
        from: Rank,
        page: u32,
        pages: u32,
        into: Option<u32>,
    },
    Landed {
        by: Rank,
        page: u32,
        into: Option<u32>,
        bytes: Vec<u8>,
    },
    Step {
        rank: Rank,
        thread: Thread,
    },
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) dsm: Dsm,
    pub(crate) memory: Vec<u8>,
    twins: Vec<Vec<u8>>,
    pub(crate) protections: Vec<Protection>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ranks: Vec<Machine>,
    network: Vec<VecDeque<Packet>>,
    last_ns: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    pub(crate) now_ns: u64,
    pub(crate) delay_ns: u64,
    pub(crate) random: Random,
    /// Outcomes that nobody has taken.
    pub(crate) resumed: VecDeque<(Rank, Thread, Outcome)>,
    /// Bytes stored by diffs.
    pub(crate) diff_bytes: u64,
    /// Fetches begun.
    pub(crate) fetches: u64,
    /// Messages delivered, by kind.
    pub(crate) kinds: [u64; 43],
}

impl World {
    pub(crate) fn new(config: Config, delay_ns: u64, random: Random) -> Self {
        let ranks = usize::from(config.ranks);
        let machine = |rank| Machine {
            dsm: Dsm::new(Config { rank, ..config }).unwrap(),
            memory: vec![0; config.pages as usize * PAGE],
            twins: vec![vec![0; PAGE]; config.twins as usize],
            protections: vec![Protection::None; config.pages as usize],
        };
        World {
            ranks: (0..config.ranks).map(machine).collect(),
            network: (0..ranks * ranks).map(|_| VecDeque::new()).collect(),
            last_ns: vec![0; ranks * ranks],
            events: BinaryHeap::new(),
            count: 0,
            now_ns: 0,
            delay_ns,
            random,
            resumed: VecDeque::new(),
            diff_bytes: 0,
            fetches: 0,
            kinds: [0; 43],
        }
    }

    pub(crate) fn rank(&mut self, rank: Rank) -> &mut Machine {
        &mut self.ranks[usize::from(rank)]
    }

    pub(crate) fn later(&mut self, within_ns: u64, event: Event) {
        let at_ns = self.now_ns + 1 + self.random.below(within_ns);
        self.count += 1;
        self.events.push(Reverse((at_ns, self.count, event)));
    }

    fn put(&mut self, from: Rank, to: Rank, packet: Packet) {
        let pair = usize::from(from) * self.ranks.len() + usize::from(to);
        let at_ns = (self.now_ns + 1 + self.random.below(self.delay_ns)).max(self.last_ns[pair]);
        self.last_ns[pair] = at_ns;
        self.network[pair].push_back(packet);
        self.count += 1;
        self.events.push(Reverse((at_ns, self.count, Event::Deliver { from, to })));
    }

    fn send(&mut self, from: Rank, to: Rank, message: Message) {
        assert_ne!(from, to, "a rank sends itself nothing");
        let bytes = self.rank(from).dsm.encode(to, &message).to_vec();
        self.kinds[usize::from(bytes[0] & 0x7f)] += 1;
        self.put(from, to, Packet::Message(bytes));
    }

    /// Carries out a rank's actions, in order.
    pub(crate) fn drain(&mut self, rank: Rank) {
        loop {
            let has = self.rank(rank).dsm.has_actions();
            let Some(action) = self.rank(rank).dsm.poll_action() else { return };
            assert!(has, "{action:?} was not announced");
            let machine = self.rank(rank);
            let bytes = |page: u32| page as usize * PAGE..(page as usize + 1) * PAGE;
            match action {
                Action::Send { to, message } => self.send(rank, to, message),
                Action::Protect { minipage, protection } => {
                    let first = minipage.first_page() as usize;
                    machine.protections[first..first + minipage.pages() as usize].fill(protection);
                }
                Action::Resume { thread, outcome } => self.resumed.push_back((rank, thread, outcome)),
                Action::Twin { page, twin } => {
                    assert_ne!(machine.protections[page as usize], Protection::Write);
                    machine.twins[twin as usize].copy_from_slice(&machine.memory[bytes(page)]);
                }
                Action::Merge { page, twin, fetched } => {
                    assert_eq!(machine.protections[page as usize], Protection::None);
                    for at in 0..PAGE {
                        let new = machine.twins[fetched as usize][at];
                        let (old, mine) = (machine.twins[twin as usize][at], &mut machine.memory[bytes(page)][at]);
                        *mine = if *mine == old { new } else { *mine };
                        machine.twins[twin as usize][at] = new;
                    }
                }
                Action::Fetch { from, page, pages, into } => {
                    let all = page as usize..(page + pages) as usize;
                    assert!(machine.protections[all].iter().all(|it| *it == Protection::None));
                    self.fetches += 1;
                    self.later(self.delay_ns, Event::Read { by: rank, from, page, pages, into });
                }
                Action::SendDiff { to, page, twin, message } => {
                    assert_ne!(machine.protections[page as usize], Protection::Write);
                    let (mine, old) = (machine.memory[bytes(page)].to_vec(), machine.twins[twin as usize].clone());
                    let mut ranges = Vec::new();
                    let mut at = 0;
                    while at < PAGE {
                        let count = (at..PAGE).take_while(|&at| mine[at] != old[at]).count();
                        if count > 0 {
                            ranges.push((at as u16, count as u16));
                            self.diff_bytes += count as u64;
                            let place = page as usize * PAGE + at;
                            let packet = match self.random.chance(50) {
                                true => Packet::Store { at: place, bytes: mine[at..at + count].to_vec() },
                                false => Packet::Late { at: place, count },
                            };
                            self.put(rank, to, packet);
                        }
                        at += count.max(1);
                    }
                    self.send(rank, to, message);
                    self.rank(rank).dsm.handle_changes(page.into(), ranges.into_iter());
                }
                Action::SendMinipage { to, minipage, message } => {
                    let (at, count) = (minipage.offset_bytes as usize, minipage.length_bytes as usize);
                    assert_ne!(machine.protections[at / PAGE], Protection::Write);
                    self.put(rank, to, Packet::Late { at, count });
                    self.send(rank, to, message);
                }
            }
        }
    }

    /// Handles the next event; a thread's step is returned.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse((at_ns, _, event)) = self.events.pop()?;
        self.now_ns = at_ns;
        match event {
            Event::Deliver { from, to } => {
                let pair = usize::from(from) * self.ranks.len() + usize::from(to);
                match self.network[pair].pop_front().expect("a packet for each delivery") {
                    Packet::Message(bytes) => {
                        let (message, payload) = Message::parse(&bytes).unwrap();
                        let handled = self.rank(to).dsm.handle_message(at_ns, from, message, payload);
                        if let Err(error) = handled {
                            panic!("rank {to}, {message:?}: {error}");
                        }
                        self.drain(to);
                    }
                    Packet::Store { at, bytes } => {
                        self.rank(to).memory[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                    Packet::Late { at, count } => {
                        let bytes = self.rank(from).memory[at..at + count].to_vec();
                        self.rank(to).memory[at..at + count].copy_from_slice(&bytes);
                    }
                }
            }
            Event::Read { by, from, page, pages, into } => {
                let bytes = self.rank(from).memory[page as usize * PAGE..][..pages as usize * PAGE].to_vec();
                self.later(self.delay_ns, Event::Landed { by, page, into, bytes });
            }
            Event::Landed { by, page, into, bytes } => {
                let machine = self.rank(by);
                assert_eq!(machine.protections[page as usize], Protection::None);
                match into {
                    None => machine.memory[page as usize * PAGE..][..bytes.len()].copy_from_slice(&bytes),
                    Some(twin) => machine.twins[twin as usize].copy_from_slice(&bytes),
                }
                machine.dsm.handle_fetched(page.into());
                self.drain(by);
            }
            Event::Step { .. } => return Some(event),
        }
        Some(Event::Deliver { from: 0, to: 0 })
    }

    /// Handles all events.
    pub(crate) fn settle(&mut self) {
        for rank in 0..self.ranks.len() {
            self.drain(rank as Rank);
        }
        while self.next().is_some() {}
    }

    pub(crate) fn outcome(&mut self, rank: Rank, thread: Thread) -> Option<Outcome> {
        let at = self.resumed.iter().position(|&(of, which, _)| (of, which) == (rank, thread))?;
        self.resumed.remove(at).map(|(_, _, outcome)| outcome)
    }

    /// Accesses bytes with thread 0 of a rank, and serves its faults.
    fn access(&mut self, rank: Rank, at: usize, access: Access) {
        let page = at / PAGE;
        while !self.rank(rank).protections[page].allows(access) {
            let now_ns = self.now_ns;
            let progress = self.rank(rank).dsm.handle_fault(now_ns, 0, 0, page as u64, access).unwrap();
            self.settle();
            if progress == Progress::Pending {
                assert_eq!(self.outcome(rank, 0), Some(Outcome::Served(access)));
            }
        }
    }

    pub(crate) fn load(&mut self, rank: Rank, at: usize) -> u8 {
        self.access(rank, at, Access::Read);
        self.rank(rank).memory[at]
    }

    pub(crate) fn store(&mut self, rank: Rank, at: usize, value: u8) {
        self.access(rank, at, Access::Write);
        self.rank(rank).memory[at] = value;
    }

    pub(crate) fn alloc(&mut self, rank: Rank, bytes: u64) -> usize {
        self.rank(rank).dsm.alloc(0, bytes).unwrap();
        self.settle();
        match self.outcome(rank, 0) {
            Some(Outcome::Allocated(address)) if address.view == 0 => address.offset_bytes as usize,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn lock(&mut self, rank: Rank, lock: u32) {
        if self.rank(rank).dsm.lock(0, lock).unwrap() == Progress::Pending {
            self.settle();
            assert_eq!(self.outcome(rank, 0), Some(Outcome::Locked));
        }
    }

    pub(crate) fn unlock(&mut self, rank: Rank, lock: u32) {
        self.rank(rank).dsm.unlock(0, lock).unwrap();
        self.settle();
    }

    /// All ranks pass a barrier, which they reach in that order.
    pub(crate) fn barrier(&mut self, order: &[Rank]) {
        for &rank in order {
            self.rank(rank).dsm.barrier(0, 1).unwrap();
            self.settle();
        }
        for &rank in order {
            assert_eq!(self.outcome(rank, 0), Some(Outcome::Passed));
        }
    }
}
