//! Loads and stores of the tests.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use mapwire_host::page::PAGE_BYTES;

use crate::{Frozen, Pager, Region};

/// Number of words in a page.
pub(super) const WORDS: usize = PAGE_BYTES / 8;

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

/// Drops a page as a program unaware of the pager does.
pub(super) fn drop_page(region: &Region, page: usize) {
    let start = region.as_ptr().wrapping_add(page * PAGE_BYTES);
    // SAFETY: a page of the region, which holds plain words.
    unsafe { rustix::mm::madvise(start.cast(), PAGE_BYTES, rustix::mm::Advice::LinuxDontNeed) }.unwrap();
}

/// Forks with the pager frozen. `body` runs in the child with the words of its first region, which has the same addresses, and its new
/// pager; the parent gets the child's number.
pub(super) fn fork_frozen(pager: &Pager, region: &Region, body: impl FnOnce(&Pager, &Region)) -> libc::pid_t {
    fork_of(pager.freeze().unwrap(), |pager, child| {
        assert_eq!(child.range(), region.range());
        body(pager, child);
    })
}

/// As [`fork_frozen`], with a pager that is frozen already.
pub(super) fn fork_of(frozen: Frozen, body: impl FnOnce(&Pager, &Region)) -> libc::pid_t {
    // SAFETY: the child runs `body` alone, and ends without dropping anything of the parent's.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        drop(frozen);
        return pid;
    }
    let run = std::panic::AssertUnwindSafe(|| {
        // SAFETY: this is the child's only thread, and `body` gets the new pager and regions alone.
        let (pager, regions) = unsafe { frozen.revive() }.unwrap();
        body(&pager, &regions[0]);
        core::mem::forget((pager, regions));
    });
    let code = i32::from(std::panic::catch_unwind(run).is_err());
    // SAFETY: ends the child.
    unsafe { libc::_exit(code) }
}

/// Waits until the child ended well. Sleeps meanwhile: in a long chain of processes, each waits for the next.
pub(super) fn join(pid: libc::pid_t, name: &str) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let child = rustix::process::Pid::from_raw(pid).unwrap();
    let flags = rustix::process::PidfdFlags::empty();
    let end = rustix::process::pidfd_open(child, flags).unwrap();
    let limit = Timespec { tv_sec: 300, tv_nsec: 0 };
    let wait = || poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit));
    if rustix::io::retry_on_intr(wait).unwrap() == 0 {
        // SAFETY: the child is this process's, and was not waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        panic!("{name}: the child hangs");
    }
    let mut status = 0;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "{name}: the child ended with {status:#x}");
}

/// Closes a page to loads and stores, or opens it again, as a program unaware of the pager does.
pub(super) fn close_page(region: &Region, page: usize, close: bool) {
    use rustix::mm::MprotectFlags;
    let start = region.as_ptr().wrapping_add(page * PAGE_BYTES);
    let rights = match close {
        true => MprotectFlags::empty(),
        false => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: a page of the region, which holds plain words.
    unsafe { rustix::mm::mprotect(start.cast(), PAGE_BYTES, rights) }.unwrap();
}

/// Blocks stores to all of a region, as a program unaware of the pager does.
pub(super) fn allow_loads_only(region: &Region) {
    use rustix::mm::MprotectFlags;
    // SAFETY: the region holds plain words.
    unsafe { rustix::mm::mprotect(region.as_ptr().cast(), region.bytes(), MprotectFlags::READ) }.unwrap();
}

/// Runs `body` in a forked child; returns how that ended.
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

/// Blocks stores to a page, which splits the mapping.
pub(super) fn protect_page(region: &Region, page: usize) {
    let address = region.range().start + page * PAGE_BYTES;
    // SAFETY: the page is the region's, of which the tests make no references.
    let failed = unsafe { libc::mprotect(address as *mut libc::c_void, PAGE_BYTES, libc::PROT_READ) };
    assert_eq!(failed, 0);
}
