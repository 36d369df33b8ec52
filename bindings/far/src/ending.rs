//! `_exit`: programs that end by it run no `atexit` functions.

use std::ffi::c_int;

use crate::report;

/// _exit(2). Prints the figures first, if requested.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(code: c_int) -> ! {
    report::at_end();
    // SAFETY: ends the process, as the caller asks; nothing runs after it.
    unsafe {
        libc::syscall(libc::SYS_exit_group, code);
    }
    // The call above does not return.
    std::process::abort()
}

/// _Exit(3), the same by another name.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(code: c_int) -> ! {
    _exit(code)
}
