//! A store in this process's own memory: the cost of faults and evictions without a device or a network.

use std::sync::{Mutex, PoisonError};

use mapwire_pager::{BackingStore, IncomingPage, OutgoingPage, PageId, StoreError};
use mapwire_translation::PAGE_BYTES;

/// Copies of the pages of one region.
#[derive(Debug, Default)]
pub(super) struct MemoryStore(Mutex<Vec<u8>>);

impl MemoryStore {
    fn with_page(&self, id: PageId, work: impl FnOnce(&mut [u8])) -> Result<(), StoreError> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let page = pages.chunks_exact_mut(PAGE_BYTES).nth(id.page as usize);
        page.map(work).ok_or(StoreError::Missing(id))
    }
}

impl BackingStore for MemoryStore {
    fn add_region(&self, _: u32, pages: u64) -> Result<(), StoreError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = vec![0; pages as usize * PAGE_BYTES];
        Ok(())
    }

    fn remove_region(&self, _: u32) {}

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        pages.iter().try_for_each(|page| self.with_page(page.id, |stored| stored.copy_from_slice(page.bytes)))
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        pages.iter_mut().try_for_each(|page| self.with_page(page.id, |stored| page.bytes.copy_from_slice(stored)))
    }

    fn discard(&self, _: u32, _: u64, _: u64) {}
}
