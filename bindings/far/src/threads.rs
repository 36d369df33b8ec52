//! `pthread_create`: what the C library allocates for a thread must not be far.
//!
//! It holds where the thread's own variables are, which this library needs too while a forked child has no far memory yet.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

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

type Create =
    unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// The C library's function, which is looked up once: `dlsym` frees what an earlier failure of the program has left, and in a child
/// that is being made there is nothing that could free it.
fn c_librarys_own() -> Option<Create> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: looks a name up, in the libraries behind this one.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name has this form, and a pointer to it is not null.
    (!found.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Create>(found) })
}

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
    let Some(create) = c_librarys_own() else {
        return ENOMEM;
    };
    CREATING.fetch_add(1, Ordering::Relaxed);
    IS_CREATING.set(true);
    // SAFETY: by the caller's promise.
    let code = unsafe { create(thread, attributes, start, argument) };
    IS_CREATING.set(false);
    CREATING.fetch_sub(1, Ordering::Relaxed);
    code
}
