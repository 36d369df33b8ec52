//! A barrier of a number of threads.

use crate::sync::error::{Object, SyncError};
use crate::sync::round::Round;
use crate::sync::threads::FREED;
use crate::sync::words::{Waits, Word};

/// A barrier with those who use it. It has a count of threads before its first use.
#[derive(Debug)]
pub(crate) struct Barrier<'a, S: Waits> {
    pub(crate) round: Round<'a, S>,
    pub(crate) arrived: &'a S::Word,
    /// Threads that meet.
    pub(crate) count: &'a S::Word,
    pub(crate) object: Object,
}

impl<S: Waits> Barrier<'_, S> {
    /// The round now.
    pub(crate) fn now(&self) -> Result<u32, SyncError> {
        match self.count.load() {
            0 => Err(SyncError::Damaged(self.object)),
            FREED => Err(SyncError::Freed(self.object)),
            _ => Ok(self.round.now()),
        }
    }

    /// Waits until all have arrived. True in one of them, the last, which has done `end` before.
    #[inline]
    pub(crate) fn wait(&self, end: impl FnOnce()) -> Result<bool, SyncError> {
        let now = self.now()?;
        if self.arrived.add(1).wrapping_add(1) >= self.count.load() {
            end();
            self.arrived.store(0);
            self.round.end(now);
            return Ok(true);
        }
        self.round.wait(now, None)?;
        Ok(false)
    }
}
