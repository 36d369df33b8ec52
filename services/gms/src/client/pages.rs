//! Memory for pages that are on their way to the disk.

use alloc::vec;
use alloc::vec::Vec;

use crate::config::FRAME_BYTES;

const BYTES: usize = FRAME_BYTES as usize;

/// Pages that begin at multiples of their length, as a disk wants it.
pub(super) struct Pages {
    memory: Vec<u8>,
    skip: usize,
}

impl Pages {
    pub(super) fn new(count: usize) -> Self {
        let memory = vec![0; (count + 1) * BYTES];
        let skip = memory.as_ptr().align_offset(BYTES);
        Self { memory, skip }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.memory[self.skip..].chunks_exact(BYTES)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.memory[self.skip..].chunks_exact_mut(BYTES)
    }
}
