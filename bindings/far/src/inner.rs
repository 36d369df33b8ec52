//! The C library's own allocator, bypassing its replacements.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

unsafe extern "C" {
    #[link_name = "__libc_malloc"]
    pub(crate) safe fn malloc(bytes: usize) -> *mut c_void;
    #[link_name = "__libc_calloc"]
    pub(crate) safe fn calloc(count: usize, bytes: usize) -> *mut c_void;
    #[link_name = "__libc_memalign"]
    pub(crate) safe fn memalign(alignment: usize, bytes: usize) -> *mut c_void;
    /// As `realloc`, of memory of this allocator.
    #[link_name = "__libc_realloc"]
    pub(crate) fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
    /// As `free`, of memory of this allocator.
    #[link_name = "__libc_free"]
    pub(crate) fn free(memory: *mut c_void);
}

const ALIGNMENT: usize = 16;

/// Rust's memory in this library.
pub(crate) struct Inner;

// SAFETY: the C library's allocator keeps what the trait asks for; larger alignments are asked of it as such.
unsafe impl GlobalAlloc for Inner {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.align() > ALIGNMENT {
            true => memalign(layout.align(), layout.size()).cast(),
            false => malloc(layout.size()).cast(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return calloc(1, layout.size()).cast();
        }
        let memory: *mut u8 = memalign(layout.align(), layout.size()).cast();
        if !memory.is_null() {
            // SAFETY: so many bytes were just allocated.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            // SAFETY: the memory was allocated here, by the caller's promise.
            return unsafe { realloc(memory.cast(), bytes).cast() };
        }
        let moved: *mut u8 = memalign(layout.align(), bytes).cast();
        if !moved.is_null() {
            // SAFETY: both are allocated and apart, and the shorter length is copied.
            unsafe {
                moved.copy_from_nonoverlapping(memory, layout.size().min(bytes));
                free(memory.cast());
            }
        }
        moved
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the memory was allocated here, by the caller's promise.
        unsafe { free(memory.cast()) }
    }
}
