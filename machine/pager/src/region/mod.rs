//! Regions of address space.

mod mapped;
pub(crate) mod origin;
mod range;

use core::ops::Range;
use std::sync::Arc;

use mapwire_host::mapping::Mapping;
use mapwire_host::masking::mask;
use mapwire_host::page::{PAGE_BYTES, round_to_pages};

use crate::core::Core;
use crate::error::PagerError;
use crate::faults::uffd;
use crate::frames;
use crate::freeze::Inherited;
use crate::residency::RegionState;
use crate::running::Running;
use crate::store::MAX_REGION_PAGES;
use crate::store::MAX_REGIONS;
use crate::table::PageTable;

/// Memory of which the pager keeps in RAM what fits. Unmapped when dropped: nobody may use it any more then.
#[derive(Debug)]
pub struct Region {
    number: u32,
    memory: Mapping,
    pager: Arc<Running>,
}

impl crate::Pager {
    /// Maps a region of `bytes`, rounded up to whole pages, at exactly `address` or where the kernel likes. It is zero. It takes
    /// memory only for pages that are touched, and 16 bytes for each of those for as long as the region lives.
    ///
    /// # Errors
    /// 0 bytes or too many, an address that is no page's or is taken, or what the kernel or the store refuses.
    pub fn map(&self, bytes: usize, address: Option<usize>) -> Result<Region, PagerError> {
        /// Addresses of user space.
        const MOST_BYTES: usize = 1 << 47;
        let pager = self.running();
        let core = pager.core();
        if bytes == 0 {
            return Err(PagerError::Empty);
        }
        let rounded = round_to_pages(bytes).filter(|&bytes| bytes <= MOST_BYTES);
        let Some(bytes) = rounded else {
            return Err(PagerError::TooLarge { bytes, most: MOST_BYTES });
        };
        const { assert!(MOST_BYTES / PAGE_BYTES <= MAX_REGION_PAGES) };
        if let Some(address) = address.filter(|address| !address.is_multiple_of(PAGE_BYTES)) {
            return Err(PagerError::Unaligned { address });
        }
        let pages = bytes / PAGE_BYTES;
        let memory = frames::map(bytes, address)?;
        let table = PageTable::new(pages)
            .map_err(|errno| PagerError::system("mmap of the page table", address.unwrap_or(0), bytes, errno))?;
        let ahead = core.config.read_ahead_pages();
        let region = RegionState::new(memory.address(), pages as u64, Arc::new(table), Arc::default(), ahead);
        let _mask = mask();
        core.begin_change();
        let mut state = core.lock();
        let Some(number) = state.free_region() else {
            drop(state);
            core.end_change();
            return Err(PagerError::TooManyRegions { regions: MAX_REGIONS });
        };
        state.add_region(number, region);
        drop(state);
        // Ends the region again where the rest fails.
        let region = Region { number, memory, pager: Arc::clone(pager) };
        let added = core.store.add_region(number, pages as u64);
        let done =
            added.map_err(|cause| PagerError::Store { pages: pages as u64, cause }).and_then(|()| region.register());
        if done.is_err() {
            core.lock().close(number);
        }
        core.end_change();
        done.map(|()| region)
    }
}

/// Recreates a region in a forked child, at the address and with the pages of its parent's: see [`Frozen`](crate::Frozen). `memory` is
/// mapped at its addresses.
pub(crate) fn inherit(pager: &Arc<Running>, inherited: Inherited, memory: Mapping) -> Result<Region, PagerError> {
    let core = pager.core();
    let Inherited { number, start, pages, table, origins, rights } = inherited;
    let (stored, lost) = table.inherit();
    let ahead = core.config.read_ahead_pages();
    let region = RegionState::new(start, pages, table, origins, ahead);
    let mut state = core.lock();
    state.add_region(number, region);
    state.count_stored(number, stored as isize);
    drop(state);
    let region = Region { number, memory, pager: Arc::clone(pager) };
    region.register()?;
    for page in lost {
        // If it fails, the page stays lost, and threads that touch it wait.
        let _ = uffd::poison(&core.uffd, start + page as usize * PAGE_BYTES, PAGE_BYTES);
    }
    for part in rights {
        let offset = part.range.start - start;
        region
            .memory
            .protect(offset, part.range.len(), part.rights)
            .map_err(|errno| PagerError::system("mprotect", part.range.start, part.range.len(), errno))?;
    }
    Ok(region)
}

impl Region {
    /// Routes its faults to the pager. Stores can be blocked, for eviction or while a child is forked.
    fn register(&self) -> Result<(), PagerError> {
        uffd::register(&self.core().uffd, self.memory.address(), self.memory.bytes(), true)
    }

    /// First byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Address range.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let start = self.memory.address();
        start..start + self.memory.bytes()
    }

    /// Length in bytes, a multiple of 4096.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Resets the whole pages within `bytes` bytes from byte `offset` on to zero, or to their file's contents, and frees their memory in
    /// RAM and in the store: `madvise(MADV_DONTNEED)`. Nobody else may use them meanwhile.
    ///
    /// # Errors
    /// The range is not within the region.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<(), PagerError> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes());
        let Some(end) = end else {
            return Err(PagerError::OutOfRange { offset, bytes, region_bytes: self.bytes() });
        };
        let first = offset.div_ceil(PAGE_BYTES);
        let pages = (end / PAGE_BYTES).saturating_sub(first);
        let _mask = mask();
        self.pager.core().discard(self.number, first as u64, pages as u64);
        Ok(())
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn core(&self) -> &Core {
        self.pager.core()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _mask = mask();
        self.pager.core().remove_region(self.number);
    }
}
