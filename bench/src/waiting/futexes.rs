//! What ranks would do by futexes alone, in memory that all have mapped.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use mapwire_host::waiting::{futex_wait, futex_wake};

use crate::words::Words;

/// A cache line for each word, each rank's own from here on.
const LINE: usize = 64;
const ARRIVED: usize = 0;
const ROUND: usize = LINE;
const TICKET: usize = 2 * LINE;
const COUNT: usize = 3 * LINE;
const TURNS: usize = 16 * LINE;
/// Where the grants of the lock lie, behind the turns of 64 ranks.
const GRANTS: usize = TURNS + 64 * LINE;

/// Words to sleep on.
pub(super) struct Futexes(pub(super) Words);

impl Futexes {
    /// Gives `turn` to a rank.
    pub(super) fn pass(&self, rank: usize, turn: u32) {
        self.0.wake(TURNS + rank * LINE, turn);
    }

    /// Waits until this rank is given `turn`.
    pub(super) fn wait(&self, rank: usize, turn: u32) {
        self.0.sleep_until(TURNS + rank * LINE, turn);
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

    /// Adds to the turns of all ranks; gives how many there were.
    pub(super) fn count(&self, turns: u32) -> u32 {
        self.0.futex(COUNT).fetch_add(turns, AcqRel)
    }
}
