//! Words and waits as the objects use them, so that models can put theirs in their place.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sync::error::{SyncError, Who};
use crate::waiting::Waited;

/// A word that threads share. Exchanges and additions are sequentially consistent.
pub(crate) trait Word {
    /// Acquires.
    fn load(&self) -> u32;
    /// In one order with all exchanges.
    fn load_in_order(&self) -> u32;
    /// Releases.
    fn store(&self, value: u32);
    fn swap(&self, value: u32) -> u32;
    /// Replaces `old` by `new`; otherwise gives what is there.
    fn replace(&self, old: u32, new: u32) -> Result<(), u32>;
    /// Gives the value before.
    fn add(&self, by: u32) -> u32;
    /// Gives the value before.
    fn sub(&self, by: u32) -> u32;
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self) -> u32 {
        self.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn load_in_order(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }

    #[inline(always)]
    fn store(&self, value: u32) {
        self.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn swap(&self, value: u32) -> u32 {
        self.swap(value, Ordering::SeqCst)
    }

    #[inline(always)]
    fn replace(&self, old: u32, new: u32) -> Result<(), u32> {
        self.compare_exchange(old, new, Ordering::SeqCst, Ordering::Acquire).map(drop)
    }

    #[inline(always)]
    fn add(&self, by: u32) -> u32 {
        self.fetch_add(by, Ordering::SeqCst)
    }

    #[inline(always)]
    fn sub(&self, by: u32) -> u32 {
        self.fetch_sub(by, Ordering::SeqCst)
    }
}

/// What a wait may do after each nap, besides looking at the job: an error ends it.
pub(crate) type Look<'a> = &'a mut dyn FnMut() -> Result<(), SyncError>;

/// How threads wait for words, and know each other.
pub(crate) trait Waits {
    type Word: Word;

    /// Looks for a while, if that is worth while. False: it did not come true.
    fn spin(&self, is_true: impl FnMut() -> bool) -> bool;

    /// Sleeps while `word` is `unchanged`, until it is woken, or until `deadline_ns`.
    fn sleep(
        &self,
        word: &Self::Word,
        unchanged: u32,
        deadline_ns: Option<u64>,
        look: Look<'_>,
    ) -> Result<Waited, SyncError>;

    /// Wakes so many sleepers of `word`.
    fn wake(&self, word: &Self::Word, sleepers: u32);

    fn now_ns(&self) -> u64;

    /// Whether waits still have a point.
    fn check(&self) -> Result<(), SyncError>;

    /// The thread of this number, if it has ended.
    fn ended(&self, thread: u32) -> Option<Who>;

    /// The thread of this number, as far as known.
    fn who(&self, thread: u32) -> Who;
}

/// Bounds loops that hostile words could keep going.
#[derive(Debug, Default)]
pub(crate) struct Rounds(u32);

impl Rounds {
    /// Counts one more round, and looks at the job from time to time.
    #[inline]
    pub(crate) fn next(&mut self, waits: &impl Waits) -> Result<(), SyncError> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(256) { waits.check() } else { Ok(()) }
    }
}
