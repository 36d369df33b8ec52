//! The range of addresses that far memory lies in, and who has which part of it.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mapwire::global::DonorStore;
use mapwire_host::page::PAGE_BYTES;
use mapwire_host::paging::{
    BackingStore, DiskStore, FileChanges, Frozen, Pager, PagerConfig, PagerError, Region, Statistics,
};

use crate::ranges::Ranges;
use crate::report;
use crate::settings::Settings;
use crate::threads;

/// Bytes of the range, of which only those in use take anything.
const BYTES: u64 = 1 << 40;

/// Parts of at least this many bytes begin at a multiple of it: allocators ask for that, and cut off what they do not get.
const LARGE: u64 = 64 << 20;

/// The part of the limit that the program may lock: the rest of its memory shares what is left.
const LOCKED_PART: usize = 2;

/// Why there is no far memory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The file that holds what is not in RAM.
    #[error("cannot make a file in {}: {cause}; choose another folder by --disk", folder.display())]
    Disk { folder: PathBuf, cause: std::io::Error },
    /// The thread that meets donors.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The pager.
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
    /// Where the parts begin: at a multiple of [`LARGE`].
    base: usize,
    /// Never held while far memory is touched, nor while the pager works, but for the beginning of a fork.
    ranges: Mutex<Ranges>,
    /// What the program has locked. Held as `ranges` is.
    locked: Mutex<Ranges>,
    /// Bytes that it may lock.
    most_locked: u64,
}

impl Space {
    /// Reserves the range, and starts the thread that serves its faults.
    ///
    /// # Errors
    /// What the computer does not allow, and how to mend it.
    pub(crate) fn start(settings: &Settings) -> Result<Self, StartError> {
        let config = PagerConfig::new(settings.local_pages).publish();
        let folder = &settings.disk;
        let store = DiskStore::new(folder).map_err(|cause| StartError::Disk { folder: folder.clone(), cause })?;
        let store: Box<dyn BackingStore> = match settings.lenders.clone() {
            None => Box::new(store),
            Some(lenders) => {
                let report = |text: &str| report::line(format_args!("mapwire far: {text}"));
                Box::new(DonorStore::new(store, lenders, report).map_err(StartError::Thread)?)
            }
        };
        let pager = Pager::new(config, store)?;
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

    /// Stops it for a fork by the calling thread; with the parts as they are then.
    ///
    /// # Errors
    /// The disk is full. Then it goes on.
    pub(crate) fn freeze(&self) -> Result<(Frozen, Ranges), PagerError> {
        let ranges = self.ranges();
        let frozen = threads::serving(|| self.pager.freeze())?;
        Ok((frozen, ranges.clone()))
    }

    /// In the forked child: what takes the place of its parent's, with what [`Frozen::revive`] gives.
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

    /// What the pager counted.
    pub(crate) fn statistics(&self) -> Statistics {
        self.pager.statistics()
    }

    /// Whether an address is in the range.
    pub(crate) fn has(&self, address: usize) -> bool {
        self.region.range().contains(&address)
    }

    /// All addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.region.range()
    }

    /// The addresses that parts may have.
    pub(crate) fn all_parts(&self) -> Range<usize> {
        self.base..self.base + (BYTES - LARGE) as usize
    }

    /// What of these addresses is in the range; `None`: nothing.
    pub(crate) fn part(&self, start: usize, bytes: usize) -> Option<Range<usize>> {
        let all = self.region.range();
        let end = start.saturating_add(bytes).min(all.end);
        let start = start.max(all.start);
        (start < end).then_some(start..end)
    }

    /// Gives a part of zeros, in whole pages.
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

    /// Puts a file, from byte `offset` on, in the place of what a part holds. False if that is no file that far memory can read.
    pub(crate) fn map_file(&self, part: &Range<usize>, file: BorrowedFd<'_>, offset: u64) -> bool {
        let first = self.in_region(part.start);
        threads::serving(|| self.region.map_file(first, part.len(), file, offset, FileChanges::Seen)).is_ok()
    }

    /// Has the file that the page before a part is of, if it is of one, go on in the part.
    pub(crate) fn map_more(&self, part: &Range<usize>) {
        change(|| self.region.map_more(self.in_region(part.start), part.len()));
    }

    /// Makes whole pages zeros, of whatever they were.
    pub(crate) fn clear(&self, part: &Range<usize>) {
        change(|| self.region.map_zeros(self.in_region(part.start), part.len()));
    }

    /// Takes a part back, of which the program has no right to any page any more. It is zeros when it is given again.
    pub(crate) fn unmap(&self, part: Range<usize>) {
        self.clear(&part);
        let first = self.offset(part.start);
        self.ranges().give(first, part.len() as u64);
    }

    /// Makes whole pages zeros, or what their file holds, and frees what they take.
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

    /// Adds the `more` bytes that follow an address to what ends there, if they are free.
    pub(crate) fn grow(&self, end: usize, more: usize) -> bool {
        let first = self.offset(end);
        whole_pages(more).is_some_and(|more| self.ranges().take_at(first, more))
    }

    /// Whether all of these addresses have been given.
    pub(crate) fn is_mapped(&self, part: &Range<usize>) -> bool {
        let first = self.offset(part.start);
        self.ranges().are_taken(first, part.len() as u64)
    }

    /// Notes that the whole pages of a part are locked. False if more were then than may be.
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

    /// Notes that a part is locked no more; what of it was.
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
