//! `pthread_create`: what the C library allocates for a thread must not be far.
//!
//! It holds where the thread's own variables are, which this library needs too while a forked child has no far memory yet.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{ENOMEM, pthread_attr_t, pthread_t};

/// Threads that create another.
static CREATING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this one does.
    static IS_CREATING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread creates another, so that what it allocates is the C library's.
#[inline]
pub(crate) fn is_creating() -> bool {
    CREATING.load(Ordering::Relaxed) != 0 && IS_CREATING.get()
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// pthread_create(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Create =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    // SAFETY: looks a name up, in the libraries behind this one.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
    if found.is_null() {
        return ENOMEM;
    }
    CREATING.fetch_add(1, Ordering::Relaxed);
    IS_CREATING.set(true);
    // SAFETY: the C library's function of this name has this form; the rest is the caller's promise.
    let code = unsafe {
        let create: Create = mem::transmute(found);
        create(thread, attributes, start, argument)
    };
    IS_CREATING.set(false);
    CREATING.fetch_sub(1, Ordering::Relaxed);
    code
}
