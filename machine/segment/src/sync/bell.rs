//! Waits for a condition that others make true: a word that they change only if somebody sleeps on it.

use crate::sync::error::SyncError;
use crate::sync::words::{Rounds, Waits, Word};
use crate::waiting::Waited;

/// In the word: somebody sleeps on it.
const SLEEPERS: u32 = 1;
const STEP: u32 = 2;

/// A word that wakes those who wait for something else.
#[derive(Debug)]
pub(crate) struct Bell<'a, S: Waits> {
    pub(crate) waits: &'a S,
    pub(crate) word: &'a S::Word,
}

impl<S: Waits> Bell<'_, S> {
    /// Wakes all that sleep. The caller has changed something before by an exchange.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.word.load_in_order() & SLEEPERS != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let seen = self.word.load();
        // If it has changed, another has just rung, after this thread's change.
        if seen & SLEEPERS != 0 && self.word.replace(seen, (seen & !SLEEPERS).wrapping_add(STEP)).is_ok() {
            self.waits.wake(self.word, u32::MAX);
        }
    }

    /// Waits until `is_true`, which loads in the order of exchanges; false: not by `deadline_ns`. After each nap it looks.
    #[inline]
    pub(crate) fn wait_until(
        &self,
        mut is_true: impl FnMut() -> bool,
        deadline_ns: Option<u64>,
        look: &mut dyn FnMut() -> Result<(), SyncError>,
    ) -> Result<bool, SyncError> {
        if self.waits.spin(&mut is_true) { Ok(true) } else { self.sleep_until(&mut is_true, deadline_ns, look) }
    }

    #[cold]
    fn sleep_until(
        &self,
        is_true: &mut dyn FnMut() -> bool,
        deadline_ns: Option<u64>,
        look: &mut dyn FnMut() -> Result<(), SyncError>,
    ) -> Result<bool, SyncError> {
        let mut rounds = Rounds::default();
        loop {
            rounds.next(self.waits)?;
            let seen = self.word.load();
            if seen & SLEEPERS == 0 && self.word.replace(seen, seen | SLEEPERS).is_err() {
                continue;
            }
            // Whoever makes it true after this look sees that somebody sleeps.
            if is_true() {
                return Ok(true);
            }
            let waited = self.waits.sleep(self.word, seen | SLEEPERS, deadline_ns, look)?;
            if waited == Waited::TimedOut {
                return Ok(is_true());
            }
        }
    }
}
