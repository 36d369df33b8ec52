//! One memory at several addresses: MultiView (Millipage §2.1).
//!
//! A memfd is mapped once as the *privileged view*, always open, and several times as
//! *application views*, each page of which has a protection of its own
//! ([`PageProtection`](crate::faults::PageProtection)). Variables that share a page but are used through
//! different views are so protected independently.
//!
//! All views lie at fixed addresses, so that a pointer means the same in every process with the same settings:
//!
//! ```text
//! base                    privileged view, then a hole
//! base + 1 × stride       view 0, then a hole
//! base + (v + 1) × stride view v, then a hole
//! ```
//!
//! The hole is at least 2 MiB: running over the end of a view faults. Application views start without any access. A forked child does not
//! inherit them, as only the process that joined the job can serve their faults. Core dumps omit them, and include the parts of the
//! privileged view in which this rank has had pages open.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno as Os;
use rustix::mm::Advice;

use crate::mapping::{Mapping, Rights};
use crate::memory::{CallError, MemoryError, Status, Writers, memfd};
use crate::page::{PAGE_BYTES, round_to_pages};

/// Default address of the privileged view.
pub const DEFAULT_BASE: usize = 0x3000_0000_0000;

/// Views are aligned to this, and the holes between them are at least this long.
pub(crate) const ALIGN_BYTES: usize = 2 << 20;

/// Most blocks of the privileged view that core dumps include or omit separately.
const DUMP_BLOCKS: usize = 512;

/// Addresses of a memory's views. A pure function of base, bytes and views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewLayout {
    /// Address of the privileged view.
    pub base: usize,
    /// Length of each view in bytes, in whole pages.
    pub bytes: usize,
    pub views: usize,
    /// Bytes from the start of one view to the start of the next.
    pub stride: usize,
}

impl ViewLayout {
    /// The layout of `views` application views of `bytes` (rounded up to pages) from `base`.
    ///
    /// # Errors
    /// Zero bytes or views, a base that is not a multiple of 2 MiB, or more than can be addressed.
    pub fn new(base: usize, bytes: usize, views: usize) -> Result<Self, ViewError> {
        if bytes == 0 || views == 0 {
            return Err(ViewError::Empty { bytes, views });
        }
        if base == 0 || !base.is_multiple_of(ALIGN_BYTES) {
            return Err(ViewError::Base { base });
        }
        let too_long = ViewError::TooLong { base, bytes, views };
        let layout = (|| {
            let bytes = round_to_pages(bytes)?;
            let stride = bytes.checked_next_multiple_of(ALIGN_BYTES)?.checked_add(ALIGN_BYTES)?;
            let all = stride.checked_mul(views.checked_add(1)?)?;
            isize::try_from(base.checked_add(all)?).ok()?;
            Some(Self { base, bytes, views, stride })
        })();
        layout.ok_or(too_long)
    }

    /// All addresses, including the privileged view and holes.
    pub fn range(&self) -> Range<usize> {
        self.base..self.base + self.stride * (self.views + 1)
    }

    /// Addresses of application view `view`.
    pub fn view_range(&self, view: usize) -> Range<usize> {
        let start = self.base + (view + 1) * self.stride;
        start..start + self.bytes
    }

    /// Addresses of all application views, from the first of view 0 to the last of the last.
    pub fn views_range(&self) -> Range<usize> {
        self.view_range(0).start..self.view_range(self.views - 1).end
    }

    /// The application view that contains `address`, and the offset in it; `None` outside of the application views, in the privileged view
    /// and in the holes.
    #[inline]
    pub fn locate(&self, address: usize) -> Option<(usize, usize)> {
        let from_base = address.checked_sub(self.base)?;
        let (slot, offset) = (from_base / self.stride, from_base % self.stride);
        let view = slot.checked_sub(1)?;
        (view < self.views && offset < self.bytes).then_some((view, offset))
    }

    /// Number of pages of each view.
    pub fn pages(&self) -> usize {
        self.bytes / PAGE_BYTES
    }

    /// Address of page `page` of application view `view`, and the length of `pages` pages in bytes.
    ///
    /// # Errors
    /// [`ViewError::OutOfRange`].
    #[inline]
    pub(crate) fn pages_range(&self, view: usize, page: usize, pages: usize) -> Option<(usize, usize)> {
        let inside = view < self.views && pages > 0 && page.checked_add(pages).is_some_and(|end| end <= self.pages());
        inside.then(|| (self.view_range(view).start + page * PAGE_BYTES, pages * PAGE_BYTES))
    }
}

/// Why views could not be made or accessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// No bytes or no views were requested.
    #[error("{views} views of {bytes} bytes were asked for: ask for at least one of each")]
    Empty { bytes: usize, views: usize },
    /// The base address is not usable.
    #[error(
        "the shared base {base:#x} is not a multiple of 2 MiB above 0: \
         set MAPWIRE_SHARED_BASE to one, such as {DEFAULT_BASE:#x}"
    )]
    Base { base: usize },
    /// The views do not fit into any address space.
    #[error(
        "{views} views of {bytes} bytes at {base:#x} are more than can be addressed: \
         lower MAPWIRE_SHARED or MAPWIRE_VIEWS"
    )]
    TooLong { base: usize, bytes: usize, views: usize },
    /// Something else is mapped there.
    #[error(
        "shared memory is to lie at {wanted:#x?}, but {found:#x?} is taken by {name}: \
         set MAPWIRE_SHARED_BASE, alike in all ranks, to the start of a free range of {bytes:#x} bytes"
    )]
    Clash { wanted: Range<usize>, bytes: usize, found: Range<usize>, name: String },
    /// The address space has no room, because of the limit or its size.
    #[error(
        "no address space for {views} views of {bytes} bytes and a privileged one at {base:#x}, \
         {all_bytes} bytes in all (RLIMIT_AS is {limit}): raise it with `ulimit -v`, \
         lower MAPWIRE_SHARED or MAPWIRE_VIEWS, or move MAPWIRE_SHARED_BASE below the end of user space"
    )]
    AddressSpace { base: usize, bytes: usize, views: usize, all_bytes: usize, limit: crate::limits::Limit },
    /// The process has as many mapped ranges as the kernel allows.
    #[error(
        "this process has {in_use} mapped ranges and the kernel allows {limit}: \
         raise it with `sysctl vm.max_map_count={wanted}`"
    )]
    TooManyRanges { in_use: usize, limit: u64, wanted: u64 },
    /// A range outside of the memory.
    #[error("bytes {offset}..{offset}+{len} leave the shared memory of {bytes} bytes")]
    OutOfRange { offset: usize, len: usize, bytes: usize },
    /// The memory behind the views could not be made.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    System(#[from] CallError),
}

/// A memory with its privileged view and its application views. Dropping it unmaps them all and marks the memory as revoked for peers that
/// mapped it.
///
/// A peer maps it with [`MappedBuffer::map`](crate::memory::MappedBuffer::map).
#[derive(Debug)]
pub struct MultiView {
    layout: ViewLayout,
    file: OwnedFd,
    span: Mapping,
    status: Status,
    /// A bit for each block of the privileged view that core dumps include.
    dumped: [AtomicU64; DUMP_BLOCKS / 64],
}

impl MultiView {
    /// Makes a memory of `bytes`, zeroed and sparse, and maps it as `layout` says.
    ///
    /// # Errors
    /// Something is mapped there already, or a limit of address space, mapped ranges or descriptors is reached; each error names the
    /// setting to change.
    pub fn new(name: &str, layout: ViewLayout) -> Result<Self, ViewError> {
        let file = memfd::create(name, layout.bytes)?;
        memfd::finish(&file, Writers::All)?;
        let status = Status::new(name)?;
        let range = layout.range();
        let span = Mapping::reserve_at(range.start, range.len()).map_err(|errno| explain(&layout, errno))?;
        let map = |offset, bytes, rights| {
            span.replace(offset, bytes, &file, 0, rights).map_err(|errno| explain(&layout, errno))
        };
        map(0, layout.bytes, Rights::ReadWrite)?;
        for view in 0..layout.views {
            map((view + 1) * layout.stride, layout.bytes, Rights::None)?;
        }
        let advise = |offset, advice| {
            span.advise(offset, layout.bytes, advice)
                .map_err(|errno| CallError::new("madvise", layout.base + offset, layout.bytes, errno))
        };
        // A dump allocates every page that it writes, even those that were never touched.
        advise(0, Advice::LinuxDontDump)?;
        for view in 0..layout.views {
            let offset = (view + 1) * layout.stride;
            advise(offset, Advice::LinuxDontFork)?;
            advise(offset, Advice::LinuxDontDump)?;
        }
        Ok(Self { layout, file, span, status, dumped: [const { AtomicU64::new(0) }; DUMP_BLOCKS / 64] })
    }

    /// Addresses of the views.
    pub fn layout(&self) -> &ViewLayout {
        &self.layout
    }

    /// The memfd, for peers to map. Its holder may load and store.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its status, for peers to map.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The application view that contains `address`, and the offset in it.
    #[inline]
    pub fn locate(&self, address: usize) -> Option<(usize, usize)> {
        self.layout.locate(address)
    }

    /// Address of `len` bytes at `offset` in the privileged view, always open to loads and stores.
    ///
    /// # Errors
    /// [`ViewError::OutOfRange`].
    #[inline]
    pub fn privileged(&self, offset: usize, len: usize) -> Result<*mut u8, ViewError> {
        let bytes = self.layout.bytes;
        if offset.checked_add(len).is_some_and(|end| end <= bytes) {
            Ok(self.span.as_ptr().wrapping_add(offset))
        } else {
            Err(ViewError::OutOfRange { offset, len, bytes })
        }
    }

    /// Address of `offset` in application view `view`; its protection decides which accesses succeed.
    ///
    /// # Panics
    /// If the view or byte does not exist.
    #[inline]
    pub fn application(&self, view: usize, offset: usize) -> *mut u8 {
        assert!(view < self.layout.views && offset < self.layout.bytes);
        self.span.as_ptr().wrapping_add((view + 1) * self.layout.stride + offset)
    }

    /// Sets the rights of whole pages of an application view.
    pub(crate) fn protect(&self, pages: Range<usize>, rights: Rights) -> Result<(), Os> {
        self.span.protect(pages.start - self.layout.base, pages.len(), rights)
    }

    /// Bytes of a block of the privileged view, for core dumps.
    fn dump_block_bytes(&self) -> usize {
        (self.layout.bytes / DUMP_BLOCKS + 1).next_multiple_of(ALIGN_BYTES)
    }

    /// Makes core dumps include pages, since this rank uses them. Costs a system call for the first pages of a block, else a load. If the
    /// kernel refuses, dumps lack the block.
    pub(crate) fn keep_in_dumps(&self, page: usize, pages: usize) {
        let block_bytes = self.dump_block_bytes();
        let end = page.saturating_add(pages).saturating_mul(PAGE_BYTES);
        let end = end.min(self.layout.bytes);
        for block in page.saturating_mul(PAGE_BYTES) / block_bytes..end.div_ceil(block_bytes) {
            let (word, bit) = (&self.dumped[block / 64], 1 << (block % 64));
            if word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                let start = block * block_bytes;
                let bytes = block_bytes.min(self.layout.bytes - start);
                let _ = self.span.advise(start, bytes, Advice::LinuxDoDump);
            }
        }
    }

    /// Drops the page table entries of whole pages of an application view; contents stay.
    /// `MADV_DONTNEED` is refused where the program has locked its memory (`mlockall`); the kernels that have all that protection by
    /// userfaultfd needs have this advice too.
    pub(crate) fn zap(&self, pages: Range<usize>) -> Result<(), Os> {
        self.span.advise(pages.start - self.layout.base, pages.len(), Advice::LinuxDontneedLocked)
    }

    /// Allocates pages, zeroed if they never had memory.
    pub(crate) fn populate(&self, page: usize, pages: usize) -> Result<(), Os> {
        if page.checked_add(pages).is_none_or(|end| end > self.layout.pages()) {
            return Err(Os::INVAL);
        }
        rustix::fs::fallocate(
            &self.file,
            rustix::fs::FallocateFlags::empty(),
            (page * PAGE_BYTES) as u64,
            (pages * PAGE_BYTES) as u64,
        )
    }
}

/// The error for a refusal to map the views.
fn explain(layout: &ViewLayout, errno: Os) -> ViewError {
    let wanted = layout.range();
    let ranges = crate::maps::mapped_ranges();
    match errno {
        Os::EXIST => {
            let unknown = || (wanted.clone(), "an unknown mapping".to_owned());
            let (found, name) = crate::maps::first_within(&wanted).unwrap_or_else(unknown);
            ViewError::Clash { bytes: wanted.len(), found, name, wanted }
        }
        Os::NOMEM => {
            let needed = 2 * (layout.views as u64 + 1);
            match crate::limits::max_map_count() {
                Some(limit) if ranges.len() as u64 + needed > limit => ViewError::TooManyRanges {
                    in_use: ranges.len(),
                    limit,
                    wanted: (ranges.len() as u64 + needed).next_power_of_two(),
                },
                _ => ViewError::AddressSpace {
                    base: layout.base,
                    bytes: layout.bytes,
                    views: layout.views,
                    all_bytes: wanted.len(),
                    limit: crate::limits::address_space(),
                },
            }
        }
        _ => CallError::new("mmap", wanted.start, wanted.len(), errno).into(),
    }
}

#[cfg(test)]
mod tests;
