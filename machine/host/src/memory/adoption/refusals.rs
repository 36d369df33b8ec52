//! Memory that is not adopted, and why.

use core::ffi::c_void;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::faults::Paged;
use crate::limits;
use crate::maps::{Maps, mapped_ranges};
use crate::page::PAGE_BYTES;
use crate::procmap::MappedRange;

/// Loading some page faults: a guard page, or one behind the end of a file.
pub(super) const NOT_THERE: &str = "not there throughout";

/// Pages of it are stored elsewhere, and look untouched.
pub(super) const FAR: &str = "far memory, or other memory whose missing pages a userfaultfd serves";

/// From this length on a stranger's range may contain a whole stack: the smallest that a C library makes is not much shorter.
const STACK_BYTES: usize = 64 << 10;

/// An upper bound on what the C library keeps for a thread from [`pthread_self`](libc::pthread_self) on.
const THREAD_BYTES: usize = 4096;

/// Checks that one more adoption, besides `adoptions`, leaves the program what it needs.
///
/// # Errors
/// Names what is in the way.
pub(super) fn check_count(adoptions: usize) -> Result<(), &'static str> {
    if adoptions >= most_adoptions() {
        return Err("one of too many exports: they take a quarter of RLIMIT_NOFILE already");
    }
    check_ranges()
}

/// Most adoptions at a time: each takes two descriptors, of which the program may need many.
pub(super) fn most_adoptions() -> usize {
    limits::descriptors().0.map_or(usize::MAX, |descriptors| descriptors as usize / 8)
}

/// Checks that enough mapped ranges are left. An adoption splits up to two, and the kernel does not rejoin what came back with its
/// neighbours: a program that exports many small pieces would run out of them.
fn check_ranges() -> Result<(), &'static str> {
    /// Most splits since the ranges were counted last.
    static SPLIT: AtomicUsize = AtomicUsize::new(0);
    let most = most_ranges();
    if SPLIT.fetch_add(2, Ordering::Relaxed) < most / 8 {
        return Ok(());
    }
    if mapped_ranges().len() > most / 2 {
        return Err("in a process that has half of the mapped ranges that vm.max_map_count allows");
    }
    SPLIT.store(0, Ordering::Relaxed);
    Ok(())
}

/// `vm.max_map_count`, read once; the kernel's default if that is unreadable.
fn most_ranges() -> usize {
    static MOST: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *MOST.get_or_init(|| limits::max_map_count().map_or(65530, |most| most as usize))
}

/// The mapped ranges that cover `bytes` at `start`, cut to them.
///
/// # Errors
/// Why one of them is not private data that could move.
pub(super) fn private_ranges(start: usize, bytes: usize) -> Result<Vec<MappedRange>, &'static str> {
    let here = 0_u8;
    let stacks = [(&raw const here).addr(), rustix::param::linux_execfn().as_ptr().addr()];
    // The C library keeps its own data of a thread on top of its stack. Memory above does not count: before Linux 6.7 the kernel joins a
    // stack with memory that was mapped before its thread began.
    // SAFETY: only returns an address.
    let own = unsafe { libc::pthread_self() as usize };
    let above = (own + THREAD_BYTES).next_multiple_of(PAGE_BYTES);
    let mut maps = Maps::default();
    let mut paged = None;
    let mut ranges = Vec::new();
    let (mut at, end) = (start, start + bytes);
    while at < end {
        let mut range =
            maps.at_or_after(at).filter(|range| range.start <= at).ok_or_else(|| match maps.is_blind() {
                true => "of a kind that only /proc tells, which is not mounted",
                false => "not all mapped",
            })?;
        if !range.readable || !range.writable {
            return Err("not open to loads and stores");
        }
        if range.executable {
            return Err("executable");
        }
        if range.shared {
            return Err("shared with other processes or exported already");
        }
        if range.page_bytes != PAGE_BYTES as u64 {
            return Err("of huge pages");
        }
        if range.inode == 0 && paged.get_or_insert_with(Paged::new).has(range.start) {
            return Err(FAR);
        }
        let has = |place: &usize| (range.start..range.end).contains(place);
        if stacks.iter().any(has) && !(has(&above) && at >= above) {
            return Err("on a stack");
        }
        let next = range.end;
        range.start = at;
        range.end = next.min(end);
        ranges.push(range);
        at = next;
    }
    if has_thread(&(start..end)) {
        return Err("what the C library keeps for a thread");
    }
    Ok(ranges)
}

/// Whether the range contains data that the C library and the kernel keep for a thread, and store to at any time: on top of the stack of
/// all threads but the first. Of other threads only a longer range is checked.
pub(super) fn has_thread(range: &Range<usize>) -> bool {
    // SAFETY: both give an address.
    let own = unsafe { [libc::__errno_location().addr(), libc::pthread_self() as usize] };
    if own.iter().any(|at| range.contains(at)) {
        return true;
    }
    range.len() >= STACK_BYTES
        && std::fs::read_dir("/proc/self/task").is_ok_and(|threads| {
            threads.flatten().any(|thread| {
                let number = thread.file_name().to_str().and_then(|name| name.parse().ok());
                let list = number.and_then(robust_list);
                list.is_some_and(|list| range.contains(&list))
            })
        })
}

/// Where the C library lists the robust mutexes of a thread of this process: in the middle of its data for the thread.
fn robust_list(thread: libc::pid_t) -> Option<usize> {
    let mut head: *mut c_void = ptr::null_mut();
    let mut bytes = 0_usize;
    // SAFETY: the kernel writes an address and a length to where they have room.
    let asked = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut bytes) };
    (asked == 0 && !head.is_null()).then(|| head.addr())
}
