//! The lazily consistent shared memory: pages and diffs by NICs alone, and ranks that go.

use std::collections::VecDeque;

use mapwire_dsm::{Access, Config, Dsm, Outcome, Progress, Protocol};
use mapwire_node::{SharedEnd, SharedMemory};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

const RANKS: u16 = 3;

/// Ranks whose messages and fetches are delivered one by one. Bytes are not carried out.
struct Ranks {
    ranks: Vec<SharedMemory>,
    under_way: VecDeque<(usize, usize, Vec<u8>)>,
    fetches: VecDeque<(usize, u64)>,
}

impl Ranks {
    fn new() -> Self {
        let rank = |rank| {
            let config = Config { protocol: Protocol::Hlrc, home_moves_after: 1, ..Config::new(rank, RANKS, 2, 16, 1) };
            let mut memory = SharedMemory::new(Dsm::new(config).unwrap(), 1);
            (0..RANKS).for_each(|other| memory.hear(Endpoint::first_of(NodeId(other))));
            memory
        };
        Ranks { ranks: (0..RANKS).map(rank).collect(), under_way: VecDeque::new(), fetches: VecDeque::new() }
    }

    fn drain(&mut self, rank: usize) {
        while let Some(action) = self.ranks[rank].poll_action() {
            match action {
                Action::Send { to, message } | Action::StoreChanges { to, message, .. } => {
                    self.under_way.push_back((rank, usize::from(to.node.0), message.to_vec()));
                }
                Action::Fetch { region, .. } => self.fetches.push_back((rank, region.offset)),
                _ => {}
            }
        }
    }

    /// Whether anything was under way.
    fn step(&mut self) -> bool {
        if let Some((rank, offset)) = self.fetches.pop_front() {
            self.ranks[rank].handle_fetched(offset);
            self.drain(rank);
        } else if let Some((from, to, message)) = self.under_way.pop_front() {
            let from = Endpoint::first_of(NodeId(from as u16));
            self.ranks[to].handle_message(0, from, &message).unwrap();
            self.drain(to);
        } else {
            return false;
        }
        true
    }

    /// Steps until the operation of a rank's first thread is over, at most so many in all; `None` if it waits then.
    fn end(&mut self, rank: usize, left: &mut u32) -> Option<Outcome> {
        loop {
            self.drain(rank);
            if let Some(outcome) = self.ranks[rank].take_outcome(0) {
                return outcome.ok();
            }
            *left = left.checked_sub(1)?;
            assert!(self.step(), "rank {rank} waits for nothing");
        }
    }

    /// Ranks write a page in turn under a lock, read what others wrote, and meet. The rank that waited when no more steps were left.
    fn run(&mut self, mut left: u32) -> Option<usize> {
        self.ranks[0].dsm_mut().alloc(0, 100).unwrap();
        let Some(Outcome::Allocated(address)) = self.end(0, &mut left) else { return Some(0) };
        for rank in [0, 1, 2, 1, 1, 0] {
            let pending = |progress| progress == Progress::Pending;
            if pending(self.ranks[rank].dsm_mut().lock(0, 1).unwrap()) && self.end(rank, &mut left).is_none() {
                return Some(rank);
            }
            for access in [Access::Read, Access::Write] {
                let page = address.offset_bytes / 4096;
                let began = self.ranks[rank].dsm_mut().handle_fault(0, 0, 0, page, access).unwrap();
                if pending(began) && self.end(rank, &mut left).is_none() {
                    return Some(rank);
                }
            }
            self.ranks[rank].dsm_mut().unlock(0, 1).unwrap();
            self.drain(rank);
        }
        for rank in 0..3 {
            self.ranks[rank].dsm_mut().barrier(0, 1).unwrap();
            self.drain(rank);
        }
        (0..3).find(|&rank| self.end(rank, &mut left).is_none())
    }
}

#[test]
fn whoever_goes_at_whichever_step_all_others_end_with_its_name() {
    let steps = (0..).find(|&steps| Ranks::new().run(steps).is_none()).unwrap();
    assert!(steps > 50, "{steps} steps");
    for step in 0..steps {
        for gone in 0..3 {
            let mut job = Ranks::new();
            let waits = job.run(step).unwrap();
            let end = SharedEnd::Gone(NodeId(gone));
            for rank in (0..3).filter(|&rank| rank != usize::from(gone)) {
                job.ranks[rank].handle_peer_gone(0, NodeId(gone));
                let outcome = job.ranks[rank].take_outcome(0);
                assert!(outcome == Some(Err(end)) || rank != waits, "rank {rank} at step {step}: {outcome:?}");
                assert_eq!(job.ranks[rank].end(), Some(end));
                // What was under way, a fetch from the one that is gone among it, changes nothing.
                job.ranks[rank].handle_lost(Endpoint::first_of(NodeId(gone)));
                job.drain(rank);
            }
            while job.step() {}
            assert!((0..3).filter(|&rank| rank != usize::from(gone)).all(|rank| job.ranks[rank].end() == Some(end)));
        }
    }
}
