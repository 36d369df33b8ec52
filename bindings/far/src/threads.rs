//! `pthread_create`: the C library's allocations for a thread must not be far, nor those of this library's threads.
//!
//! The former contain the thread's own variables, which this library needs too while a forked child has no far memory yet. The latter
//! serve page faults: ciphers, for instance, have memory of their own in C.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{ENOMEM, pthread_attr_t, pthread_t};

use crate::c_library::c_librarys_own;

thread_local! {
    /// Whether this thread is creating another.
    static IS_CREATING: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread does work for which far memory waits.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Number of threads that serve or create another. While it is 0, no thread reads its own variables.
static SPECIAL: AtomicUsize = AtomicUsize::new(0);

/// Whether this thread's allocations are the C library's: it creates another, or does work for which far memory waits.
#[inline]
pub(crate) fn wants_ram() -> bool {
    SPECIAL.load(Ordering::Relaxed) != 0 && (IS_CREATING.get() || SERVES.get())
}

/// Whether this thread does the work of this library.
pub(crate) fn is_serving() -> bool {
    SPECIAL.load(Ordering::Relaxed) != 0 && SERVES.get()
}

/// Runs `work` of this library, for which far memory may wait.
pub(crate) fn serving<T>(work: impl FnOnce() -> T) -> T {
    SPECIAL.fetch_add(1, Ordering::Relaxed);
    let before = SERVES.replace(true);
    let done = work();
    SERVES.set(before);
    SPECIAL.fetch_sub(1, Ordering::Relaxed);
    done
}

/// A thread of this library, which serves from its start to its end.
struct Server {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn serve(server: *mut c_void) -> *mut c_void {
    // SAFETY: made by `pthread_create` below, for this thread alone.
    let Server { start, argument } = *unsafe { Box::from_raw(server.cast::<Server>()) };
    // To its very end: its last frees are of the C library, too.
    SPECIAL.fetch_add(1, Ordering::Relaxed);
    SERVES.set(true);
    start(argument)
}

/// Whether a function belongs to this library.
fn is_of_this_library(function: Start) -> bool {
    let object = |address: *const c_void| {
        // SAFETY: all fields are pointers, for which zero is valid.
        let mut found: libc::Dl_info = unsafe { mem::zeroed() };
        // SAFETY: looks an address up, and writes what is given.
        let is_found = unsafe { libc::dladdr(address, &raw mut found) } != 0;
        is_found.then_some(found.dli_fbase)
    };
    let ours = object(serve as *const c_void);
    ours.is_some() && object(function as *const c_void) == ours
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

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
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let found = c_librarys_own(c"pthread_create", &FOUND);
    if found.is_null() {
        return ENOMEM;
    }
    // SAFETY: the C library's function of this name has this form.
    let create = unsafe { mem::transmute::<*mut c_void, Create>(found) };
    let server = is_of_this_library(start).then(|| Box::into_raw(Box::new(Server { start, argument })));
    let (start, argument) = match server {
        Some(server) => (serve as Start, server.cast()),
        None => (start, argument),
    };
    SPECIAL.fetch_add(1, Ordering::Relaxed);
    IS_CREATING.set(true);
    // SAFETY: by the caller's promise, and `serve` has what it needs.
    let code = unsafe { create(thread, attributes, start, argument) };
    IS_CREATING.set(false);
    SPECIAL.fetch_sub(1, Ordering::Relaxed);
    if let Some(server) = server.filter(|_| code != 0) {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(server) });
    }
    code
}
