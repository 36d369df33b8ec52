//! Which process is calling: a forked child must not use what its parent's threads have taken for themselves.

use core::sync::atomic::{AtomicU32, Ordering};

use mapwire_host::memory::MemoryError;
use mapwire_host::own_words::OwnWord;

/// A number of the calling process, which differs from those of all processes whose memory it has inherited. Never 0.
#[derive(Debug)]
pub(super) struct Process(OwnWord);

impl Process {
    pub(super) fn new() -> Result<Self, MemoryError> {
        let word = OwnWord::several(1)?.pop();
        word.map(Self).ok_or(MemoryError::Zero)
    }

    #[inline(always)]
    pub(super) fn number(&self) -> u32 {
        match self.0.load(Ordering::Relaxed) {
            0 => self.give(),
            number => number,
        }
    }

    #[cold]
    fn give(&self) -> u32 {
        /// The last number given. A child inherits it, and continues from there.
        static LAST: AtomicU32 = AtomicU32::new(0);
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|other| other, |_| next)
    }
}
