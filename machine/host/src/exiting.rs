//! Actions when the process exits by `exit` or by returning from `main`.
//!
//! The C library calls back in the exiting thread, in reverse order of registration, after destroying its thread-local values. Exits that
//! bypass the C library (`_exit`, `quick_exit`, `abort`, a signal) are not seen.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

/// Called at exit with the program's exit code; returns the code to exit with instead.
pub type AtExit = fn(i32) -> i32;

static AT_EXIT: OnceLock<AtExit> = OnceLock::new();

/// The process that registered: a forked child inherits the registration, and does nothing.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The exiting thread; 0 before.
static EXITING: AtomicI32 = AtomicI32::new(0);

/// When it began to exit.
static SINCE: OnceLock<Instant> = OnceLock::new();

unsafe extern "C" {
    /// on_exit(3), of glibc: as `atexit`, and passes the code.
    safe fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    /// exit(3). In a function of `on_exit`, glibc continues with the remaining ones, and ends with this code.
    safe fn exit(code: c_int) -> !;
}

/// Has `at_exit` called once when this process exits. Only the first call in a process counts.
pub fn register(at_exit: AtExit) {
    PROCESS.store(std::process::id(), Ordering::Release);
    AT_EXIT.get_or_init(|| {
        stay_loaded();
        // It fails only without memory; then the exit is as without it.
        on_exit(run, ptr::null_mut());
        at_exit
    });
}

/// Whether this process exits.
#[must_use]
pub fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire) != 0
}

/// When another thread began to exit, whose code may end this process at any time; `None` if none has.
#[must_use]
pub fn exits_elsewhere_since() -> Option<Instant> {
    let since = SINCE.get().copied();
    since.filter(|_| EXITING.load(Ordering::Acquire) != own_thread())
}

fn own_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

extern "C" fn run(code: c_int, _: *mut c_void) {
    let is_own = PROCESS.load(Ordering::Acquire) == std::process::id();
    let Some(at_exit) = AT_EXIT.get().filter(|_| is_own) else {
        return;
    };
    EXITING.store(own_thread(), Ordering::Release);
    SINCE.get_or_init(Instant::now);
    let changed = at_exit(code);
    if changed != code {
        exit(changed);
    }
}

/// Keeps the library that contains this loaded after `dlclose`, since the registration stays.
fn stay_loaded() {
    let own: AtExit = |code| code;
    let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address is only looked up; `found` has room for what is told of it.
    if unsafe { libc::dladdr(own as *const c_void, found.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: all zeros are a value of the type, and the call may have written another.
    let name = unsafe { found.assume_init() }.dli_fname;
    // SAFETY: the name is a C string of the loader, which keeps it while the library is loaded. Nothing is loaded anew. For the program
    // itself, which is never unloaded, the call does nothing.
    unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}
