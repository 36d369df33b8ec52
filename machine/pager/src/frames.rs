//! Page contents: arrays of page frames, and the slices that a batch passes to a store.

use mapwire_host::mapping::Mapping;
use mapwire_host::page::PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::batch::{Batch, Item};
use crate::config::MAX_BATCH_PAGES;
use crate::error::PagerError;
use crate::store::{IncomingPage, OutgoingPage, PageId};

/// Pages of memory whose frames may be moved away and back.
#[derive(Debug)]
pub(crate) struct Frames {
    memory: Mapping,
}

impl Frames {
    /// Makes `pages` pages, without frames yet. Forked children do not have them.
    pub(crate) fn new(pages: usize) -> Result<Self, PagerError> {
        Ok(Self { memory: map(pages.saturating_mul(PAGE_BYTES), None)? })
    }

    pub(crate) fn address(&self, page: usize) -> usize {
        self.memory.at(page * PAGE_BYTES, PAGE_BYTES).addr()
    }

    pub(crate) fn start(&self) -> usize {
        self.memory.address()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Frees the frames of pages, even if the program has locked all of its memory.
    pub(crate) fn free(&self, page: usize, pages: usize) -> Result<(), Errno> {
        let bytes = pages * PAGE_BYTES;
        self.memory.advise(page * PAGE_BYTES, bytes, Advice::LinuxDontneedLocked)
    }
}

/// Maps memory of the pager, at exactly `address` or where the kernel likes: pages of 4096 bytes that belong to this process alone. A frame
/// shared with a forked child cannot be moved.
pub(crate) fn map(bytes: usize, address: Option<usize>) -> Result<Mapping, PagerError> {
    let fail = |call| move |errno| PagerError::system(call, address.unwrap_or(0), bytes, errno);
    let memory = Mapping::sparse(bytes, address).map_err(fail("mmap"))?;
    memory.advise(0, bytes, Advice::LinuxDontFork).map_err(fail("madvise"))?;
    match memory.advise(0, bytes, Advice::LinuxNoHugepage) {
        // A kernel without huge pages.
        Ok(()) | Err(Errno::INVAL) => Ok(memory),
        Err(errno) => Err(fail("madvise")(errno)),
    }
}

/// Drops pages of a region, or of the pool, and frees their frames. The caller has made them busy.
pub(crate) fn drop_pages(address: usize, bytes: usize) -> Result<(), Errno> {
    let start = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the pages are of a region and busy, which keeps it mapped, or of the pool. Their bytes are in the store or elsewhere in RAM,
    // or were discarded by their owner.
    unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxDontNeed) }
}

/// Copies pages of a region to others, as the program itself might. May fault on each.
pub(crate) fn copy_pages(from: usize, to: usize, bytes: usize) {
    let from = core::ptr::with_exposed_provenance::<u8>(from);
    let to = core::ptr::with_exposed_provenance_mut::<u8>(to);
    // SAFETY: both ranges are of one region, do not overlap, and are left alone by the program meanwhile: `Region::remap` has
    // checked the first two and demands the third. No lock is held that serving the faults would take.
    unsafe { mapwire_host::memory::raw::copy(from, to, bytes) }
}

/// The bytes of a page that the batch has claimed.
pub(crate) fn bytes_of(item: &Item) -> &[u8] {
    let start = core::ptr::with_exposed_provenance::<u8>(item.memory);
    // SAFETY: `memory` of a claimed page is a page of the pool or of the buffers, or of the region while stores to it fault. In
    // each case it is mapped, and nobody writes there while the page is busy.
    unsafe { core::slice::from_raw_parts(start, PAGE_BYTES) }
}

pub(crate) fn bytes_of_mut(item: &mut Item) -> &mut [u8] {
    let start = core::ptr::with_exposed_provenance_mut::<u8>(item.memory);
    // SAFETY: as in `bytes_of`; called for pages that come in, whose memory is of the buffers: no other thread
    // has it while the page is busy. Items of one batch have different memory.
    unsafe { core::slice::from_raw_parts_mut(start, PAGE_BYTES) }
}

/// Passes the wanted pages of a batch to `work`, as a store takes them.
pub(crate) fn with_outgoing<T>(
    batch: &Batch,
    wanted: impl Fn(&Item) -> bool,
    work: impl FnOnce(&[OutgoingPage<'_>]) -> T,
) -> T {
    let mut pages = [OutgoingPage { id: PageId::default(), bytes: &[] }; MAX_BATCH_PAGES];
    let mut count = 0;
    for item in batch.items().iter().filter(|item| wanted(item)) {
        pages[count] = OutgoingPage { id: item.id, bytes: bytes_of(item) };
        count += 1;
    }
    work(&pages[..count])
}

/// Passes the wanted pages of a batch to `work`, for a store to fill.
pub(crate) fn with_incoming<T>(
    batch: &mut Batch,
    wanted: impl Fn(&Item) -> bool,
    work: impl FnOnce(&mut [IncomingPage<'_>]) -> T,
) -> T {
    let mut pages: [IncomingPage<'_>; MAX_BATCH_PAGES] =
        core::array::from_fn(|_| IncomingPage { id: PageId::default(), bytes: &mut [] });
    let mut count = 0;
    for item in batch.items_mut().iter_mut().filter(|item| wanted(item)) {
        pages[count].id = item.id;
        pages[count].bytes = bytes_of_mut(item);
        count += 1;
    }
    work(&mut pages[..count])
}
