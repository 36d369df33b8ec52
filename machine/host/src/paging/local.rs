//! A store in this process's own memory.

use std::sync::{PoisonError, RwLock};

use rustix::mm::Advice;

use super::store::{BackingStore, IncomingPage, MAX_REGIONS, OutgoingPage, PageId, StoreError};
use crate::mapping::Mapping;
use crate::page::PAGE_BYTES;

/// Keeps pages in memory of this process, as plain copies. It saves no memory: it shows the cost of faults and evictions without a device
/// or a network.
#[derive(Debug)]
pub struct LocalMemoryStore {
    regions: RwLock<Box<[Option<Mapping>]>>,
}

impl Default for LocalMemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalMemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self { regions: RwLock::new((0..MAX_REGIONS).map(|_| None).collect()) }
    }

    /// Does `work` with the memory of the region that a page is of, and the page's offset there.
    fn with_page(&self, id: PageId, work: impl FnOnce(&Mapping, usize) -> bool) -> Result<(), StoreError> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let region = regions.get(id.region as usize).and_then(Option::as_ref);
        let is_done = region.is_some_and(|region| work(region, id.page as usize * PAGE_BYTES));
        if is_done { Ok(()) } else { Err(StoreError::Missing(id)) }
    }
}

impl BackingStore for LocalMemoryStore {
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError> {
        let system = |call, errno: rustix::io::Errno| StoreError::System { call, errno: errno.into() };
        let bytes = usize::try_from(pages)
            .ok()
            .and_then(|pages| pages.checked_mul(PAGE_BYTES))
            .ok_or(system("mmap", rustix::io::Errno::NOMEM))?;
        let memory = Mapping::sparse(bytes, None).map_err(|errno| system("mmap", errno))?;
        super::frames::set_up(&memory).map_err(|errno| system("madvise", errno))?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let place =
            regions.get_mut(region as usize).ok_or(StoreError::Region { reason: "a region's number is below 1024" })?;
        *place = Some(memory);
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let memory = regions.get_mut(region as usize).and_then(Option::take);
        drop(regions);
        drop(memory);
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        let store = |page: &OutgoingPage<'_>| {
            self.with_page(page.id, |region, at| region.put(region.bytes(), at, page.bytes.into()))
        };
        pages.iter().try_for_each(store)
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        let fetch = |page: &mut IncomingPage<'_>| {
            self.with_page(page.id, |region, at| region.get(region.bytes(), at, page.bytes))
        };
        pages.iter_mut().try_for_each(fetch)
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(memory)) = regions.get(region as usize) {
            let offset = first as usize * PAGE_BYTES;
            // A failure costs only memory.
            let _ = memory.advise(offset, pages as usize * PAGE_BYTES, Advice::LinuxDontNeed);
        }
    }

    /// The child gets a copy from the kernel.
    fn seal(&self) -> Result<(), StoreError> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        for memory in regions.iter().flatten() {
            memory
                .advise(0, memory.bytes(), Advice::LinuxDoFork)
                .map_err(|errno| StoreError::System { call: "madvise", errno: errno.into() })?;
        }
        Ok(())
    }

    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(Self { regions: RwLock::new(std::mem::take(&mut *regions)) }))
    }
}
