//! Far memory as bytes.
//!
//! # Why references are sound
//! The memory is private to this process and to its slice, and the pager gives back the bytes that were there or raises SIGBUS: pages of
//! a disk are checked by a checksum, and pages of a file that changed are refused once they have been seen
//! ([`FileChanges::Refused`]). A signal ends the process, as running out of stack does; a handler that goes on by itself is unsafe code.

use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use core::slice;
use std::os::fd::BorrowedFd;

use mapwire_host::page::PAGE_BYTES;
use mapwire_pager::{FileChanges, Region};

use super::error::FarError;
use crate::error::{Result, check_range};

/// Bytes in far memory, which begin on a page of 4096. Freed when dropped.
pub struct FarSlice {
    region: Region,
    bytes: usize,
}

impl FarSlice {
    /// The first bytes of a region that nobody else uses.
    pub(super) fn new(region: Region, bytes: usize) -> Self {
        Self { region, bytes }
    }

    /// Puts a file in their place, before anybody has seen them.
    pub(super) fn map(&self, file: BorrowedFd<'_>, offset: u64, changes: FileChanges) -> Result<()> {
        let bytes = self.region.bytes();
        let mapped = self.region.map_file(0, bytes, file, offset, changes);
        Ok(mapped.map_err(FarError::from)?)
    }

    /// Makes the whole pages within a range zeros, or what their file holds, and frees what they take in RAM and on the disk.
    ///
    /// # Errors
    /// The range is not within the slice.
    pub fn discard(&mut self, range: Range<usize>) -> Result<()> {
        let (offset, length) = (range.start, range.end.saturating_sub(range.start));
        check_range(offset as u64, length as u64, self.bytes as u64)?;
        // Nobody sees what is behind the last byte.
        let length = if range.end == self.bytes { range.end.next_multiple_of(PAGE_BYTES) - offset } else { length };
        let discarded = self.region.discard(offset, length);
        Ok(discarded.map_err(FarError::from)?)
    }

    /// The first byte, which stays where it is.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.region.as_ptr()
    }

    /// As [`as_ptr`](Self::as_ptr), to store there too. Makes no reference to the bytes.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.region.as_ptr()
    }
}

impl Deref for FarSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes of the region, which is mapped for as long as it is borrowed; why they change by stores through this
        // slice alone is told above. `alloc` bounds them by the address space.
        unsafe { slice::from_raw_parts(self.region.as_ptr(), self.bytes) }
    }
}

impl DerefMut for FarSlice {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the slice is borrowed for this alone.
        unsafe { slice::from_raw_parts_mut(self.region.as_ptr(), self.bytes) }
    }
}

impl AsRef<[u8]> for FarSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for FarSlice {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for FarSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the bytes: they may be many.
        let address = self.region.as_ptr();
        write!(f, "FarSlice({} bytes at {address:p})", self.bytes)
    }
}
