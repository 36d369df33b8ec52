//! Arrays without reserved memory that record which of their pages were written to.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use mapwire_host::mapping::Mapping;
use mapwire_host::page::{PAGE_BYTES, round_to_pages};
use rustix::io::Errno;

/// Zeroed memory that takes RAM only where it is written to. A forked child has a copy.
#[derive(Debug)]
pub(crate) struct Sparse {
    memory: Mapping,
    /// A byte for each page of `memory`: not 0 if the page was written to. Reading the pages themselves would map them all.
    written: Mapping,
}

impl Sparse {
    /// Makes an array of at least `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        let bytes = round_to_pages(bytes.max(1)).ok_or(Errno::NOMEM)?;
        let flags = round_to_pages(bytes / PAGE_BYTES).ok_or(Errno::NOMEM)?;
        Ok(Self { memory: Mapping::sparse(bytes, None)?, written: Mapping::sparse(flags, None)? })
    }

    /// A word, for reading.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.memory.word64(offset)
    }

    /// A word, for writing.
    #[inline]
    pub(crate) fn word_mut(&self, offset: usize) -> &AtomicU64 {
        self.note(offset);
        self.memory.word64(offset)
    }

    /// A byte, for reading.
    #[inline]
    pub(crate) fn byte(&self, offset: usize) -> &AtomicU8 {
        self.memory.byte(offset)
    }

    /// A byte, for writing.
    #[inline]
    pub(crate) fn byte_mut(&self, offset: usize) -> &AtomicU8 {
        self.note(offset);
        self.memory.byte(offset)
    }

    #[inline]
    fn note(&self, offset: usize) {
        self.written.byte(offset / PAGE_BYTES).store(1, Ordering::Relaxed);
    }

    /// Byte ranges of the pages that were written to, in order.
    pub(crate) fn written(&self) -> impl Iterator<Item = Range<usize>> {
        let words = (0..self.written.bytes()).step_by(8);
        let words = words.filter(|&at| self.written.word64(at).load(Ordering::Relaxed) != 0);
        words
            .flat_map(|at| at..at + 8)
            .filter(|&page| self.written.byte(page).load(Ordering::Relaxed) != 0)
            .map(|page| page * PAGE_BYTES..(page + 1) * PAGE_BYTES)
    }

    #[cfg(test)]
    pub(crate) fn address_range(&self) -> Range<usize> {
        let start = self.memory.address();
        start..start + self.memory.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_that_were_written_to_are_known_and_no_others() {
        let sparse = Sparse::new(1 << 32).unwrap();
        assert_eq!(sparse.word(1 << 20).load(Ordering::Relaxed), 0);
        assert_eq!(sparse.written().count(), 0);
        sparse.byte_mut(5000).store(1, Ordering::Relaxed);
        sparse.word_mut((1 << 32) - 8).store(1, Ordering::Relaxed);
        let pages: Vec<_> = sparse.written().collect();
        assert_eq!(pages, [4096..8192, (1 << 32) - 4096..1 << 32]);
    }
}
