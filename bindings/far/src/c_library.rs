//! Functions of the C library that this one replaces.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The C library's function of this name, which is looked up once: `dlsym` frees what an earlier failure of the program has left, and in a
/// child that is being made there is nothing that could free it. Null if there is none.
pub(crate) fn c_librarys_own(name: &CStr, found: &AtomicPtr<c_void>) -> *mut c_void {
    let known = found.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: looks a name up, in the libraries behind this one.
    let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    found.store(known, Ordering::Relaxed);
    known
}
