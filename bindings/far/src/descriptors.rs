//! `close` and similar calls: a program that closes all unknown descriptors, or uses high numbers for its own, must not take those of far
//! memory.
//!
//! For the program, descriptors of this library are not open: `close` says so, and `close_range` skips them. `dup2` and `dup3` cannot have
//! their numbers. They close by themselves on `exec`.

use std::ffi::{c_int, c_uint};

use libc::{CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, EBADF, EBUSY, EINVAL};
use mapwire_host::descriptors::{first_of_ours, forget, is_ours};

use crate::calls::fail;
use crate::threads;

unsafe extern "C" {
    fn __close(descriptor: c_int) -> c_int;
    fn __dup2(old: c_int, new: c_int) -> c_int;
}

/// close(2). Threads that do the work of this library close its own descriptors.
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if is_ours(descriptor) {
        if !threads::is_serving() {
            return fail(EBADF);
        }
        forget(descriptor);
    }
    // SAFETY: by the caller's promise.
    unsafe { __close(descriptor) }
}

/// close_range(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // The threads of the library need the same descriptors as the program.
    let flags = flags & !(CLOSE_RANGE_UNSHARE as c_int);
    // SAFETY: by the caller's promise.
    let by_kernel =
        |first: c_uint, last: c_uint| unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int };
    // Ours are closed by exec anyway.
    if flags & CLOSE_RANGE_CLOEXEC as c_int != 0 || first > last {
        return by_kernel(first, last);
    }
    let mut from = first;
    while let Some(ours) = first_of_ours(from).filter(|&ours| ours <= last) {
        if ours > from && by_kernel(from, ours - 1) != 0 {
            return -1;
        }
        // Our numbers are far below the highest possible.
        from = ours + 1;
        if from > last {
            return 0;
        }
    }
    by_kernel(from, last)
}

/// closefrom(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: by the caller's promise.
    unsafe {
        close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }
}

/// dup2(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    match is_ours(new) || is_ours(old) {
        true => fail(if is_ours(old) { EBADF } else { EBUSY }),
        // SAFETY: by the caller's promise.
        false => unsafe { __dup2(old, new) },
    }
}

/// dup3(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    match is_ours(new) || is_ours(old) {
        true if old == new => fail(EINVAL),
        true => fail(if is_ours(old) { EBADF } else { EBUSY }),
        // SAFETY: by the caller's promise.
        false => unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) as c_int },
    }
}
