//! `dlopen`: libraries opened with `RTLD_DEEPBIND` find the C library before this one. Their `free` would get far memory, and the
//! program's `free` theirs. Without that flag one allocator serves all.
//!
//! The C library looks libraries up for its caller, which it finds by the return address. These functions must keep that address: they
//! jump to the C library's own.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;

use libc::RTLD_DEEPBIND;

use crate::c_library::c_librarys_own;
use crate::state::space;

/// dlopen(3).
///
/// # Safety
/// As it says.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "lea rdi, [rsp + 8]",
        "call {prepare}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        prepare = sym prepare,
    )
}

/// dlopen(3).
///
/// # Safety
/// As it says.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "add x0, sp, #24",
        "bl {prepare}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        prepare = sym prepare,
    )
}

/// Removes the flag from the flags of a `dlopen` call, if far memory is on. Returns the C library's own function.
///
/// # Safety
/// `flags` is the caller's.
unsafe extern "C" fn prepare(flags: *mut c_int) -> *mut c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    if space().is_some() {
        // SAFETY: by the caller's promise.
        unsafe { *flags &= !RTLD_DEEPBIND };
    }
    let found = c_librarys_own(c"dlopen", &FOUND);
    match found.is_null() {
        true => no_libraries as *mut c_void,
        false => found,
    }
}

/// In place of the C library's own where that is not found.
extern "C" fn no_libraries() -> *mut c_void {
    ptr::null_mut()
}
