//! Rounds of a numbered barrier: who has arrived waits for the round to end.

use crate::sync::error::SyncError;
use crate::sync::words::{Rounds, Waits, Word};
use crate::waiting::Waited;

/// In the word of a round: somebody sleeps on it.
const SLEEPERS: u32 = 1;
/// From one round to the next.
const STEP: u32 = 2;

/// A word that counts rounds.
#[derive(Debug)]
pub(crate) struct Round<'a, S: Waits> {
    pub(crate) waits: &'a S,
    pub(crate) word: &'a S::Word,
}

impl<S: Waits> Round<'_, S> {
    /// The round now, an even number.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.word.load() & !SLEEPERS
    }

    /// Ends round `now`.
    #[inline]
    pub(crate) fn end(&self, now: u32) {
        if self.word.swap(now.wrapping_add(STEP)) & SLEEPERS != 0 {
            self.waits.wake(self.word, u32::MAX);
        }
    }

    /// Waits for the end of round `now`; false: not by `deadline_ns`.
    #[inline]
    pub(crate) fn wait(&self, now: u32, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        if self.waits.spin(|| self.now() != now) { Ok(true) } else { self.sleep(now, deadline_ns) }
    }

    #[cold]
    fn sleep(&self, now: u32, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        let mut rounds = Rounds::default();
        loop {
            rounds.next(self.waits)?;
            let seen = self.word.load();
            if seen & !SLEEPERS != now {
                return Ok(true);
            }
            if seen & SLEEPERS == 0 && self.word.replace(now, now | SLEEPERS).is_err() {
                continue;
            }
            let waited = self.waits.sleep(self.word, now | SLEEPERS, deadline_ns, &mut || Ok(()))?;
            if waited == Waited::TimedOut {
                return Ok(self.now() != now);
            }
        }
    }
}

/// 0 or 1, alternately.
pub(crate) fn parity(round: u32) -> u32 {
    (round / STEP) & 1
}
