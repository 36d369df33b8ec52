//! The caches of buffers (CBH) and of processes (PCH). They record what the NIC has; the data is in the NIC's own tables.

use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::page::{Frame, Page, PageRange, Process};
use crate::waiting::{Asking, Waiting};

/// Bytes of NIC memory for a buffer's entry: 8 for the handle, 8 each for start, length and landing address, 16 for the key, 8 for rights
/// and state. The paper gives no size.
pub const CBH_ENTRY_BYTES: usize = 56;

/// Bytes of NIC memory for a process's entry: 8 for the handle, 56 for the location of its command queue, tables and limits. The paper
/// gives no size.
pub const PCH_ENTRY_BYTES: usize = 64;

/// Ways of both caches, or fewer if they have fewer entries.
const WAYS: usize = 4;

pub(super) const fn shape(entries: usize) -> CacheConfig {
    CacheConfig {
        entries,
        ways: if entries < WAYS { entries } else { WAYS },
        line_entries: 1,
        offset_per_process: true,
    }
}

#[derive(Clone, Debug)]
pub(super) struct HandleCache {
    /// A cache of translations with handles in place of pages; the frames mean nothing.
    cache: SharedCache,
    waiting: Waiting,
}

/// Result of a handle's lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handle {
    /// The NIC has it.
    Here,
    /// The host must be asked.
    Miss,
    /// The host has been asked.
    Awaited,
}

fn place(handle: u32) -> Page {
    Page(u64::from(handle))
}

impl HandleCache {
    pub(super) fn new(entries: usize) -> Result<Self, CacheError> {
        Ok(HandleCache { cache: SharedCache::new(shape(entries))?, waiting: Waiting::default() })
    }

    pub(super) fn entries(&self) -> usize {
        self.cache.config().entries
    }

    #[inline]
    pub(super) fn lookup(&mut self, process: Process, handle: u32) -> Handle {
        match self.cache.lookup(process, place(handle)) {
            Some(_) => Handle::Here,
            None => self.miss(process, place(handle)),
        }
    }

    #[inline(never)]
    fn miss(&mut self, process: Process, place: Page) -> Handle {
        match self.waiting.ask(process, PageRange::single(place), place, 0) {
            Asking::New => Handle::Miss,
            Asking::Again | Asking::Refused => Handle::Awaited,
        }
    }

    pub(super) fn fill(&mut self, process: Process, handle: u32) {
        self.cache.fill(process, place(handle), Frame(0));
        let handles = PageRange::single(place(handle));
        self.waiting.answer(process, handles, 0, |_| true);
    }

    pub(super) fn forget(&mut self, process: Process, handle: u32) {
        self.cache.invalidate(process, place(handle));
    }

    pub(super) fn forget_process(&mut self, process: Process) {
        self.cache.invalidate_process(process);
        self.waiting.forget(process);
    }
}
