//! The job's locks and barriers by number, and its broadcast.
//!
//! A barrier counts, in a row of each rank, the threads of the rank that have arrived, and in a line of its own the ranks all of whose
//! threads have. A row's count says by its highest bit to which of two successive rounds it belongs, so that nobody clears it. The
//! broadcast is one more barrier, of one thread a rank.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::layout::{MAX_RANKS, NUMBERED_AT, NUMBERED_BYTES};
use crate::sync::error::{Object, SyncError};
use crate::sync::mutex::{Mutex, MutexWords};
use crate::sync::objects::Objects;
use crate::sync::round::{Round, parity};
use crate::sync::words::Rounds;

/// Locks of a job.
pub const LOCKS: u32 = 4096;
/// Barriers of a job.
pub const BARRIERS: u32 = 256;
/// The broadcast, as a barrier.
const BROADCAST: u32 = BARRIERS;

const LINE_BYTES: u64 = 64;
const BARRIERS_AT: u64 = NUMBERED_AT + LOCKS as u64 * LINE_BYTES;
/// Words in a barrier's line.
const ROUND: u64 = 0;
const ARRIVED: u64 = 4;
/// The root that the ranks in a broadcast name, plus one; 0 before the first.
const ROOT: u64 = 8;
/// What the root says, for two successive rounds.
const VALUES: u64 = 16;

const ROWS_AT: u64 = BARRIERS_AT + (BARRIERS as u64 + 1) * LINE_BYTES;
/// First word: the threads that take part. Then a count of 16 bits for each barrier.
const ROW_BYTES: u64 = (4 + 2 * (BARRIERS as u64 + 1)).next_multiple_of(LINE_BYTES);
const _: () = assert!(ROWS_AT + MAX_RANKS as u64 * ROW_BYTES <= NUMBERED_AT + NUMBERED_BYTES);

/// Most threads of a rank in barriers.
const MOST: u32 = (1 << 15) - 1;
/// In the number of participants: it is being changed.
const CHANGING: u32 = 1 << 31;

/// A barrier where threads wait, or the broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitedBarrier {
    /// Number of the barrier; `None`: a broadcast.
    pub barrier: Option<u32>,
    /// For each rank the threads that have arrived, and how many must.
    pub ranks: Vec<(u32, u32)>,
}

impl WaitedBarrier {
    /// Ranks that have not arrived with all their threads.
    pub fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranks.len()).filter(|&rank| self.ranks[rank].0 < self.ranks[rank].1)
    }
}

impl fmt::Display for WaitedBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        match self.barrier {
            Some(barrier) => write!(f, "barrier {barrier}: ")?,
            None => f.write_str("a broadcast: ")?,
        }
        let missing = self.missing().count();
        write!(f, "{} of {} ranks have come, not", self.ranks.len() - missing, self.ranks.len())?;
        for rank in self.missing().take(SHOWN) {
            write!(f, " {rank}")?;
            match self.ranks[rank] {
                (0, _) => {}
                (arrived, all) => write!(f, " ({arrived} of {all} threads)")?,
            }
        }
        if missing > SHOWN { write!(f, " and {} more", missing - SHOWN) } else { Ok(()) }
    }
}

impl Objects {
    #[inline]
    fn numbered_lock(&self, lock: u32) -> Result<Mutex<'_, Self>, SyncError> {
        if lock >= LOCKS {
            return Err(SyncError::UnknownLock { lock, locks: LOCKS });
        }
        let words = self.segment().words32::<8>(NUMBERED_AT + u64::from(lock) * LINE_BYTES);
        let [state, turn, calls, rank, pid, tid, ..] = words.expect("what is in use stays in use");
        let words = MutexWords { state, turn, calls, lost: [rank, pid, tid] };
        Ok(Mutex { waits: self, words, object: Object::Lock(lock) })
    }

    /// Takes a numbered lock. Whoever comes when it is free takes it, except that a thread that has waited for more than a millisecond is
    /// served next.
    ///
    /// # Errors
    /// An unknown number; a lock that this thread holds, or whose holder has ended; the memory is at its end.
    #[inline]
    pub fn lock(&self, lock: u32) -> Result<(), SyncError> {
        self.numbered_lock(lock)?.lock(self.threads().me()?)
    }

    /// Gives a numbered lock back.
    ///
    /// # Errors
    /// An unknown number; a lock that this thread does not hold.
    #[inline]
    pub fn unlock(&self, lock: u32) -> Result<(), SyncError> {
        self.numbered_lock(lock)?.unlock(self.threads().me()?)
    }

    /// Waits until all participants of all ranks have arrived at a numbered barrier.
    ///
    /// # Errors
    /// An unknown number; more threads of this rank than take part; the memory is at its end.
    #[inline]
    pub fn barrier(&self, barrier: u32) -> Result<(), SyncError> {
        if barrier >= BARRIERS {
            return Err(SyncError::UnknownBarrier { barrier, barriers: BARRIERS });
        }
        self.meet(barrier, || {})
    }

    /// Gives `value` of rank `root` to all ranks. One thread of each rank calls it, in the same order in all ranks.
    ///
    /// # Errors
    /// A root outside the job, or another than the others name; another thread of this rank is in it; the memory is at its end.
    pub fn broadcast(&self, root: u32, value: u64) -> Result<u64, SyncError> {
        let ranks = self.ranks();
        if root >= ranks {
            return Err(SyncError::UnknownRank { rank: root, ranks });
        }
        let now = self.round(BROADCAST).now();
        if self.arrived(self.rank(), BROADCAST, now) > 0 {
            return Err(SyncError::BroadcastBusy);
        }
        let named = self.barrier_word(BROADCAST, ROOT);
        let named = named.compare_exchange(0, root + 1, Ordering::AcqRel, Ordering::Acquire);
        if let Err(others) = named
            && others != root + 1
        {
            return Err(SyncError::OtherRoot { root, others: others.wrapping_sub(1) });
        }
        let shown = self.value_word(parity(now));
        let say = || {
            if root == self.rank() {
                shown.store(value, Ordering::Relaxed);
            }
        };
        self.meet(BROADCAST, say)?;
        Ok(shown.load(Ordering::Relaxed))
    }

    /// Sets how many threads of this rank take part in barriers.
    ///
    /// # Errors
    /// None or too many, or threads of this rank wait in a barrier.
    pub fn set_participants(&self, participants: u32) -> Result<(), SyncError> {
        let refused = SyncError::BadParticipants { participants, most: MOST };
        let head = self.row_word(self.rank(), 0);
        let before = head.load(Ordering::Acquire);
        let is_right = (1..=MOST).contains(&participants) && before & CHANGING == 0;
        if !is_right || head.compare_exchange(before, CHANGING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return Err(refused);
        }
        // Whoever arrives from now on waits for the number; whoever has arrived before is seen.
        let is_idle = (0..BARRIERS).all(|barrier| self.arrived(self.rank(), barrier, self.round(barrier).now()) == 0);
        head.store(if is_idle { participants } else { before }, Ordering::SeqCst);
        if is_idle { Ok(()) } else { Err(refused) }
    }

    /// The barriers where threads wait, and who is missing.
    #[must_use]
    pub fn waited_barriers(&self) -> Vec<WaitedBarrier> {
        let of = |barrier: u32| {
            let now = self.round(barrier).now();
            let of_rank = |rank| {
                let all = if barrier == BROADCAST { 1 } else { self.row_word(rank, 0).load(Ordering::Relaxed) & MOST };
                (self.arrived(rank, barrier, now), all)
            };
            let ranks: Vec<_> = (0..self.ranks()).map(of_rank).collect();
            let is_waited_for = ranks.iter().any(|rank| rank.0 > 0);
            is_waited_for.then_some(WaitedBarrier { barrier: (barrier != BROADCAST).then_some(barrier), ranks })
        };
        (0..=BROADCAST).filter_map(of).collect()
    }

    /// Arrives, and waits for the others. `say` is done before.
    #[inline]
    fn meet(&self, barrier: u32, say: impl FnOnce()) -> Result<(), SyncError> {
        let round = self.round(barrier);
        let (now, is_last_thread) = self.arrive(barrier, say)?;
        if is_last_thread {
            let arrived = self.barrier_word(barrier, ARRIVED);
            if arrived.fetch_add(1, Ordering::AcqRel).wrapping_add(1) >= self.ranks() {
                arrived.store(0, Ordering::Relaxed);
                if barrier == BROADCAST {
                    self.barrier_word(BROADCAST, ROOT).store(0, Ordering::Relaxed);
                }
                round.end(now);
                return Ok(());
            }
        }
        round.wait(now, None).map(drop)
    }

    /// Counts the calling thread in the row of its rank: the round, and whether it is the rank's last.
    #[inline]
    fn arrive(&self, barrier: u32, say: impl FnOnce()) -> Result<(u32, bool), SyncError> {
        let round = self.round(barrier);
        let (word, shift) = self.count_word(self.rank(), barrier);
        let mut rounds = Rounds::default();
        let mut say = Some(say);
        loop {
            rounds.next(self)?;
            let now = round.now();
            let seen = word.load(Ordering::Acquire);
            if round.now() != now {
                continue;
            }
            let before = count(seen >> shift, now);
            let participants = self.participants(barrier)?;
            if before >= participants {
                return Err(self.full(barrier, participants));
            }
            if let Some(say) = say.take() {
                say();
            }
            let half = (parity(now) << 15 | (before + 1)) << shift;
            let next = seen & !(0xffff << shift) | half;
            if word.compare_exchange(seen, next, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                continue;
            }
            // It may have changed until now; from now on it cannot.
            let participants = self.participants(barrier)?;
            if before + 1 > participants {
                word.fetch_sub(1 << shift, Ordering::AcqRel);
                return Err(self.full(barrier, participants));
            }
            return Ok((now, before + 1 == participants));
        }
    }

    #[cold]
    fn full(&self, barrier: u32, participants: u32) -> SyncError {
        match barrier {
            BROADCAST => SyncError::BroadcastBusy,
            _ => SyncError::BarrierFull { barrier: Object::Barrier(barrier), rank: self.rank(), participants },
        }
    }

    /// Threads of this rank that take part.
    #[inline]
    fn participants(&self, barrier: u32) -> Result<u32, SyncError> {
        if barrier == BROADCAST {
            return Ok(1);
        }
        let head = self.row_word(self.rank(), 0);
        let mut rounds = Rounds::default();
        loop {
            let participants = head.load(Ordering::SeqCst);
            if participants & CHANGING == 0 {
                return Ok(participants & MOST);
            }
            rounds.next(self)?;
            std::thread::yield_now();
        }
    }

    pub(crate) fn announce(&self, participants: u32) -> Result<(), SyncError> {
        if !(1..=MOST).contains(&participants) {
            return Err(SyncError::BadParticipants { participants, most: MOST });
        }
        self.row_word(self.rank(), 0).store(participants, Ordering::SeqCst);
        Ok(())
    }

    /// Threads of a rank that have arrived in this round.
    fn arrived(&self, rank: u32, barrier: u32, now: u32) -> u32 {
        let (word, shift) = self.count_word(rank, barrier);
        count(word.load(Ordering::SeqCst) >> shift, now)
    }

    #[inline]
    fn round(&self, barrier: u32) -> Round<'_, Self> {
        Round { waits: self, word: self.barrier_word(barrier, ROUND) }
    }

    #[inline]
    fn barrier_word(&self, barrier: u32, word: u64) -> &AtomicU32 {
        self.table_word(BARRIERS_AT + u64::from(barrier) * LINE_BYTES + word)
    }

    fn value_word(&self, nth: u32) -> &AtomicU64 {
        let at = BARRIERS_AT + u64::from(BROADCAST) * LINE_BYTES + VALUES + 8 * u64::from(nth);
        self.table_word64(at)
    }

    #[inline]
    fn row_word(&self, rank: u32, word: u64) -> &AtomicU32 {
        self.table_word(ROWS_AT + u64::from(rank) * ROW_BYTES + word)
    }

    /// The word of a count, and where it lies there.
    #[inline]
    fn count_word(&self, rank: u32, barrier: u32) -> (&AtomicU32, u32) {
        (self.row_word(rank, 4 + u64::from(barrier / 2) * 4), barrier % 2 * 16)
    }
}

/// What a count says of this round.
fn count(half: u32, now: u32) -> u32 {
    if half >> 15 & 1 == parity(now) { half & MOST } else { 0 }
}
