//! Buffers into which pages are fetched that are then copied into a region.

use rustix::io::Errno;

use super::frames::Frames;

/// Buffers of a pager, as bits of a word.
const BUFFERS: usize = 8;

/// A few buffers of one window each.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Frames,
    pages: usize,
}

impl Buffers {
    /// Buffers of `pages` pages.
    pub(super) fn new(pages: usize) -> Result<Self, Errno> {
        Ok(Self { memory: Frames::new(BUFFERS * pages)?, pages })
    }

    /// The set of all.
    pub(super) fn all() -> u64 {
        (1 << BUFFERS) - 1
    }

    /// The address of a page of a buffer.
    pub(super) fn address(&self, buffer: u32, page: usize) -> usize {
        self.memory.address(buffer as usize * self.pages + page)
    }
}
