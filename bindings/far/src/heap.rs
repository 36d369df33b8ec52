//! `malloc` and similar calls: mimalloc's, once far memory is on. Earlier memory of the C library's allocator returns to it.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{EINVAL, ENOMEM};
use libmimalloc_sys as mi;

use crate::calls::refuse;
use crate::state::space;
use crate::{inner, threads};

/// What the program gets; `errno` says so where there is no memory.
fn given(memory: *mut c_void) -> *mut c_void {
    if memory.is_null() {
        refuse(ENOMEM);
    }
    memory
}

/// Whether new allocations are far.
fn gives_far() -> bool {
    space().is_some() && !threads::wants_ram()
}

/// Whether memory is mimalloc's. Nearly all of that is far; pieces with a large alignment may be in small mappings, which are not.
fn is_far(memory: *const c_void) -> bool {
    let Some(space) = space() else { return false };
    if space.has(memory.addr()) {
        return true;
    }
    // Threads that far memory waits for have none of those, and must not read mimalloc's far tables.
    // SAFETY: any address will do.
    !threads::wants_ram() && unsafe { mi::mi_is_in_heap_region(memory) }
}

/// malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match gives_far() {
        // SAFETY: any size will do.
        true => given(unsafe { mi::mi_malloc(bytes) }),
        false => inner::malloc(bytes),
    }
}

/// calloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match gives_far() {
        // SAFETY: any size will do.
        true => given(unsafe { mi::mi_calloc(count, bytes) }),
        false => inner::calloc(count, bytes),
    }
}

/// realloc(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if memory.is_null() {
        return malloc(bytes);
    }
    // SAFETY: by the caller's promise the memory is of either allocator, and its address tells of which.
    unsafe {
        match is_far(memory) {
            true => given(mi::mi_realloc(memory, bytes)),
            false => inner::realloc(memory, bytes),
        }
    }
}

/// reallocarray(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(memory: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: by the caller's promise.
        Some(bytes) => unsafe { realloc(memory, bytes) },
        None => given(ptr::null_mut()),
    }
}

/// free(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: by the caller's promise the memory is of either allocator, and its address tells of which.
    unsafe {
        match is_far(memory) {
            true => mi::mi_free(memory),
            false => inner::free(memory),
        }
    }
}

/// malloc_usable_size(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    if is_far(memory) {
        // SAFETY: the memory is mimalloc's.
        return unsafe { mi::mi_usable_size(memory) };
    }
    match memory.is_null() {
        true => 0,
        false => {
            // The C library's own function is hidden behind this one. The size of a chunk precedes it, with three flag bits.
            // SAFETY: the memory is of the C library's allocator, whose chunks have looked so since its first versions.
            let size = unsafe { memory.cast::<usize>().sub(1).read() };
            let is_mapped = size & 2 != 0;
            (size & !7) - if is_mapped { 16 } else { 8 }
        }
    }
}

/// memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    match gives_far() {
        // As the C library does.
        true => match alignment.max(1).checked_next_power_of_two() {
            // SAFETY: the alignment is a power of two.
            Some(alignment) => given(unsafe { mi::mi_malloc_aligned(bytes, alignment) }),
            None => given(ptr::null_mut()),
        },
        false => inner::memalign(alignment, bytes),
    }
}

/// aligned_alloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    if !alignment.is_power_of_two() {
        refuse(EINVAL);
        return ptr::null_mut();
    }
    memalign(alignment, bytes)
}

/// posix_memalign(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(result: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return EINVAL;
    }
    let memory = memalign(alignment, bytes);
    if memory.is_null() {
        return ENOMEM;
    }
    // SAFETY: by the caller's promise there is room for a pointer.
    unsafe { result.write(memory) };
    0
}

/// valloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    memalign(mapwire_host::page::PAGE_BYTES, bytes)
}

/// pvalloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(mapwire_host::page::PAGE_BYTES) {
        Some(bytes) => valloc(bytes),
        None => given(ptr::null_mut()),
    }
}
