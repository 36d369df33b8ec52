//! A condition variable: a count of signals, on which waiters sleep.

use crate::sync::error::{Object, SyncError};
use crate::sync::mutex::Mutex;
use crate::sync::threads::FREED;
use crate::sync::words::{Waits, Word};
use crate::waiting::Waited;

/// A condition variable with those who use it. All words zero: nobody waits.
#[derive(Debug)]
pub(crate) struct Condition<'a, S: Waits> {
    pub(crate) waits: &'a S,
    /// Counts signals.
    pub(crate) signals: &'a S::Word,
    /// At least as many as wait: threads that died while they waited are counted still.
    pub(crate) waiters: &'a S::Word,
    pub(crate) object: Object,
}

impl<S: Waits> Condition<'_, S> {
    /// Unlocks `mutex`, waits for a signal and locks again; false: no signal by `deadline_ns`. May return without one.
    pub(crate) fn wait(&self, mutex: &Mutex<'_, S>, me: u32, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        self.check()?;
        mutex.check_holder(me)?;
        self.waiters.add(1);
        // A signal after the mutex is unlocked changes this.
        let seen = self.signals.load_in_order();
        let waited = match mutex.unlock(me) {
            Ok(()) => self.waits.sleep(self.signals, seen, deadline_ns, &mut || self.check()),
            Err(error) => {
                self.waiters.sub(1);
                return Err(error);
            }
        };
        self.waiters.sub(1);
        mutex.lock(me)?;
        Ok(waited? == Waited::Changed)
    }

    /// Wakes one that waits, or all.
    #[inline]
    pub(crate) fn signal(&self, sleepers: u32) -> Result<(), SyncError> {
        self.check()?;
        if self.waiters.load_in_order() == 0 {
            // Whoever waits later was not there.
            return Ok(());
        }
        self.signals.add(1);
        self.waits.wake(self.signals, sleepers);
        Ok(())
    }

    fn check(&self) -> Result<(), SyncError> {
        let is_freed = self.signals.load() == FREED && self.waiters.load() == FREED;
        if is_freed { Err(SyncError::Freed(self.object)) } else { Ok(()) }
    }
}
