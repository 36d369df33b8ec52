//! The system calls that pin: `mlock`, and the buffer table of an io_uring.
//!
//! Pinning changes nothing that a program can see of its memory, so any address may be passed: the kernel reports an unmapped one as an
//! error.

use std::os::fd::AsRawFd;

use io_uring::IoUring;
use mapwire_translation::PageRange;
use rustix::io::Errno;

use crate::descriptors::make_above_stdio;
use crate::page::PAGE_BYTES;
use crate::processes::Owner;

fn span(pages: PageRange) -> Result<(usize, usize), Errno> {
    let end = pages.in_address_space().map_err(|_| Errno::NOMEM)?.end();
    let start = pages.first.address() as usize;
    Ok((start, end.address() as usize - start))
}

pub(super) fn lock(pages: PageRange) -> Result<(), Errno> {
    let (start, bytes) = span(pages)?;
    // SAFETY: mlock brings pages in and keeps them; contents and rights stay as they are.
    unsafe { rustix::mm::mlock(core::ptr::with_exposed_provenance_mut(start), bytes) }
}

pub(super) fn unlock(pages: PageRange) -> Result<(), Errno> {
    let (start, bytes) = span(pages)?;
    // SAFETY: munlock lets pages be evicted again; contents and rights stay as they are.
    unsafe { rustix::mm::munlock(core::ptr::with_exposed_provenance_mut(start), bytes) }
}

/// An io_uring of which only the table of buffers is used.
pub(super) struct BufferTable {
    ring: IoUring,
    owner: Owner,
}

impl BufferTable {
    pub(super) fn open() -> Result<Self, Errno> {
        let ring = make_above_stdio(|| IoUring::new(1)).map_err(|error| errno_of(&error))?;
        Ok(Self { ring, owner: Owner::me() })
    }

    /// Makes a table of `slots` empty slots.
    pub(super) fn make_slots(&self, slots: u32) -> Result<(), Errno> {
        self.ring.submitter().register_buffers_sparse(slots).map_err(|error| errno_of(&error))
    }

    /// Pins `pages` in `slot`, replacing its contents; on an error they stay.
    pub(super) fn fill(&self, slot: u32, pages: PageRange) -> Result<(), Errno> {
        let (start, bytes) = span(pages)?;
        self.update(slot, start, bytes)
    }

    /// Unpins the pages of `slot`.
    pub(super) fn clear(&self, slot: u32) -> Result<(), Errno> {
        self.update(slot, 0, 0)
    }

    #[inline]
    fn update(&self, slot: u32, start: usize, bytes: usize) -> Result<(), Errno> {
        debug_assert_eq!(bytes % PAGE_BYTES, 0);
        let buffer = libc::iovec { iov_base: core::ptr::with_exposed_provenance_mut(start), iov_len: bytes };
        // SAFETY: no operation is ever submitted to this ring, so the kernel neither reads nor
        // writes the buffer; it holds the pages, even should they be unmapped meanwhile.
        unsafe { self.ring.submitter().register_buffers_update(slot, &[buffer], None) }
            .map_err(|error| errno_of(&error))
    }
}

impl core::fmt::Debug for BufferTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "BufferTable({})", self.ring.as_raw_fd())
    }
}

impl Drop for BufferTable {
    fn drop(&mut self) {
        // Closing the ring unpins too, but some time later. A forked child shares the ring.
        if self.owner.is_me() {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
