//! What ranks would do by futexes alone, in memory that all have mapped; and the ring of signals beside it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use mapwire::{Export, Import, Node, Rights, Shared};
use mapwire_host::waiting::{futex_wait, futex_wake};

use crate::BenchError;
use crate::words::Words;

/// A cache line for each word, each rank's own from here on.
const LINE: usize = 64;
const ARRIVED: usize = 0;
const ROUND: usize = LINE;
const TICKET: usize = 2 * LINE;
const STAMP: usize = 3 * LINE;
const SAID: usize = 4 * LINE;
const COUNT: usize = 5 * LINE;
const SLOTS: usize = 16 * LINE;
/// Where the grants of the lock lie, behind the slots of 64 ranks.
const GRANTS: usize = SLOTS + 64 * LINE;
const BYTES: usize = GRANTS + 64 * LINE;
/// Pairs that rank 1 may say to rank 0, behind all that.
const PAIRS: usize = 128;

/// Words to sleep on.
pub(super) struct Futexes(pub(super) Words);

impl Futexes {
    /// Gives `turn` to a rank.
    pub(super) fn pass(&self, rank: usize, turn: u32) {
        self.0.wake(SLOTS + rank * LINE, turn);
    }

    /// Waits until this rank is given `turn`.
    pub(super) fn wait(&self, rank: usize, turn: u32) {
        self.0.sleep_until(SLOTS + rank * LINE, turn);
    }

    pub(super) fn barrier(&self, ranks: usize) {
        let (arrived, round) = (self.0.futex(ARRIVED), self.0.futex(ROUND));
        let mine = round.load(Acquire);
        if arrived.fetch_add(1, AcqRel) as usize + 1 == ranks {
            arrived.store(0, Release);
            round.fetch_add(1, AcqRel);
            futex_wake(round, u32::MAX);
        } else {
            while round.load(Acquire) == mine {
                futex_wait(round, mine, None);
            }
        }
    }

    /// Takes a lock in the order of asking, and gives it to the next.
    pub(super) fn locked(&self, ranks: usize) {
        let grant = |ticket: u32| GRANTS + ticket as usize % ranks * LINE;
        let ticket = self.0.futex(TICKET).fetch_add(1, AcqRel);
        // The first ticket is granted by the memory's zeros.
        self.0.sleep_until(grant(ticket), ticket);
        let next = ticket.wrapping_add(1);
        self.0.wake(grant(next), next);
    }

    pub(super) fn count(&self, turns: u32) {
        self.0.futex(COUNT).fetch_add(turns, AcqRel);
    }

    pub(super) fn counted(&self) -> u32 {
        self.0.futex(COUNT).load(Acquire)
    }

    pub(super) fn stamp(&self, now_ns: u64) {
        self.0.store(STAMP, now_ns);
    }

    pub(super) fn stamped(&self) -> u64 {
        self.0.load(STAMP)
    }

    /// What rank 1 has measured, told to rank 0. Collective of two ranks.
    pub(super) fn gather(
        &self,
        node: &Node,
        shared: &Shared,
        pairs: &[(f64, f64)],
        percent: f64,
    ) -> Result<(Vec<(f64, f64)>, f64), BenchError> {
        let count = pairs.len().min(PAIRS);
        if node.rank() == 1 {
            self.0.store(SAID, percent.to_bits());
            for (index, (value, raw)) in pairs[..count].iter().enumerate() {
                self.0.store(BYTES + 16 * index, value.to_bits());
                self.0.store(BYTES + 16 * index + 8, raw.to_bits());
            }
        }
        shared.barrier()?;
        let said = |offset| f64::from_bits(self.0.load(offset));
        let pair = |index| (said(BYTES + 16 * index), said(BYTES + 16 * index + 8));
        Ok(((0..count).map(pair).collect(), said(SAID)))
    }
}

/// Signals from each rank to the next.
pub(super) struct Ring {
    inbox: Export,
    next: Import,
}

impl Ring {
    /// Joins the ranks. Collective.
    pub(super) fn new(node: &Node, ring_path: bool) -> Result<Self, BenchError> {
        let name = if ring_path { "bench.hop.ring" } else { "bench.hop" };
        let buffer = node.alloc(4096)?;
        let export = node.export_buffer(&buffer).name(name);
        let export = if ring_path { export.ring_only() } else { export };
        let inbox = export.start()?;
        let next = node.import((node.rank() + 1) % node.size(), name);
        let next = next.rights(Rights::ALL).start()?;
        Ok(Self { inbox, next })
    }

    pub(super) fn pass(&self, turn: u64) -> Result<(), BenchError> {
        Ok(self.next.put_signal(&[], 0, 0, turn)?)
    }

    pub(super) fn wait(&self, turn: u64) -> Result<(), BenchError> {
        self.inbox.wait_signal(0, turn)?;
        Ok(())
    }
}
