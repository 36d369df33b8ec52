//! Gives a forked child a pager of its own.

use core::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use mapwire_host::mapping::Mapping;
use mapwire_host::page::PAGE_BYTES;

use crate::batch::{Batch, Progress};
use crate::error::PagerError;
use crate::faults::fill::Filling;
use crate::frames;
use crate::freeze::Frozen;
use crate::pager::Pager;
use crate::region::{self, Region};
use crate::store::{PageId, StoreError};
use crate::table::{COPY, ORIGINAL, PageState};

impl Frozen {
    /// In the child, before [`revive`](Self::revive): creates the page at `address`, with its contents from when the pager was frozen. It
    /// is ordinary memory; stores to it are kept when the pager is revived. For accesses that the C library makes within `fork()`, from a
    /// handler of SIGSEGV: no thread may be started then.
    ///
    /// # Errors
    /// The address is in no region, or the page exists already, or is lost.
    pub fn lend_page(&mut self, address: usize) -> Result<(), PagerError> {
        let address = address & !(PAGE_BYTES - 1);
        let region = self.regions.iter().find(|it| it.range().contains(&address));
        let Some(region) = region else {
            return Err(PagerError::Empty);
        };
        let memory = Mapping::sparse(PAGE_BYTES, Some(address))
            .map_err(|errno| PagerError::system("mmap", address, PAGE_BYTES, errno))?;
        let id = PageId { region: region.number, page: ((address - region.start) / PAGE_BYTES) as u64 };
        let entry = region.table.get(id.page);
        let mut batch = Batch::new();
        let item = batch.push(id, address);
        item.memory = address;
        item.checksum = region.table.checksum(id.page);
        item.is_original = entry.has(ORIGINAL);
        let from = if entry.has(COPY) { PageState::Stored } else { PageState::Empty };
        let file = region.origins.part(id.page);
        self.running.core().fill(&mut batch, Filling { from, write: false, file }, id);
        match (entry.state(), batch.items()[0].progress) {
            (PageState::Poisoned, _) => return Err(PagerError::Fork { cause: StoreError::Missing(id) }),
            (_, Progress::Failed(cause)) => return Err(PagerError::Fork { cause }),
            _ => {}
        }
        self.lent.push(memory);
        Ok(())
    }

    /// In the child: makes a pager with the same limits, and the regions at their addresses, with their contents from when the parent's
    /// pager was frozen. Counters begin at 0. The store is the parent's [`of_child`](crate::BackingStore::of_child).
    ///
    /// The parent's pager's memory in the child's heap, about 800 KiB of which almost nothing is ever touched, is not freed.
    ///
    /// # Errors
    /// As of [`Pager::new`] and [`Pager::map`]. The child then lacks its memory, and can only end.
    ///
    /// # Safety
    /// The caller is the only thread of a child forked by the thread that froze the pager. Nobody uses or drops the parent's [`Pager`] and
    /// [`Region`]s in the child.
    pub unsafe fn revive(self) -> Result<(Pager, Vec<Region>), PagerError> {
        let mut old = ManuallyDrop::new(self);
        let _mask = old.mask.take();
        let regions = mem::take(&mut old.regions);
        let lent: Vec<_> = mem::take(&mut old.lent).into_iter().map(|page| (page.address(), copy_of(&page))).collect();
        // The pager's own mappings might take these addresses, which are free.
        let memories = regions.iter().map(|it| frames::map(it.range().len(), Some(it.start)));
        let memories = memories.collect::<Result<Vec<_>, _>>()?;
        // Threads of the pager read such pages at their start: the C library's locale data may be in a region.
        put_back(&lent);
        let core = old.running.core();
        for descriptor in [&core.uffd, old.running.handlers().stop(), core.counters.file()] {
            mapwire_host::descriptors::forget(descriptor.as_raw_fd());
            // SAFETY: their owners are never used nor dropped again, by the caller's promise.
            unsafe { rustix::io::close(descriptor.as_raw_fd()) };
        }
        let store = core.store.of_child();
        let store = store.map_err(|cause| PagerError::Fork { cause })?;
        let pager = Pager::with_config(core.config.clone(), store, core.checksum)?;
        for memory in &memories {
            // The pager does not know pages that were touched meanwhile.
            frames::drop_pages(memory.address(), memory.bytes())
                .map_err(|errno| PagerError::system("madvise", memory.address(), memory.bytes(), errno))?;
        }
        let regions = regions.into_iter().zip(memories).map(|(inherited, memory)| {
            // SAFETY: the state of the parent's pager owns one count of each, and is never used nor dropped again. `inherited` has
            // another.
            unsafe {
                Arc::decrement_strong_count(Arc::as_ptr(&inherited.table));
                Arc::decrement_strong_count(Arc::as_ptr(&inherited.origins));
            }
            region::inherit(pager.running(), inherited, memory)
        });
        let regions = regions.collect::<Result<_, _>>()?;
        put_back(&lent);
        Ok((pager, regions))
    }
}

/// Writes lent pages back to their addresses.
fn put_back(lent: &[(usize, Vec<u8>)]) {
    for (address, bytes) in lent {
        let to = core::ptr::with_exposed_provenance_mut(*address);
        // SAFETY: a page of a region that was just mapped, which nobody else uses yet.
        unsafe { mapwire_host::memory::raw::copy(bytes.as_ptr(), to, bytes.len()) };
    }
}

fn copy_of(page: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; page.bytes()];
    page.get(page.bytes(), 0, &mut bytes);
    bytes
}
