//! The caches of buffers (CBH) and of processes (PCH). They record what the NIC has; the data is in the NIC's own tables.

use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::design::{HandleLookup, HostRequest};
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

fn page_of(handle: u32) -> Page {
    Page(u64::from(handle))
}

impl HandleCache {
    pub(super) fn new(entries: usize) -> Result<Self, CacheError> {
        Ok(HandleCache { cache: SharedCache::new(shape(entries))?, waiting: Waiting::default() })
    }

    pub(super) fn entries(&self) -> usize {
        self.cache.config().entries
    }

    /// Looks for a handle. If the NIC does not have it `request` asks for it. Counts what was there, and requests.
    #[inline]
    pub(super) fn lookup(
        &mut self,
        process: Process,
        handle: u32,
        request: HostRequest,
        (lookups, misses): (&mut u64, &mut u64),
    ) -> HandleLookup {
        if self.cache.lookup(process, page_of(handle)).is_some() {
            *lookups += 1;
            return HandleLookup::Hit;
        }
        *misses += u64::from(self.miss(process, page_of(handle)));
        HandleLookup::Host(request)
    }

    /// Whether the host was not asked before.
    #[inline(never)]
    fn miss(&mut self, process: Process, page: Page) -> bool {
        matches!(self.waiting.ask(process, PageRange::single(page), page, 0), Asking::New)
    }

    pub(super) fn fill(&mut self, process: Process, handle: u32) {
        self.cache.fill(process, page_of(handle), Frame(0));
        let handles = PageRange::single(page_of(handle));
        self.waiting.answer(process, handles, 0, |_| true);
    }

    pub(super) fn forget(&mut self, process: Process, handle: u32) {
        self.cache.invalidate(process, page_of(handle));
    }

    pub(super) fn forget_process(&mut self, process: Process) {
        self.cache.invalidate_process(process);
        self.waiting.forget(process);
    }
}
