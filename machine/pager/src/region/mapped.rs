//! Regions with pages of files, and moving pages within a region.

use core::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use mapwire_host::masking::mask;
use mapwire_host::page::PAGE_BYTES;

use crate::error::PagerError;
use crate::frames;
use crate::region::Region;
use crate::region::origin::{FileChanges, Origins};
use crate::residency::RegionState;
use crate::store::PageId;
use crate::table::PageState;

/// Pages moved in one step, which exist twice in RAM or in the store.
const STEP_PAGES: u64 = 64;

impl Region {
    /// Maps a part of a file in place of the whole pages of `bytes` bytes from byte `offset` on, privately. Pages that the program does
    /// not change are read from the file when they are touched, and never stored; the file is never written to. Bytes behind its end are
    /// zero up to the end of the page; accesses further on raise SIGBUS. Nobody else may use the pages meanwhile.
    ///
    /// The region keeps a descriptor of the file. As usual, closing it releases this process's `fcntl` locks on the file.
    ///
    /// # Errors
    /// The range is not within the region; an offset is not a multiple of 4096; it is not a regular file open for reading; no descriptor
    /// is left.
    pub fn map_file(
        &self,
        offset: usize,
        bytes: usize,
        file: impl AsFd,
        file_offset: u64,
        changes: FileChanges,
    ) -> Result<(), PagerError> {
        let pages = self.pages(offset, bytes)?;
        // File offsets are signed.
        let end = file_offset.checked_add(bytes as u64);
        if !file_offset.is_multiple_of(PAGE_BYTES as u64) || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(PagerError::FileOffset { offset: file_offset });
        }
        let put = |origins: &Origins| {
            let file = file.as_fd();
            origins.with_file(pages.clone(), file, file_offset, changes).map(Some)
        };
        self.change_origins(&pages, put)
    }

    /// Replaces the whole pages of `bytes` bytes from byte `offset` on by zeros, whatever they were. Nobody else may use them meanwhile.
    ///
    /// # Errors
    /// The range is not within the region, or is not page-aligned.
    pub fn map_zeros(&self, offset: usize, bytes: usize) -> Result<(), PagerError> {
        let pages = self.pages(offset, bytes)?;
        self.change_origins(&pages, |origins| Ok(origins.without_any(&pages)))
    }

    /// As [`map_file`](Self::map_file), continuing the file of the page before `offset`; or [`map_zeros`](Self::map_zeros), if that is not
    /// of a file.
    ///
    /// # Errors
    /// As of [`map_zeros`](Self::map_zeros).
    pub fn map_more(&self, offset: usize, bytes: usize) -> Result<(), PagerError> {
        let pages = self.pages(offset, bytes)?;
        self.change_origins(&pages, |origins| Ok(origins.continued(&pages)))
    }

    /// Moves the whole pages of `bytes` bytes from byte `from` to byte `to`, replacing what is there, as `mremap` does; their former range
    /// is zero then. Both offsets are multiples of 4096, and the ranges do not overlap. Nobody else may use either meanwhile.
    ///
    /// Takes as long as reading and writing the pages that were ever touched: each comes into RAM on its way.
    ///
    /// # Errors
    /// A range is not within the region, overlaps the other, or is not page-aligned.
    pub fn remap(&self, from: usize, bytes: usize, to: usize) -> Result<(), PagerError> {
        let bytes = bytes / PAGE_BYTES * PAGE_BYTES;
        let (source, target) = (self.pages(from, bytes)?, self.pages(to, bytes)?);
        if from.abs_diff(to) < bytes {
            return Err(PagerError::Overlap { from, to, bytes });
        }
        // Both are of the file while pages move.
        let copy = |origins: &Origins| origins.copied(&source, target.start);
        self.change_origins(&target, |origins| Ok(Some(copy(origins))))?;
        let start = self.range().start;
        let mut at = source.start;
        while at < source.end {
            let end = source.end.min(at + STEP_PAGES);
            for page in (at..end).filter(|&page| self.is_touched(page)) {
                let offset = page as usize * PAGE_BYTES;
                frames::copy_pages(start + offset, start + offset - from + to, PAGE_BYTES);
            }
            self.discard(at as usize * PAGE_BYTES, (end - at) as usize * PAGE_BYTES)?;
            at = end;
        }
        self.change_origins(&source, |origins| Ok(origins.without_any(&source)))
    }

    /// Whether a page may differ from its origin.
    fn is_touched(&self, page: u64) -> bool {
        let id = PageId { region: self.number(), page };
        let _mask = mask();
        self.core().lock().entry(id).state() != PageState::Empty
    }

    /// The whole pages of a page-aligned range.
    fn pages(&self, offset: usize, bytes: usize) -> Result<Range<u64>, PagerError> {
        if !offset.is_multiple_of(PAGE_BYTES) {
            return Err(PagerError::Unaligned { address: self.range().start.wrapping_add(offset) });
        }
        let end = offset.checked_add(bytes);
        match end.filter(|&end| end <= self.bytes()) {
            Some(end) => Ok((offset / PAGE_BYTES) as u64..(end / PAGE_BYTES) as u64),
            None => Err(PagerError::OutOfRange { offset, bytes, region_bytes: self.bytes() }),
        }
    }

    /// Gives pages another origin, if `change` makes one, and forgets their contents. Allocates and frees for that without the lock.
    fn change_origins(
        &self,
        pages: &Range<u64>,
        change: impl Fn(&Origins) -> Result<Option<Origins>, PagerError>,
    ) -> Result<(), PagerError> {
        let (core, _mask) = (self.core(), mask());
        let mut is_done = pages.is_empty();
        while !is_done {
            let find = |region: &mut RegionState| Arc::clone(&region.origins);
            let before = core.lock().region(self.number()).map(find);
            let Some(before) = before else { break };
            let Some(after) = change(&before)?.map(Arc::new) else {
                break;
            };
            core.begin_change();
            let mut state = core.lock();
            if let Some(region) = state.region(self.number()) {
                // Another thread may have changed other pages.
                is_done = Arc::ptr_eq(&region.origins, &before);
                if is_done {
                    region.origins = after;
                }
            }
            drop(state);
            core.end_change();
        }
        // Last: until the change, read-ahead for the pages before these could reach into them.
        let offset = pages.start as usize * PAGE_BYTES;
        self.discard(offset, (pages.end - pages.start) as usize * PAGE_BYTES)
    }
}
