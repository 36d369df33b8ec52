//! The system's allocator, counting what each thread asks of it and holds: the allocator of every program that has this file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// How often the calling thread has allocated or freed memory.
pub(crate) fn calls() -> u64 {
    CALLS.with(Cell::get)
}

/// Bytes that the calling thread has allocated, less those that it has freed.
#[allow(dead_code, reason = "not every test asks")]
pub(crate) fn bytes() -> i64 {
    BYTES.with(Cell::get)
}

fn count(new: usize, old: usize) {
    // A thread that is ending has lost its counters; nobody asks for them any more.
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + new as i64 - old as i64));
}

// SAFETY: every call is passed unchanged to the system's allocator, whose contract is this one's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as in `alloc`. The OS zeroes large tables page by page, on first use.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: `at` came from `alloc` above, and so from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes, layout.size());
        // SAFETY: `at` came from `alloc` above, and so from the system's allocator.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
