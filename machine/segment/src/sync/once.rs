//! Something that one thread does, and all others wait for.

use crate::sync::bell::Bell;
use crate::sync::error::{Object, SyncError};
use crate::sync::threads::{FREED, NUMBER};
use crate::sync::words::{Rounds, Waits, Word};

/// The state when it is done. Before: the number of the thread that does it, or 0.
const DONE: u32 = 1 << 31;

/// It, with those who use it. All words zero: not done.
#[derive(Debug)]
pub(crate) struct Once<'a, S: Waits> {
    pub(crate) state: &'a S::Word,
    pub(crate) bell: Bell<'a, S>,
    pub(crate) object: Object,
}

impl<S: Waits> Once<'_, S> {
    /// Whether it is done.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state.load() == DONE
    }

    /// Begins it, or waits until it is done. True: the caller does it, and then calls [`end`](Self::end).
    #[inline]
    pub(crate) fn begin(&self, me: u32) -> Result<bool, SyncError> {
        if self.is_done() { Ok(false) } else { self.begin_slowly(me) }
    }

    #[cold]
    fn begin_slowly(&self, me: u32) -> Result<bool, SyncError> {
        let mut rounds = Rounds::default();
        loop {
            rounds.next(self.bell.waits)?;
            let seen = match self.state.replace(0, me) {
                Ok(()) => return Ok(true),
                Err(DONE) => return Ok(false),
                Err(FREED) => return Err(SyncError::Freed(self.object)),
                Err(seen) if seen == me => return Err(SyncError::Held(self.object)),
                Err(seen) if seen & !NUMBER != 0 => return Err(SyncError::Damaged(self.object)),
                Err(seen) => seen,
            };
            let mut look = || match self.bell.waits.ended(seen) {
                Some(who) if self.state.load() == seen => Err(SyncError::HolderEnded { object: self.object, who }),
                _ => Ok(()),
            };
            self.bell.wait_until(|| self.state.load_in_order() != seen, None, &mut look)?;
        }
    }

    /// Ends what this thread began: done, or to be begun again.
    pub(crate) fn end(&self, me: u32, is_done: bool) -> Result<(), SyncError> {
        if let Err(seen) = self.state.replace(me, if is_done { DONE } else { 0 }) {
            let holder = (seen & !NUMBER == 0 && seen != 0).then(|| self.bell.waits.who(seen));
            return Err(SyncError::NotHeld { object: self.object, holder });
        }
        self.bell.ring();
        Ok(())
    }
}
