//! The address range of far memory, and its assigned parts.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mapwire::global::DonorStore;
use mapwire_host::page::PAGE_BYTES;
use mapwire_pager::{BackingStore, DiskStore, FileChanges, Frozen, Pager, PagerError, Region, Statistics};

use crate::ranges::Ranges;
use crate::settings::Settings;
use crate::threads;

/// Length of the range, in bytes; unused parts take nothing.
const BYTES: u64 = 1 << 40;

/// Parts of at least this length are aligned to it: allocators want that, and would otherwise cut off the rest.
const LARGE: u64 = 64 << 20;

/// Fraction of the limit that the program may lock: the rest of its memory shares what is left.
const LOCKED_PART: usize = 2;

/// Why far memory cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The file for pages that are not in RAM cannot be made.
    #[error("cannot make a file in {}: {cause}; choose another folder by --disk", folder.display())]
    Disk { folder: PathBuf, cause: std::io::Error },
    /// The thread that meets donors cannot start.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Pager(#[from] PagerError),
}

/// Far memory, and its parts.
#[derive(Debug)]
pub(crate) struct Space {
    pager: Pager,
    region: Region,
    /// Whether private mappings of files are far.
    files: bool,
    /// First address of the parts, a multiple of [`LARGE`].
    base: usize,
    /// Never held while far memory is touched, nor while the pager works, except at the beginning of a fork.
    ranges: Mutex<Ranges>,
    /// Parts that the program has locked. Held as `ranges` is.
    locked: Mutex<Ranges>,
    /// Most bytes that it may lock.
    most_locked: u64,
}

impl Space {
    /// Reserves the range, and starts the thread that serves its faults. Donors that fail are reported by `say`.
    ///
    /// # Errors
    /// Names what the computer does not allow, and how to fix it.
    pub(crate) fn start(settings: &Settings, say: fn(&str)) -> Result<Self, StartError> {
        let folder = &settings.disk;
        let store = DiskStore::new(folder).map_err(|cause| StartError::Disk { folder: folder.clone(), cause })?;
        let store: Box<dyn BackingStore> = match settings.lenders.clone() {
            None => Box::new(store),
            Some(lenders) => Box::new(DonorStore::new(store, lenders, say).map_err(StartError::Thread)?),
        };
        let pager = Pager::new(settings.local_pages, store)?;
        let region = pager.map(BYTES as usize, None)?;
        Ok(Self {
            ranges: Mutex::new(Ranges::new(BYTES - LARGE)),
            locked: Mutex::new(Ranges::none()),
            most_locked: (settings.local_pages / LOCKED_PART * PAGE_BYTES) as u64,
            files: settings.files,
            base: region.range().start.next_multiple_of(LARGE as usize),
            pager,
            region,
        })
    }

    /// Stops it for a fork by the calling thread; also returns the present parts.
    ///
    /// # Errors
    /// The disk is full. It then continues.
    pub(crate) fn freeze(&self) -> Result<(Frozen, Ranges), PagerError> {
        let ranges = self.ranges();
        let frozen = threads::serving(|| self.pager.freeze())?;
        Ok((frozen, ranges.clone()))
    }

    /// In the forked child: the replacement of its parent's, from the result of [`Frozen::revive`].
    pub(crate) fn of_child(&self, pager: Pager, region: Region, ranges: Ranges) -> Self {
        Self {
            pager,
            region,
            files: self.files,
            base: self.base,
            ranges: Mutex::new(ranges),
            // A child does not inherit locks.
            locked: Mutex::new(Ranges::none()),
            most_locked: self.most_locked,
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.pager.statistics()
    }

    /// Whether an address is in the range.
    pub(crate) fn has(&self, address: usize) -> bool {
        self.region.range().contains(&address)
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.region.range()
    }

    /// The addresses that parts may have.
    pub(crate) fn all_parts(&self) -> Range<usize> {
        self.base..self.base + (BYTES - LARGE) as usize
    }

    /// The intersection of these addresses with the range; `None` if empty.
    pub(crate) fn part(&self, start: usize, bytes: usize) -> Option<Range<usize>> {
        let all = self.region.range();
        let end = start.saturating_add(bytes).min(all.end);
        let start = start.max(all.start);
        (start < end).then_some(start..end)
    }

    /// Assigns a part of zeros, in whole pages.
    pub(crate) fn map(&self, bytes: usize) -> Option<usize> {
        let bytes = whole_pages(bytes)?;
        let alignment = if bytes >= LARGE { LARGE } else { PAGE_BYTES as u64 };
        let first = self.ranges().take(bytes, alignment)?;
        Some(self.base + first as usize)
    }

    /// Whether it takes private mappings of files.
    pub(crate) fn takes_files(&self) -> bool {
        self.files
    }

    /// Maps a file, from byte `offset` on, in place of a part's contents. False if it is not a file that far memory can read.
    pub(crate) fn map_file(&self, part: &Range<usize>, file: BorrowedFd<'_>, offset: u64) -> bool {
        let first = self.in_region(part.start);
        threads::serving(|| self.region.map_file(first, part.len(), file, offset, FileChanges::Seen)).is_ok()
    }

    /// Continues the file of the page before a part, if there is one, in the part.
    pub(crate) fn map_more(&self, part: &Range<usize>) {
        change(|| self.region.map_more(self.in_region(part.start), part.len()));
    }

    /// Makes whole pages zeros, whatever they were.
    pub(crate) fn clear(&self, part: &Range<usize>) {
        change(|| self.region.map_zeros(self.in_region(part.start), part.len()));
    }

    /// Takes a part back, after the program has lost its rights to all its pages. It is zeros when it is assigned again.
    pub(crate) fn unmap(&self, part: Range<usize>) {
        self.clear(&part);
        let first = self.offset(part.start);
        self.ranges().give(first, part.len() as u64);
    }

    /// Resets whole pages to zeros, or to their file's contents, and frees their memory.
    pub(crate) fn discard(&self, part: Range<usize>) {
        change(|| self.region.discard(self.in_region(part.start), part.len()));
    }

    /// Moves the pages of a part to another, which is zeros. The program must use neither meanwhile.
    pub(crate) fn move_pages(&self, part: Range<usize>, to: usize) {
        change(|| self.region.remap(self.in_region(part.start), part.len(), self.in_region(to)));
    }

    fn in_region(&self, address: usize) -> usize {
        address - self.region.range().start
    }

    /// Extends the part that ends at `end` by `more` bytes, if they are free.
    pub(crate) fn grow(&self, end: usize, more: usize) -> bool {
        let first = self.offset(end);
        whole_pages(more).is_some_and(|more| self.ranges().take_at(first, more))
    }

    /// Whether all of these addresses are assigned.
    pub(crate) fn is_mapped(&self, part: &Range<usize>) -> bool {
        let first = self.offset(part.start);
        self.ranges().are_taken(first, part.len() as u64)
    }

    /// Records that the whole pages of a part are locked. False if that would exceed the limit.
    pub(crate) fn lock(&self, part: &Range<usize>) -> bool {
        let mut locked = self.locked();
        let mut more = locked.clone();
        more.give(self.offset(part.start), part.len() as u64);
        let is_allowed = more.bytes() <= self.most_locked;
        if is_allowed {
            *locked = more;
        }
        is_allowed
    }

    /// Records that a part is no longer locked; returns what of it was.
    pub(crate) fn unlock(&self, part: &Range<usize>) -> Vec<Range<usize>> {
        let cut = self.locked().cut(self.offset(part.start), part.len() as u64);
        let addresses = |(first, bytes): (u64, u64)| {
            let start = self.base + first as usize;
            start..start + bytes as usize
        };
        cut.into_iter().map(addresses).collect()
    }

    /// Whether some of a part is locked.
    pub(crate) fn is_locked(&self, part: &Range<usize>) -> bool {
        let first = self.offset(part.start);
        !self.locked().are_taken(first, part.len() as u64)
    }

    /// Bytes that the program may lock.
    pub(crate) fn most_locked(&self) -> u64 {
        self.most_locked
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Ranges> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offset(&self, address: usize) -> u64 {
        (address - self.base) as u64
    }

    fn ranges(&self) -> std::sync::MutexGuard<'_, Ranges> {
        // The ranges are consistent between any two statements.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does what can fail only for a part that is not within the region, or overlaps another.
fn change(work: impl FnOnce() -> Result<(), PagerError>) {
    let changed = threads::serving(work);
    debug_assert!(changed.is_ok(), "{changed:?}");
}

/// So many bytes in whole pages; `None`: none, or more than there are addresses.
fn whole_pages(bytes: usize) -> Option<u64> {
    let bytes = (bytes as u64).checked_next_multiple_of(PAGE_BYTES as u64)?;
    (bytes > 0).then_some(bytes)
}
