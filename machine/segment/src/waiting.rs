//! Waits for words of the segment: they spin, then sleep, and end when they can no longer succeed.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use mapwire_host::waiting::{futex_wait, now_ns};

use crate::error::SegmentError;
use crate::segment::Segment;

/// Longest sleep before a thread looks whether it waits in vain.
pub const NAP: Duration = Duration::from_millis(100);

/// Knows whether the job goes on.
pub trait Vigil: fmt::Debug + Send + Sync {
    /// A rank that has died, or has left in disorder: no wait can rely on it any more. Called in any process that maps the segment, forked
    /// children too: it takes no lock.
    fn gone(&self) -> Option<u32>;

    /// A thread has slept for so long in one wait, and sleeps on. Called after each nap.
    fn handle_long_wait(&self, _since: Duration) {}
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The word is not as it was.
    Changed,
    /// The deadline has passed.
    TimedOut,
}

impl Segment {
    /// Waits while `word` is `unchanged`: spins for as long as a wake-up takes, then sleeps on the word. Whoever changes it calls
    /// [`futex_wake`](mapwire_host::waiting::futex_wake) if somebody may sleep. `deadline_ns` is a time of
    /// [`now_ns`]. After each nap it calls `look`, which may end the wait by an error.
    ///
    /// # Errors
    /// [`SegmentError::RankGone`], and what `look` says.
    pub fn wait_while(
        &self,
        word: &AtomicU32,
        unchanged: u32,
        deadline_ns: Option<u64>,
        mut look: impl FnMut() -> Result<(), SegmentError>,
    ) -> Result<Waited, SegmentError> {
        if self.spin_until(|| word.load(Ordering::Acquire) != unchanged) {
            return Ok(Waited::Changed);
        }
        self.sleep_while(word, unchanged, deadline_ns, &mut look)
    }

    /// Spins for as long as a wake-up takes, if that is worth while. False: it did not come true.
    #[inline]
    pub(crate) fn spin_until(&self, mut is_true: impl FnMut() -> bool) -> bool {
        let patience = self.patience();
        let mut spinner = patience.begin();
        loop {
            if is_true() {
                patience.succeeded();
                return true;
            }
            if !spinner.spin() {
                break;
            }
        }
        if spinner.spins() {
            patience.failed();
        }
        false
    }

    /// As [`wait_while`](Self::wait_while), without spinning.
    pub(crate) fn sleep_while<E: From<SegmentError>>(
        &self,
        word: &AtomicU32,
        unchanged: u32,
        deadline_ns: Option<u64>,
        look: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Waited, E> {
        let mut slept = Duration::ZERO;
        loop {
            let left = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns()));
            let nap = left.map_or(NAP, |left| NAP.min(Duration::from_nanos(left)));
            futex_wait(word, unchanged, Some(nap));
            if word.load(Ordering::Acquire) != unchanged {
                return Ok(Waited::Changed);
            }
            if let Err(gone) = self.check() {
                // Whoever left may have ended this wait before it did.
                return if word.load(Ordering::Acquire) == unchanged { Err(gone.into()) } else { Ok(Waited::Changed) };
            }
            look()?;
            slept += nap;
            self.vigil().handle_long_wait(slept);
            if left.is_some_and(|left| left <= nap.as_nanos() as u64) {
                return Ok(Waited::TimedOut);
            }
        }
    }
}
