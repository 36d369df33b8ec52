//! Regions of address space.

use core::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::config::{Eviction, FaultService};
use super::core::Core;
use super::error::PagerError;
use super::frames;
use super::pager::Running;
use super::signal::Watched;
use super::state::RegionState;
use super::store::MAX_REGION_PAGES;
use super::store::MAX_REGIONS;
use super::table::PageTable;
use crate::faults::uffd_paging;
use crate::mapping::Mapping;
use crate::masking::mask;
use crate::page::{PAGE_BYTES, round_to_pages};

/// Memory of which the pager keeps in RAM what fits. Unmapped when dropped: nobody may use it any more then.
#[derive(Debug)]
pub struct Region {
    number: u32,
    memory: Mapping,
    /// Dropped before `pager`.
    _service: Option<Watched<Core>>,
    pager: Arc<Running>,
}

/// See [`Pager::map`](super::Pager::map).
pub(super) fn map(
    pager: &Arc<Running>,
    bytes: usize,
    address: Option<usize>,
) -> Result<Region, PagerError> {
    /// Addresses of user space.
    const MOST_BYTES: usize = 1 << 47;
    let core = pager.core();
    if bytes == 0 {
        return Err(PagerError::Empty);
    }
    let rounded = round_to_pages(bytes).filter(|&bytes| bytes <= MOST_BYTES);
    let Some(bytes) = rounded else {
        return Err(PagerError::TooLarge {
            bytes,
            most: MOST_BYTES,
        });
    };
    const { assert!(MOST_BYTES / PAGE_BYTES <= MAX_REGION_PAGES) };
    if let Some(address) = address.filter(|address| !address.is_multiple_of(PAGE_BYTES)) {
        return Err(PagerError::Unaligned { address });
    }
    let fail =
        |call| move |errno: Errno| PagerError::system(call, address.unwrap_or(0), bytes, errno);
    let pages = bytes / PAGE_BYTES;
    let memory = Mapping::sparse(bytes, address).map_err(fail("mmap"))?;
    frames::set_up(&memory).map_err(fail("madvise"))?;
    let table = PageTable::new(pages).map_err(fail("mmap of the page table"))?;
    let start = memory.address();
    let region = RegionState::new(start, pages as u64, table, core.config.read_ahead_pages());
    let protect = core.eviction == Eviction::WriteProtect;
    let _mask = mask();
    let mut state = core.lock();
    let number = state.free_region().ok_or(PagerError::TooManyRegions {
        regions: MAX_REGIONS,
    })?;
    state.add_region(number, region);
    drop(state);
    // Ends the region again where the rest fails.
    let mut region = Region {
        number,
        memory,
        _service: None,
        pager: Arc::clone(pager),
    };
    core.store
        .add_region(number, pages as u64)
        .map_err(|cause| PagerError::Store {
            pages: pages as u64,
            cause,
        })?;
    if core.config.service() == FaultService::FaultingThread {
        region._service = Some(Watched::start(core, region.range())?);
    }
    uffd_paging::register(&core.uffd, start, bytes, protect)
        .map_err(fail("ioctl(UFFDIO_REGISTER)"))?;
    Ok(region)
}

impl Region {
    /// The first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let start = self.memory.address();
        start..start + self.memory.bytes()
    }

    /// Its length in bytes, a multiple of 4096.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Makes the whole pages within `bytes` bytes from byte `offset` on zero, and frees what they take in RAM and in the
    /// store: `madvise(MADV_DONTNEED)`. Nobody else may use them meanwhile.
    ///
    /// # Errors
    /// The range is not within the region.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<(), PagerError> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes());
        let Some(end) = end else {
            return Err(PagerError::OutOfRange {
                offset,
                bytes,
                region_bytes: self.bytes(),
            });
        };
        let first = offset.div_ceil(PAGE_BYTES);
        let pages = (end / PAGE_BYTES).saturating_sub(first);
        let _mask = mask();
        self.pager
            .core()
            .discard(self.number, first as u64, pages as u64);
        Ok(())
    }

    /// Moves the whole pages of `bytes` bytes from byte `from` to byte `to`, in place of what is there, as `mremap` does; where they
    /// were is zero then. Both offsets are multiples of 4096, and the ranges do not overlap. Nobody else may use either meanwhile.
    ///
    /// Takes as long as reading and writing the pages: each comes into RAM on its way.
    ///
    /// # Errors
    /// A range is not within the region, overlaps the other, or does not begin on a page.
    pub fn remap(&self, from: usize, bytes: usize, to: usize) -> Result<(), PagerError> {
        /// Pages that are twice in RAM or in the store.
        const STEP: usize = 64 * PAGE_BYTES;
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        for offset in [from, to] {
            if !offset.is_multiple_of(PAGE_BYTES) {
                return Err(PagerError::Unaligned {
                    address: self.range().start.wrapping_add(offset),
                });
            }
            let end = offset.checked_add(bytes);
            if end.is_none_or(|end| end > self.bytes()) {
                return Err(PagerError::OutOfRange {
                    offset,
                    bytes,
                    region_bytes: self.bytes(),
                });
            }
        }
        if from.abs_diff(to) < bytes {
            return Err(PagerError::Overlap { from, to, bytes });
        }
        for at in (0..bytes).step_by(STEP) {
            let step = STEP.min(bytes - at);
            self.discard(to + at, step)?;
            let start = self.range().start;
            frames::copy_pages(start + from + at, start + to + at, step);
            self.discard(from + at, step)?;
        }
        Ok(())
    }

    /// Where its page table lies.
    #[cfg(test)]
    pub(super) fn table_range(&self) -> Range<usize> {
        let mut state = self.pager.core().lock();
        state
            .region(self.number)
            .map_or(0..0, |region| region.table.address_range())
    }

    /// Unmaps it, as dropping it does: `munmap`.
    pub fn unmap(self) {
        drop(self);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _mask = mask();
        self.pager.core().remove_region(self.number);
    }
}
