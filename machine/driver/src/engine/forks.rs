//! Forked children: nothing of a node works in another process than the one that joined.
//!
//! A child has a copy of all that its parent keeps in memory, of a moment at which another thread may have held the driver, and it shares with
//! it the rings, sockets and sessions of the job. What it sent would be taken for its parent's, under counters that the parent uses again. So
//! every call looks here first, at a word that a fork wipes. Whoever takes the driver looks once more.

use core::sync::atomic::Ordering;

use mapwire_host::memory::MemoryError;
use mapwire_host::own_words::OwnWord;
use mapwire_host::processes::Forked;
use mapwire_transport::fabric::Fabric;

use super::Engine;
use super::ending::exit_lost;

/// The word of the process that joins.
pub(super) fn home() -> Result<OwnWord, MemoryError> {
    let home = OwnWord::several(1)?.remove(0);
    home.store(1, Ordering::Relaxed);
    Ok(home)
}

impl<F: Fabric> Engine<F> {
    /// Whether the calling process is the one that joined, and not a forked child of it. One load.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.home.load(Ordering::Relaxed) != 0
    }

    /// Refuses a call in a forked child.
    ///
    /// # Errors
    /// [`Forked`].
    #[inline]
    pub fn check_here(&self) -> Result<(), Forked> {
        if self.is_here() { Ok(()) } else { Err(Forked) }
    }

    /// The driver was to be taken in a forked child: a call of this library that did not look. The child ends before it does harm.
    #[cold]
    pub(super) fn end_child(&self) -> ! {
        self.say(format_args!("{Forked}"));
        exit_lost()
    }
}
