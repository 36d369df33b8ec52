//! The system calls of a pinner, without the pinner.

use std::io;

use super::BenchError;
use mapwire_translation::PAGE_BYTES;

/// Pins pages, and gives them back.
pub(crate) struct Bare<'a> {
    pub(crate) pin: Box<dyn FnMut() -> Result<(), BenchError> + 'a>,
    pub(crate) unpin: Box<dyn FnMut() -> Result<(), BenchError> + 'a>,
}

fn outcome(code: libc::c_int) -> Result<(), BenchError> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}

/// `mlock` and `munlock` of the first `pages` pages of `memory`, which starts on a page.
pub(crate) fn mlock(memory: &[u8], pages: u64) -> Bare<'_> {
    let memory = &memory[..pages as usize * PAGE_BYTES];
    Bare {
        // SAFETY: locking changes nothing that the program sees; the range is borrowed, so it stays mapped.
        pin: Box::new(|| outcome(unsafe { libc::mlock(memory.as_ptr().cast(), memory.len()) })),
        // SAFETY: as above.
        unpin: Box::new(|| outcome(unsafe { libc::munlock(memory.as_ptr().cast(), memory.len()) })),
    }
}

/// An update of one registered buffer, of such pages.
pub(crate) fn uring<'a>(ring: &'a io_uring::IoUring, memory: &'a [u8], pages: u64) -> Bare<'a> {
    let memory = &memory[..pages as usize * PAGE_BYTES];
    let full = [libc::iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: memory.len() }];
    let empty = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
    let update = |buffers: [libc::iovec; 1]| {
        move || {
            // SAFETY: nothing is ever submitted to the ring, so the kernel only holds the pages, which stay mapped.
            unsafe { ring.submitter().register_buffers_update(0, &buffers, None) }?;
            Ok(())
        }
    };
    Bare { pin: Box::new(update(full)), unpin: Box::new(update(empty)) }
}
