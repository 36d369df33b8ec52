//! A barrier of a number of threads, of any that use it: there may be more of them than it counts.

use core::sync::atomic::Ordering;

use crate::sync::bell::Bell;
use crate::sync::deque::Word64;
use crate::sync::error::{Object, SyncError};
use crate::sync::threads::FREED;
use crate::sync::words::{Rounds, Waits, Word};

/// Where the round begins in a barrier's state; the lower bits count those who have arrived in it.
const ROUND: u32 = 32;

/// A barrier with those who use it. It has a count of threads before its first use.
#[derive(Debug)]
pub(crate) struct Barrier<'a, S: Waits, W> {
    /// The round and who has arrived, in one word: who arrives does so in the round that it waits for.
    pub(crate) state: &'a W,
    pub(crate) bell: Bell<'a, S>,
    /// Threads that meet.
    pub(crate) count: &'a S::Word,
    pub(crate) object: Object,
}

impl<S: Waits, W: Word64> Barrier<'_, S, W> {
    /// Waits until all have arrived. True in one of them, the last.
    #[inline]
    pub(crate) fn wait(&self) -> Result<bool, SyncError> {
        let mut rounds = Rounds::default();
        let round = loop {
            let count = checked(self.count.load(), self.object)?;
            let seen = self.state.load(Ordering::Acquire);
            let (round, arrived) = (seen >> ROUND, seen as u32);
            let is_last = arrived.saturating_add(1) >= count;
            let next = if is_last { (round + 1) << ROUND } else { seen + 1 };
            if self.state.replace(seen, next) {
                if is_last {
                    self.bell.ring();
                    return Ok(true);
                }
                break round;
            }
            rounds.next(self.bell.waits)?;
        };
        let has_ended = || self.state.load(Ordering::SeqCst) >> ROUND != round;
        self.bell.wait_until(has_ended, None, &mut || Ok(()))?;
        Ok(false)
    }
}

/// A count of threads that meet.
#[inline]
pub(crate) fn checked(count: u32, object: Object) -> Result<u32, SyncError> {
    match count {
        0 => Err(SyncError::Damaged(object)),
        FREED => Err(SyncError::Freed(object)),
        _ => Ok(count),
    }
}
