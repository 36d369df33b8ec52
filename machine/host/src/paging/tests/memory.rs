//! Loads and stores of the tests.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::page::PAGE_BYTES;
use crate::paging::Region;

/// Words of a page.
pub(super) const WORDS: usize = PAGE_BYTES / 8;

/// The words of a region.
pub(super) fn words(region: &Region) -> &[AtomicU64] {
    // SAFETY: the region is mapped for as long as it is borrowed, begins on a page, and is zero at first; all accesses are atomic.
    unsafe { core::slice::from_raw_parts(region.as_ptr().cast(), region.bytes() / 8) }
}

pub(super) fn load(region: &Region, word: usize) -> u64 {
    words(region)[word].load(Ordering::SeqCst)
}

pub(super) fn store(region: &Region, word: usize, value: u64) {
    words(region)[word].store(value, Ordering::SeqCst);
}

/// The bytes of a region, for system calls. Nobody else uses them meanwhile.
pub(super) fn bytes(region: &mut Region) -> &mut [u8] {
    // SAFETY: as in `words`, and the region is borrowed for this alone.
    unsafe { core::slice::from_raw_parts_mut(region.as_ptr(), region.bytes()) }
}

/// Drops a page as a program does that knows of no pager.
pub(super) fn drop_page(region: &Region, page: usize) {
    let start = region.as_ptr().wrapping_add(page * PAGE_BYTES);
    // SAFETY: a page of the region, which holds plain words.
    unsafe { rustix::mm::madvise(start.cast(), PAGE_BYTES, rustix::mm::Advice::LinuxDontNeed) }
        .unwrap();
}

/// Runs `body` in a forked child; how that ended.
pub(super) fn forked(body: impl FnOnce()) -> std::process::ExitStatus {
    // SAFETY: the child runs `body` alone, and ends.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            body();
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, 0);
        std::os::unix::process::ExitStatusExt::from_raw(status)
    }
}
