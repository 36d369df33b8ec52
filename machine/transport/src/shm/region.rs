//! Memory mapped by two processes, and the few ways in which it may be touched.
//!
//! The peer may write any byte of it at any time. So no reference to its bytes is ever made: words are atomics, and
//! everything else moves by copies between raw addresses that are checked against the region's size.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A mapping that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the region is an address range owned by this value; every access goes through raw copies or atomics.
unsafe impl Send for Region {}
// SAFETY: as above; shared access from several threads is no different from access by the peer process.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `len_bytes` of `fd`, shared, readable and writable, and left out of core dumps. The caller has checked
    /// that the file is that long and cannot shrink.
    pub(crate) fn map(fd: BorrowedFd<'_>, len_bytes: usize) -> rustix::io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice cannot alias anything of ours.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let region = Self::from_raw(base, len_bytes)?;
        // SAFETY: the advice concerns the mapping just made, and changes no byte.
        unsafe { rustix::mm::madvise(base, len_bytes, Advice::LinuxDontDump) }?;
        Ok(region)
    }

    /// Maps the first `len_bytes` of `fd`, shared, for reading only: [`Self::at`] may then be used for reads, and of words
    /// relaxed loads, which are the loads that may be done on such memory. The caller has checked that the file is that long and cannot shrink.
    pub(crate) fn map_read_only(fd: BorrowedFd<'_>, len_bytes: usize) -> rustix::io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice cannot alias anything of ours.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        Self::from_raw(base, len_bytes)
    }

    /// Maps `len_bytes` of fresh zeroed memory, private to this process.
    pub(crate) fn anonymous(len_bytes: usize) -> rustix::io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice cannot alias anything of ours.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        Self::from_raw(base, len_bytes)
    }

    fn from_raw(base: *mut core::ffi::c_void, len_bytes: usize) -> rustix::io::Result<Self> {
        match NonNull::new(base.cast::<u8>()) {
            Some(base) => Ok(Self { base, len_bytes }),
            None => Err(rustix::io::Errno::NOMEM),
        }
    }

    /// Makes the pages of `[offset, offset + len_bytes)` present now, so that the first packets take no page
    /// faults. Best effort: an old kernel refuses, which costs only time.
    pub(crate) fn prefault(&self, offset: usize, len_bytes: usize) {
        let address = self.at(offset, len_bytes);
        // SAFETY: `at` checked that the range lies inside the mapping; populating changes no byte.
        let _ =
            unsafe { rustix::mm::madvise(address.cast(), len_bytes, Advice::LinuxPopulateWrite) };
    }

    /// Address of `[offset, offset + len_bytes)`. Panics when that is not inside the region: offsets come from
    /// this process' own arithmetic, never from the peer.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize, len_bytes: usize) -> *mut u8 {
        assert!(
            offset <= self.len_bytes && len_bytes <= self.len_bytes - offset,
            "range outside the region"
        );
        // SAFETY: the assertion keeps the offset within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 64-bit word at `offset`, a multiple of 8.
    #[inline(always)]
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word not aligned");
        // SAFETY: in range (checked by `at`), aligned (the base is a page), and accessed as an atomic only.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// The 32-bit word at `offset`, a multiple of 4.
    #[inline(always)]
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "word not aligned");
        // SAFETY: in range (checked by `at`), aligned (the base is a page), and accessed as an atomic only.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and every user of it holds the value alive.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}
