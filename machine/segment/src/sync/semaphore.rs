//! A counting semaphore.

use crate::sync::error::{Object, SyncError};
use crate::sync::threads::FREED;
use crate::sync::words::{Rounds, Waits, Word};
use crate::waiting::Waited;

/// Highest value of a semaphore.
pub const SEMAPHORE_MAX: u32 = i32::MAX as u32;

/// A semaphore with those who use it. All words zero: its value is 0.
#[derive(Debug)]
pub(crate) struct Semaphore<'a, S: Waits> {
    pub(crate) waits: &'a S,
    pub(crate) value: &'a S::Word,
    /// At least as many as wait: threads that died while they waited are counted still.
    pub(crate) waiters: &'a S::Word,
    pub(crate) object: Object,
}

impl<S: Waits> Semaphore<'_, S> {
    /// The value now.
    pub(crate) fn value(&self) -> Result<u32, SyncError> {
        self.checked(self.value.load_in_order())
    }

    /// Takes one, if the value is not 0.
    #[inline]
    pub(crate) fn try_take(&self) -> Result<bool, SyncError> {
        let mut seen = self.value.load();
        let mut rounds = Rounds::default();
        while self.checked(seen)? > 0 {
            match self.value.replace(seen, seen - 1) {
                Ok(()) => return Ok(true),
                Err(other) => seen = other,
            }
            rounds.next(self.waits)?;
        }
        Ok(false)
    }

    /// Waits until the value is not 0, and takes one; false: not by `deadline_ns`.
    #[inline]
    pub(crate) fn take(&self, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        if self.try_take()? { Ok(true) } else { self.wait(deadline_ns) }
    }

    #[cold]
    fn wait(&self, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        if self.waits.spin(|| self.value.load() != 0) && self.try_take()? {
            return Ok(true);
        }
        self.waiters.add(1);
        let taken = self.sleep(deadline_ns);
        self.waiters.sub(1);
        taken
    }

    fn sleep(&self, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        let mut rounds = Rounds::default();
        loop {
            rounds.next(self.waits)?;
            let waited = self.waits.sleep(self.value, 0, deadline_ns, &mut || Ok(()))?;
            if self.try_take()? {
                return Ok(true);
            }
            if waited == Waited::TimedOut {
                return Ok(false);
            }
        }
    }

    /// Adds `count` to the value, and wakes as many that wait.
    #[inline]
    pub(crate) fn post(&self, count: u32) -> Result<(), SyncError> {
        let mut seen = self.value.load();
        let mut rounds = Rounds::default();
        loop {
            let next = self.checked(seen)?.saturating_add(count);
            if next > SEMAPHORE_MAX {
                return Err(SyncError::TooHigh { object: self.object, most: SEMAPHORE_MAX });
            }
            match self.value.replace(seen, next) {
                Ok(()) => break,
                Err(other) => seen = other,
            }
            rounds.next(self.waits)?;
        }
        if self.waiters.load_in_order() != 0 {
            self.waits.wake(self.value, count);
        }
        Ok(())
    }

    #[inline]
    fn checked(&self, value: u32) -> Result<u32, SyncError> {
        match value {
            FREED => Err(SyncError::Freed(self.object)),
            ..=SEMAPHORE_MAX => Ok(value),
            _ => Err(SyncError::Damaged(self.object)),
        }
    }
}
