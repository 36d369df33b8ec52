//! Buffers into which pages are fetched before they are copied into a region.

use rustix::io::Errno;

use super::frames::Frames;

/// Number of buffers of a pager, which are bits of a word.
const BUFFERS: usize = 8;

/// A few buffers of one window each.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Frames,
    pages: usize,
}

impl Buffers {
    /// Buffers of `pages` pages each.
    pub(super) fn new(pages: usize) -> Result<Self, Errno> {
        Ok(Self { memory: Frames::new(BUFFERS * pages)?, pages })
    }

    /// All buffers as a set of bits.
    pub(super) fn all() -> u64 {
        (1 << BUFFERS) - 1
    }

    /// Address of a page in a buffer.
    pub(super) fn address(&self, buffer: u32, page: usize) -> usize {
        self.memory.address(buffer as usize * self.pages + page)
    }
}
