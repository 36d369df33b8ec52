//! A store in this process's own memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{BackingStore, IncomingPage, OutgoingPage, PageId, StoreError};

/// Keeps copies of pages. A forked child gets its own from the kernel.
#[derive(Debug, Default)]
pub(super) struct LocalMemoryStore {
    pages: Mutex<HashMap<PageId, Box<[u8]>>>,
}

impl LocalMemoryStore {
    fn pages(&self) -> MutexGuard<'_, HashMap<PageId, Box<[u8]>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackingStore for LocalMemoryStore {
    fn add_region(&self, _: u32, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        self.pages().retain(|id, _| id.region != region);
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        self.pages().extend(pages.iter().map(|page| (page.id, page.bytes.into())));
        Ok(())
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        let stored = self.pages();
        for page in pages {
            page.bytes.copy_from_slice(stored.get(&page.id).ok_or(StoreError::Missing(page.id))?);
        }
        Ok(())
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        let mut stored = self.pages();
        for page in first..first + pages {
            stored.remove(&PageId { region, page });
        }
    }

    fn seal(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        Ok(Box::new(Self { pages: Mutex::new(std::mem::take(&mut *self.pages())) }))
    }
}
