//! Far memory in a forked child: as it was at the fork, with a pager of its own.
//!
//! Handlers of `pthread_atfork` freeze the pager before the fork, thaw it in the parent, and make another in the child. They are
//! registered first ([`__register_atfork`]): so handlers of other libraries, which touch their memory, run before the pager is frozen, and
//! after the child has its own.
//!
//! In between, the C library itself touches memory of the program: the locks of its files, in the child. Such an access raises SIGSEGV,
//! since the child has no far memory yet; a handler then provides the page at once.
//!
//! `vfork` and `posix_spawn` share the memory, and run no handlers. A child of `_Fork` or of a bare `clone` has no far memory.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{SIGSEGV, sigaction, siginfo_t, sigset_t};
use mapwire_host::faults::{Previous, pass_on};
use mapwire_pager::{Frozen, PagerError};

use crate::c_library::c_librarys_own;
use crate::ranges::Ranges;
use crate::report;
use crate::state::{CANNOT_START, clear_space, set_space, space};
use crate::threads;

/// From the beginning of a fork to its end.
struct Forking {
    frozen: Result<(Frozen, Ranges), PagerError>,
    /// The program's action for SIGSEGV.
    action: sigaction,
    /// Whether the forking thread blocks SIGSEGV.
    is_blocked: bool,
    _turn: MutexGuard<'static, ()>,
}

/// One thread forks at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The process that forks; 0: none. A different process that sees it is its child.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// Not a thread-local variable: those may be found by far memory.
static FORKING: Mutex<OfThread> = Mutex::new(OfThread(None));

struct OfThread(Option<Forking>);

// SAFETY: only the thread that has the turn puts something in, and the same thread takes it out.
unsafe impl Send for OfThread {}

fn forking() -> MutexGuard<'static, OfThread> {
    // Held for a moment only, by the thread that has the turn: free at any fork.
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

type Handler = Option<extern "C" fn()>;

/// Registers the handlers, once.
pub(crate) fn register() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::SeqCst) {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        let failed = unsafe { register_with_c_library(Some(prepare), Some(parent), Some(child), ptr::null_mut()) };
        if failed != 0 {
            report::line(format_args!(
                "mapwire far: forked children will not have their memory: pthread_atfork failed"
            ));
        }
    }
}

/// The function that `pthread_atfork` of any library calls: registers the handlers of this library before all others.
///
/// # Safety
/// As of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    register();
    // SAFETY: by the caller's promise.
    unsafe { register_with_c_library(prepare, parent, child, library) }
}

/// The C library's own function.
///
/// # Safety
/// The handlers stay until `library` is unloaded, or for good if that is null.
unsafe fn register_with_c_library(prepare: Handler, parent: Handler, child: Handler, library: *mut c_void) -> c_int {
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let found = c_librarys_own(c"__register_atfork", &FOUND);
    if found.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the C library's function of this name has had this form since its version 2.3.2; the rest is the caller's promise.
    unsafe {
        let register: Register = mem::transmute(found);
        register(prepare, parent, child, library)
    }
}

/// Before a fork, in the parent.
extern "C" fn prepare() {
    let Some(space) = space() else { return };
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let frozen = space.freeze();
    PARENT.store(std::process::id(), Ordering::SeqCst);
    let action = change_action(None);
    BEFORE.set(action.sa_sigaction, action.sa_flags);
    let ours = sigaction { sa_sigaction: touched as *const () as usize, sa_flags: libc::SA_SIGINFO, ..no_action() };
    change_action(Some(&ours));
    let is_blocked = change_mask(libc::SIG_UNBLOCK);
    self::forking().0 = Some(Forking { frozen, action, is_blocked, _turn: turn });
}

fn no_action() -> sigaction {
    // SAFETY: all fields are integers, sets of bits and an optional function pointer, for which zero is valid.
    unsafe { mem::zeroed() }
}

/// Changes the action for SIGSEGV, if there is a new one; returns the old one.
fn change_action(new: Option<&sigaction>) -> sigaction {
    let mut old = no_action();
    // SAFETY: a new action is that of `touched`, which has the form that its flag asks for, or was there before.
    unsafe { libc::sigaction(SIGSEGV, new.map_or(ptr::null(), ptr::from_ref), &raw mut old) };
    old
}

/// Blocks SIGSEGV in this thread, or unblocks it; returns whether it was blocked.
fn change_mask(how: c_int) -> bool {
    // SAFETY: sets of bits, for which zero is valid; the calls read and write what is given.
    unsafe {
        let (mut only, mut before): (sigset_t, sigset_t) = mem::zeroed();
        libc::sigaddset(&raw mut only, SIGSEGV);
        libc::pthread_sigmask(how, &raw const only, &raw mut before);
        libc::sigismember(&raw const before, SIGSEGV) == 1
    }
}

/// Restores the program's action for SIGSEGV, in parent and child.
fn restore(forking: &Forking) {
    PARENT.store(0, Ordering::SeqCst);
    change_action(Some(&forking.action));
    if forking.is_blocked {
        change_mask(libc::SIG_BLOCK);
    }
}

/// After a fork, in the parent.
extern "C" fn parent() {
    let forking = self::forking().0.take();
    if let Some(forking) = forking {
        restore(&forking);
        threads::serving(|| drop(forking));
    }
}

/// After a fork, in the child, whose only thread this is.
extern "C" fn child() {
    touch_locale();
    let (Some(old), Some(forking)) = (space(), self::forking().0.take()) else {
        return;
    };
    restore(&forking);
    // Threads of the new pager allocate at their start, before there is memory for them to touch.
    clear_space();
    let revived = forking.frozen.and_then(|(frozen, ranges)| {
        // SAFETY: the thread that froze the pager forked this child, which has no other. The old space is never used again.
        let (pager, regions) = threads::serving(|| unsafe { frozen.revive() })?;
        Ok((pager, regions, ranges))
    });
    match revived {
        Ok((pager, mut regions, ranges)) => {
            if let Some(region) = regions.pop() {
                set_space(old.of_child(pager, region, ranges));
            }
        }
        Err(error) => give_up(&error),
    }
}

/// Touches the locale data that a thread reads at its start, so that it exists for the pager's threads.
fn touch_locale() {
    /// The first items of `LC_CTYPE`, which are tables of characters.
    const ITEMS: libc::nl_item = 8;
    if space().is_none() {
        return;
    }
    // SAFETY: the global locale is `(locale_t) -1`, and the thread gets its own back. What the items are is not looked at.
    unsafe {
        let own = libc::uselocale(ptr::without_provenance_mut(usize::MAX));
        for item in 0..ITEMS {
            std::hint::black_box(libc::nl_langinfo(item));
        }
        libc::uselocale(own);
    }
}

/// What the program does at SIGSEGV, for any thread that it reaches during a fork.
static BEFORE: Previous = Previous::nobody();

/// At SIGSEGV, while some thread forks.
extern "C" fn touched(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let parent = PARENT.load(Ordering::SeqCst);
    // SAFETY: the kernel gives the signal's own.
    let address = unsafe { (*info).si_addr() }.addr();
    let is_far = space().is_some_and(|space| space.has(address));
    if is_far && parent != 0 && parent != std::process::id() {
        // The access is repeated, and finds the page.
        lend(address);
        return;
    }
    // SAFETY: the arguments are those of this very signal.
    unsafe { pass_on(&BEFORE, signal, info, context) };
}

/// Provides a page to a child that has no far memory yet.
fn lend(address: usize) {
    match forking().0.as_mut().map(|forking| &mut forking.frozen) {
        Some(Ok((frozen, _))) => {
            if let Err(error) = frozen.lend_page(address) {
                give_up(&error);
            }
        }
        Some(Err(error)) => give_up(error),
        None => give_up(&"the fork is over"),
    }
}

/// Ends a child that cannot have its memory.
fn give_up(why: &dyn std::fmt::Display) -> ! {
    report::line(format_args!("mapwire far: a forked child cannot have its memory: {why}"));
    // SAFETY: nothing of the program has run in the child, so that nothing is left undone.
    unsafe { libc::_exit(CANNOT_START) }
}
