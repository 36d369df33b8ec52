//! A few ranks and an orderly network: messages arrive in the order in which they were sent, one step at a time.

use mapwire_dsm::{
    Access, Action, Address, AllocOptions, Config, Dsm, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES, Message, Minipage,
    Outcome, PAGE_BYTES, Progress, Protocol, Rank, Thread, Unit, Units,
};
use std::collections::VecDeque;

/// An action, with the rank that requested it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Happened {
    pub(crate) rank: Rank,
    pub(crate) action: Action,
    /// Messages delivered before.
    pub(crate) delivered: u64,
}

pub(crate) struct Net {
    pub(crate) ranks: Vec<Dsm>,
    under_way: VecDeque<(Rank, Rank, Message)>,
    /// Payloads of those of lazy consistency, and pages that were fetched.
    payloads: VecDeque<(usize, [u8; MAX_PAYLOAD_BYTES])>,
    fetched: VecDeque<(Rank, u32)>,
    pub(crate) log: Vec<Happened>,
    pub(crate) delivered: u64,
    pub(crate) now_ns: u64,
}

impl Net {
    pub(crate) fn new(config: Config) -> Self {
        let ranks = (0..config.ranks).map(|rank| Dsm::new(Config { rank, ..config }).unwrap()).collect();
        Net {
            ranks,
            under_way: VecDeque::with_capacity(100_000),
            payloads: VecDeque::with_capacity(1_000),
            fetched: VecDeque::with_capacity(1_000),
            log: Vec::with_capacity(100_000),
            delivered: 0,
            now_ns: 0,
        }
    }

    pub(crate) fn rank(&mut self, rank: Rank) -> &mut Dsm {
        &mut self.ranks[usize::from(rank)]
    }

    /// Carries out a rank's actions.
    pub(crate) fn drain(&mut self, rank: Rank) {
        while let Some(action) = self.ranks[usize::from(rank)].poll_action() {
            self.log.push(Happened { rank, action, delivered: self.delivered });
            let sent = match action {
                Action::Send { to, message }
                | Action::SendMinipage { to, message, .. }
                | Action::SendDiff { to, message, .. } => Some((to, message)),
                Action::Fetch { page, .. } => {
                    self.fetched.push_back((rank, page));
                    None
                }
                _ => None,
            };
            let Some((to, message)) = sent else { continue };
            self.under_way.push_back((rank, to, message));
            let dsm = self.rank(rank);
            if dsm.config().protocol == Protocol::Hlrc {
                let mut fields = [0; MAX_MESSAGE_BYTES];
                let start = message.encode(&mut fields);
                let bytes = dsm.encode(to, &message);
                let mut payload = [0; MAX_PAYLOAD_BYTES];
                payload[..bytes.len() - start].copy_from_slice(&bytes[start..]);
                let length = bytes.len() - start;
                self.payloads.push_back((length, payload));
            }
        }
    }

    /// Delivers one message.
    pub(crate) fn step(&mut self) -> bool {
        if let Some((rank, page)) = self.fetched.pop_front() {
            self.rank(rank).handle_fetched(page.into());
            self.drain(rank);
            return true;
        }
        let Some((from, to, message)) = self.under_way.pop_front() else {
            return false;
        };
        let (length, payload) = self.payloads.pop_front().unwrap_or((0, [0; MAX_PAYLOAD_BYTES]));
        self.delivered += 1;
        let now_ns = self.now_ns;
        self.rank(to).handle_message(now_ns, from, message, &payload[..length]).unwrap();
        self.drain(to);
        true
    }

    /// Delivers all messages.
    pub(crate) fn settle(&mut self) {
        for rank in 0..self.ranks.len() {
            self.drain(rank as Rank);
        }
        while self.step() {}
    }

    /// Loses all messages under way.
    pub(crate) fn forget(&mut self) {
        self.under_way.clear();
        self.payloads.clear();
    }

    /// Forgets what happened.
    pub(crate) fn clear(&mut self) {
        self.log.clear();
        self.delivered = 0;
    }

    /// A single minipage.
    pub(crate) fn alloc(&mut self, rank: Rank, bytes: u64) -> Minipage {
        let options = AllocOptions { unit: Unit::Whole, ..AllocOptions::default() };
        let Address { view, offset_bytes } = self.allocated(rank, |dsm| dsm.alloc_with(0, bytes, options).unwrap());
        Minipage { view, offset_bytes, length_bytes: bytes }
    }

    /// An array of several.
    pub(crate) fn array(&mut self, rank: Rank, length_bytes: u64, unit: Unit) -> Units {
        let options = AllocOptions { unit, ..AllocOptions::default() };
        let at = self.allocated(rank, |dsm| dsm.alloc_with(0, length_bytes, options).unwrap());
        let first_page = (at.offset_bytes / PAGE_BYTES) as u32;
        Units { view: at.view, first_page, length_bytes, unit_bytes: unit.of(length_bytes).unwrap() }
    }

    /// Several rows.
    pub(crate) fn rows(&mut self, rank: Rank, rows: u64, unit_bytes: u64) -> Units {
        let options = AllocOptions::default();
        let at = self.allocated(rank, |dsm| dsm.alloc_rows(0, rows, unit_bytes, options).unwrap());
        let first_page = (at.offset_bytes / PAGE_BYTES) as u32;
        Units { view: at.view, first_page, length_bytes: rows * unit_bytes, unit_bytes }
    }

    /// Where a rank allocates.
    pub(crate) fn allocated(&mut self, rank: Rank, alloc: impl FnOnce(&mut Dsm)) -> Address {
        self.clear();
        alloc(self.rank(rank));
        self.settle();
        match self.outcome(rank, 0) {
            Some((Outcome::Allocated(address), _)) => address,
            other => panic!("{other:?}"),
        }
    }

    /// A page of `owner` that `manager` manages.
    pub(crate) fn page_of(&mut self, owner: Rank, manager: Rank) -> Minipage {
        loop {
            let minipage = self.alloc(owner, 4096);
            if self.ranks[0].manager(minipage.first_page()) == Some(manager) {
                self.clear();
                return minipage;
            }
        }
    }

    /// Faults without delivering anything.
    pub(crate) fn start(&mut self, rank: Rank, thread: Thread, minipage: Minipage, access: Access) -> Progress {
        let now_ns = self.now_ns;
        let dsm = self.rank(rank);
        let progress = dsm.handle_fault(now_ns, thread, minipage.view, minipage.first_page(), access).unwrap();
        self.drain(rank);
        progress
    }

    /// Faults and serves; returns the messages until the thread continues, and in total.
    pub(crate) fn fault(&mut self, rank: Rank, minipage: Minipage, access: Access) -> (u64, u64) {
        self.clear();
        if self.start(rank, 0, minipage, access) == Progress::Done {
            return (0, 0);
        }
        self.settle();
        let (outcome, delivered) = self.outcome(rank, 0).expect("the fault was served");
        assert_eq!(outcome, Outcome::Served(access));
        (delivered, self.delivered)
    }

    /// The last outcome of a thread, and the messages delivered by then.
    pub(crate) fn outcome(&self, of: Rank, which: Thread) -> Option<(Outcome, u64)> {
        self.log.iter().rev().find_map(|happened| match happened.action {
            Action::Resume { thread, outcome } if (happened.rank, thread) == (of, which) => {
                Some((outcome, happened.delivered))
            }
            _ => None,
        })
    }

    /// A rank's actions, in order.
    pub(crate) fn actions(&self, rank: Rank) -> Vec<Action> {
        self.log.iter().filter(|happened| happened.rank == rank).map(|happened| happened.action).collect()
    }
}
