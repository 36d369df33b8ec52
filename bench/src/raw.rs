//! Bare system calls and bare memory, for baselines.

use std::io;

use super::BenchError;
use mapwire_translation::PAGE_BYTES;

/// The system calls of a pinner, without the pinner.
pub(crate) trait Bare {
    /// Pins.
    fn pin(&mut self) -> Result<(), BenchError>;
    /// Gives back.
    fn unpin(&mut self) -> Result<(), BenchError>;
}

/// `mlock` and `munlock`.
pub(crate) struct BareMlock {
    address: *const libc::c_void,
    bytes: usize,
}

impl BareMlock {
    /// For the first `pages` pages of `memory`, which starts on a page and stays where it is.
    pub(crate) fn new(memory: &[u8], pages: u64) -> Self {
        let bytes = pages as usize * PAGE_BYTES;
        assert!(bytes <= memory.len());
        Self { address: memory.as_ptr().cast(), bytes }
    }
}

impl Bare for BareMlock {
    fn pin(&mut self) -> Result<(), BenchError> {
        // SAFETY: locking changes nothing that the program sees; the kernel checks the range.
        if unsafe { libc::mlock(self.address, self.bytes) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error().into())
        }
    }

    fn unpin(&mut self) -> Result<(), BenchError> {
        // SAFETY: as in `pin`.
        if unsafe { libc::munlock(self.address, self.bytes) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error().into())
        }
    }
}

/// An update of one registered buffer.
pub(crate) struct BareUring {
    ring: io_uring::IoUring,
    full: [libc::iovec; 1],
    empty: [libc::iovec; 1],
}

impl BareUring {
    /// As [`BareMlock::new`].
    pub(crate) fn new(memory: &[u8], pages: u64) -> Result<Self, BenchError> {
        let bytes = pages as usize * PAGE_BYTES;
        assert!(bytes <= memory.len());
        let ring = io_uring::IoUring::new(1)?;
        ring.submitter().register_buffers_sparse(16_384)?;
        let full = [libc::iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: bytes }];
        let empty = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
        Ok(Self { ring, full, empty })
    }
}

impl Bare for BareUring {
    fn pin(&mut self) -> Result<(), BenchError> {
        // SAFETY: nothing is ever submitted to the ring, so the kernel only holds the pages, which stay mapped.
        unsafe { self.ring.submitter().register_buffers_update(0, &self.full, None) }?;
        Ok(())
    }

    fn unpin(&mut self) -> Result<(), BenchError> {
        // SAFETY: as in `pin`.
        unsafe { self.ring.submitter().register_buffers_update(0, &self.empty, None) }?;
        Ok(())
    }
}
