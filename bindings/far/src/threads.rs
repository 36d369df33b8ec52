//! `pthread_create`, which must take no far memory: a thread finds its thread-local variables by a table that is allocated then. A
//! forked child uses them before it has its memory.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};

/// The thread that creates another; 0: none.
static CREATOR: AtomicU32 = AtomicU32::new(0);

fn current() -> u32 {
    // SAFETY: the call has no arguments, and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Whether what the calling thread allocates must not be far.
#[inline]
pub(crate) fn is_creating() -> bool {
    let creator = CREATOR.load(Ordering::Relaxed);
    creator != 0 && creator == current()
}

/// In a forked child: the thread that created another is not there.
pub(crate) fn forget_creator() {
    CREATOR.store(0, Ordering::Relaxed);
}

type Body = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Body,
    *mut c_void,
) -> c_int;

/// pthread_create(3).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: looks a name up, in the libraries behind this one.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
    if found.is_null() {
        return libc::EAGAIN;
    }
    let me = current();
    // No lock of the C library: a forked child could not let it go.
    while CREATOR
        .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        std::thread::yield_now();
    }
    // SAFETY: the C library's function has this form; the rest is the caller's promise.
    let result = unsafe {
        let create: Create = mem::transmute(found);
        create(thread, attributes, body, argument)
    };
    CREATOR.store(0, Ordering::Release);
    result
}
