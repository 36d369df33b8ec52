//! The handler of SIGBUS and SIGSEGV: passes faults in watched ranges on to their handlers, and all others to the previous one.
//!
//! The kernel's handler is installed with the first [`watch`] of a signal and removed with the last. It runs on the ordinary stack of the
//! faulting thread, since it runs a whole protocol, and may itself fault in a watched range. Other signals are blocked meanwhile. One
//! drawback: while SIGSEGV is watched, a thread that overflows its stack dies of SIGSEGV without Rust's message.
//!
//! A forked child does not serve faults, and has none of the memory: it says why on standard error, and passes the fault to the earlier
//! handler. If the watch is for SIGBUS, a handler of `fork` installs that of SIGSEGV in the child for this; children of a bare `clone` die
//! without the line.

use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use super::FaultSignal;
use crate::errno::Errno;
use crate::processes::Owner;

/// Kind of access that faulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A load, or the fetch of an instruction.
    Read,
    /// A store, or an operation that loads and stores.
    Write,
    /// Unknown to the processor or the kernel. Treat it as a load; if it was a store, it faults again, on a page that is then open to
    /// loads.
    Unknown,
}

/// A page fault in a watched range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultInfo {
    /// Exact address of the access.
    pub address: usize,
    pub kind: FaultKind,
    /// The value given to [`watch`].
    pub context: usize,
}

/// A handler's decision about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Repeat the access.
    Retry,
    /// Not this handler's fault: pass it to an earlier handler, or else let the process die of it.
    Refuse,
}

/// Serves a fault on the thread that faulted, in a signal handler: it must not allocate, must not take a lock that the interrupted code
/// may hold, and must not panic (the process aborts). `errno` is preserved.
pub type FaultHandler = fn(&FaultInfo) -> Resolution;

/// Why a range could not be watched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    #[error("{MAX_WATCHES} ranges are watched for faults already: drop one first")]
    TooMany,
    /// Another watch overlaps the range.
    #[error("faults in {wanted:#x?} are to be watched, but {found:#x?} is watched already")]
    Overlap { wanted: Range<usize>, found: Range<usize> },
    #[error("the range {wanted:#x?} to be watched for faults is empty")]
    Empty { wanted: Range<usize> },
    /// The kernel refused the handler.
    #[error("sigaction({signal}): {errno}")]
    System { signal: FaultSignal, errno: Errno },
}

/// Most ranges that can be watched at once.
const MAX_WATCHES: usize = 16;

/// One watched range. Written under [`INSTALL`], read by the handler without a lock.
struct WatchedRange {
    start: AtomicUsize,
    /// 0 while no range is watched here.
    end: AtomicUsize,
    handler: AtomicUsize,
    context: AtomicUsize,
    signal: AtomicI32,
    /// Threads that may be using `handler` and `context`.
    active: AtomicU32,
}

static RANGES: [WatchedRange; MAX_WATCHES] = [const {
    WatchedRange {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        handler: AtomicUsize::new(0),
        context: AtomicUsize::new(0),
        signal: AtomicI32::new(0),
        active: AtomicU32::new(0),
    }
}; MAX_WATCHES];

/// Who handled a signal before: nobody at first.
#[derive(Debug)]
pub struct Previous {
    installed: AtomicBool,
    action: AtomicUsize,
    flags: AtomicI32,
}

impl Previous {
    /// The default action.
    #[must_use]
    pub const fn nobody() -> Self {
        Self { installed: AtomicBool::new(false), action: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) }
    }

    /// Notes an action and its flags, as `sigaction` tells them.
    pub fn set(&self, action: usize, flags: c_int) {
        self.action.store(action, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
    }
}

static PREVIOUS: [Previous; 2] = [const { Previous::nobody() }; 2];

/// The process that owns the watches, by its [number](Owner::number).
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Orders installations. Never taken in the handler.
static INSTALL: Mutex<()> = Mutex::new(());

/// Makes forked children say why they die.
fn watch_for_forks() {
    static ARMED: Once = Once::new();
    ARMED.call_once(|| {
        // SAFETY: the handler waits for no lock and allocates nothing. Without memory for it, children die without a line.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// In a forked child, which has nothing mapped at its parent's views: an access there is a SIGSEGV, whatever it is in the parent.
extern "C" fn in_child() {
    let is_watched = |watched: &WatchedRange| watched.end.load(Ordering::Relaxed) != 0;
    if RANGES.iter().any(is_watched) {
        let _ = install(FaultSignal::Segv);
    }
}

/// Says why a forked child dies.
#[cold]
fn say_forked(address: usize) {
    crate::stderr::say_in_handler(format_args!(
        "process {} touched shared memory at {address:#x}, which a child by fork() does not have: start children by exec \
         (posix_spawn, Python's \"spawn\"), or fork before the memory is opened",
        std::process::id()
    ));
}

/// Ends a forked child that is about to touch parent-only memory at `address`, as the access itself would.
#[cold]
pub fn end_forked_child(address: usize) -> ! {
    say_forked(address);
    let _ = sigaction(FaultSignal::Segv, Some(&zeroed_action()));
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(libc::SIGSEGV) };
    // The signal is blocked.
    std::process::abort()
}

/// Whether the watches belong to this process.
fn are_mine() -> bool {
    OWNER.load(Ordering::SeqCst) == Owner::me().number()
}

impl FaultSignal {
    pub(super) fn number(self) -> c_int {
        match self {
            Self::Bus => libc::SIGBUS,
            Self::Segv => libc::SIGSEGV,
        }
    }

    fn previous(self) -> &'static Previous {
        &PREVIOUS[self as usize]
    }
}

/// A watched range; its faults reach the handler until this is dropped. Dropping waits for running handlers, so `context` may be freed
/// afterwards; never drop it in a handler.
#[derive(Debug)]
pub struct Watch {
    index: usize,
    signal: FaultSignal,
}

/// Calls `handler` for every fault in `range` that arrives as `signal`.
///
/// # Errors
/// The range is empty or overlaps another, or 16 are watched.
pub fn watch(
    range: Range<usize>,
    signal: FaultSignal,
    context: usize,
    handler: FaultHandler,
) -> Result<Watch, WatchError> {
    if range.is_empty() {
        return Err(WatchError::Empty { wanted: range });
    }
    let _lock = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = Owner::me().number();
    if OWNER.swap(process, Ordering::SeqCst) != process {
        // The first watch of this process: those that a fork brought along are not ours.
        for watched in &RANGES {
            watched.end.store(0, Ordering::SeqCst);
            watched.active.store(0, Ordering::SeqCst);
        }
    }
    let mut free = None;
    for (index, watched) in RANGES.iter().enumerate() {
        let found = watched.start.load(Ordering::Relaxed)..watched.end.load(Ordering::Relaxed);
        if found.end == 0 {
            free = free.or(Some(index));
        } else if watched.signal.load(Ordering::Relaxed) == signal.number()
            && found.start < range.end
            && range.start < found.end
        {
            return Err(WatchError::Overlap { wanted: range, found });
        }
    }
    let index = free.ok_or(WatchError::TooMany)?;
    let watched = &RANGES[index];
    watched.handler.store(handler as usize, Ordering::Relaxed);
    watched.context.store(context, Ordering::Relaxed);
    watched.signal.store(signal.number(), Ordering::Relaxed);
    watched.start.store(range.start, Ordering::Relaxed);
    install(signal)?;
    watch_for_forks();
    watched.end.store(range.end, Ordering::SeqCst);
    Ok(Watch { index, signal })
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !are_mine() {
            // A child must not wait for the lock either: another thread of its parent may have held it.
            return;
        }
        let _lock = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = &RANGES[self.index];
        watched.end.store(0, Ordering::SeqCst);
        while watched.active.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        let still_watched = RANGES.iter().any(|watched| {
            watched.end.load(Ordering::Relaxed) != 0 && watched.signal.load(Ordering::Relaxed) == self.signal.number()
        });
        if !still_watched {
            uninstall(self.signal);
        }
    }
}

/// Makes [`on_signal`] the handler of `signal`, unless it is already, or a later handler took over that may pass faults on to it.
fn install(signal: FaultSignal) -> Result<(), WatchError> {
    let previous = signal.previous();
    let fail = |errno: std::io::Error| WatchError::System { signal, errno: errno.into() };
    let current = sigaction(signal, None).map_err(fail)?;
    let replaced = current.sa_sigaction == libc::SIG_DFL || current.sa_sigaction == libc::SIG_IGN;
    if is_ours(&current) || (previous.installed.load(Ordering::Relaxed) && !replaced) {
        return Ok(());
    }
    previous.set(current.sa_sigaction, current.sa_flags);
    // Not SA_ONSTACK: the protocol needs an ordinary stack. SA_NODEFER: it may fault itself.
    let flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    handle(signal, on_signal, flags).map_err(fail)?;
    previous.installed.store(true, Ordering::Relaxed);
    Ok(())
}

/// Makes `action` the handler of `signal`. Other signals wait while it runs.
fn handle(signal: FaultSignal, action: Action, flags: c_int) -> Result<(), std::io::Error> {
    let mut ours = zeroed_action();
    ours.sa_sigaction = action as *const () as usize;
    ours.sa_flags = flags;
    // SAFETY: the set is a plain value, initialised by sigfillset before use.
    unsafe {
        libc::sigfillset(&raw mut ours.sa_mask);
        // Signals that the processor raises must not wait: the kernel would kill the process.
        for raised in crate::masking::RAISED {
            libc::sigdelset(&raw mut ours.sa_mask, raised);
        }
    }
    sigaction(signal, Some(&ours)).map(drop)
}

/// A handler as SA_SIGINFO has it.
pub(super) type Action = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Makes `action` the handler of `signal` for good; below [`on_signal`] if that is installed, which runs a protocol and so must be called
/// by the kernel itself. `before` receives the previous action. Other signals are blocked while it runs: their handlers might find no room
/// on its stack.
pub(super) fn install_below(signal: FaultSignal, action: Action, before: &Previous) -> Result<(), std::io::Error> {
    let _lock = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    let current = sigaction(signal, None)?;
    if is_ours(&current) {
        let previous = signal.previous();
        before.set(previous.action.load(Ordering::Relaxed), previous.flags.load(Ordering::Relaxed));
        previous.set(action as *const () as usize, flags);
        return Ok(());
    }
    before.set(current.sa_sigaction, current.sa_flags);
    handle(signal, action, flags)
}

/// Whether faults reach `action` before any handler of the program: it is the handler of `signal`, or right below [`on_signal`].
pub(super) fn reaches(signal: FaultSignal, action: Action) -> bool {
    // Without the lock, whose holder may wait for a handler that waits for the caller. Whoever installs [`on_signal`] above `action` says
    // so first.
    let action = action as *const () as usize;
    sigaction(signal, None).is_ok_and(|current| {
        current.sa_sigaction == action
            || is_ours(&current) && signal.previous().action.load(Ordering::Relaxed) == action
    })
}

/// Restores the previous action of `signal`, unless another handler took over since.
fn uninstall(signal: FaultSignal) {
    let previous = signal.previous();
    if !sigaction(signal, None).is_ok_and(|current| is_ours(&current)) {
        return;
    }
    let mut action = zeroed_action();
    action.sa_sigaction = previous.action.load(Ordering::Relaxed);
    action.sa_flags = previous.flags.load(Ordering::Relaxed);
    if sigaction(signal, Some(&action)).is_ok() {
        previous.installed.store(false, Ordering::Relaxed);
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_signal as *const () as usize
}

fn zeroed_action() -> libc::sigaction {
    // SAFETY: all fields are integers, sets of bits and an optional function pointer, for which
    // zero is valid: the default action, no flags, an empty mask.
    unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() }
}

/// Sets the action of `signal` if there is a new one; returns the old one.
fn sigaction(signal: FaultSignal, new: Option<&libc::sigaction>) -> Result<libc::sigaction, std::io::Error> {
    let mut old = zeroed_action();
    // SAFETY: both pointers are to a `sigaction` or null; a new handler is either `on_signal`,
    // fit for SA_SIGINFO, one that was installed before with the same flags, or the default.
    let result = unsafe { libc::sigaction(signal.number(), new.map_or(ptr::null(), ptr::from_ref), &raw mut old) };
    if result == 0 { Ok(old) } else { Err(std::io::Error::last_os_error()) }
}

/// Called by the kernel on the faulting thread.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno is a word of this thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel hands over a valid siginfo; these two signals carry an address if the
    // kernel raised them (si_code above 0).
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: `context` is the kernel's ucontext of this signal.
    let kind = || unsafe { fault_kind(context) };
    if !(code > 0 && serve(signal, address, kind)) {
        // SAFETY: the arguments are those of this very signal.
        unsafe { pass_on(previous_of(signal), signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Offers a fault to the watch of its range; returns whether that resolved it.
fn serve(signal: c_int, address: usize, kind: impl FnOnce() -> FaultKind) -> bool {
    let holds = |watched: &WatchedRange| {
        address < watched.end.load(Ordering::SeqCst) && address >= watched.start.load(Ordering::Relaxed)
    };
    if !are_mine() {
        if RANGES.iter().any(holds) {
            say_forked(address);
        }
        return false;
    }
    let has = |watched: &WatchedRange| holds(watched) && signal == watched.signal.load(Ordering::Relaxed);
    let Some(watched) = RANGES.iter().find(|watched| has(watched)) else {
        return false;
    };
    // Counted first, then checked again: `Watch::drop` clears first, then waits for the count.
    watched.active.fetch_add(1, Ordering::SeqCst);
    let resolution = has(watched).then(|| {
        let handler = watched.handler.load(Ordering::Relaxed);
        // SAFETY: an entry with a range holds a `FaultHandler`, and keeps it while `active` counts.
        let handler: FaultHandler = unsafe { mem::transmute::<usize, FaultHandler>(handler) };
        handler(&FaultInfo { address, kind: kind(), context: watched.context.load(Ordering::Relaxed) })
    });
    watched.active.fetch_sub(1, Ordering::SeqCst);
    resolution == Some(Resolution::Retry)
}

fn previous_of(signal: c_int) -> &'static Previous {
    if signal == libc::SIGBUS { FaultSignal::Bus.previous() } else { FaultSignal::Segv.previous() }
}

/// Acts as `previous` would have.
///
/// # Safety
/// `signal`, `info` and `context` are those of a signal that is being handled.
pub unsafe fn pass_on(previous: &Previous, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = previous.action.load(Ordering::Relaxed);
    // SAFETY: `info` is valid by this function's contract.
    let raised_by_kernel = unsafe { (*info).si_code } > 0;
    if action == libc::SIG_IGN && !raised_by_kernel {
        return;
    }
    if action == libc::SIG_DFL || action == libc::SIG_IGN {
        let default = zeroed_action();
        // SAFETY: installs the default action; the pointers are valid or null.
        unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
        // A fault repeats when this handler returns, and then kills the process with the right address; a signal that was sent must be
        // sent again.
        if !raised_by_kernel {
            // SAFETY: raise has no preconditions.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    if previous.flags.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 {
        // SAFETY: the action was installed with SA_SIGINFO, so it has this type.
        let action = unsafe { mem::transmute::<usize, Action>(action) };
        action(signal, info, context);
    } else {
        // SAFETY: the action was installed without SA_SIGINFO, so it has this type.
        let action = unsafe { mem::transmute::<usize, extern "C" fn(c_int)>(action) };
        action(signal);
    }
    // Some handlers, such as that of Rust's standard library, only restore the default action, for the fault to repeat. A signal that was
    // sent does not repeat.
    if !raised_by_kernel && is_default(signal) {
        // SAFETY: raise has no preconditions.
        unsafe { libc::raise(signal) };
    }
}

/// Restores the signal mask from before the signal.
///
/// # Safety
/// `context` is the ucontext of a signal that is being handled.
pub(super) unsafe fn mask_as_before(context: *const c_void) {
    // SAFETY: valid by this function's contract; the mask's first words are those that the kernel wrote, and sigprocmask reads no more.
    unsafe {
        let before = &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut());
    }
}

/// Whether the signal has its default action.
fn is_default(signal: c_int) -> bool {
    let mut action = zeroed_action();
    // SAFETY: changes nothing; writes to a valid action.
    let read = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    read == 0 && action.sa_sigaction == libc::SIG_DFL
}

/// Whether the faulting instruction loaded or stored.
///
/// # Safety
/// `context` is the ucontext of a SIGBUS or SIGSEGV that the kernel raised.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn fault_kind(context: *const c_void) -> FaultKind {
    /// Page fault error code: the access was a store.
    const STORE: i64 = 1 << 1;
    // SAFETY: valid by this function's contract.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    if registers[libc::REG_ERR as usize] & STORE != 0 { FaultKind::Write } else { FaultKind::Read }
}

/// Whether the faulting instruction loaded or stored.
///
/// # Safety
/// `context` is the ucontext of a SIGBUS or SIGSEGV that the kernel raised.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn fault_kind(context: *const c_void) -> FaultKind {
    /// Bytes of records that end the kernel's `struct sigcontext`.
    const RECORDS_BYTES: usize = 4096;
    /// Marks the record with the syndrome of the fault.
    const ESR_MAGIC: u32 = 0x4553_5201;
    /// Syndrome of a data abort: write, not read; and: the abort is of a cache operation.
    const WRITE_NOT_READ: u64 = 1 << 6;
    const CACHE_OPERATION: u64 = 1 << 8;
    // SAFETY: valid by this function's contract.
    let machine = unsafe { &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let records = machine.wrapping_add(1).cast::<u8>().wrapping_sub(RECORDS_BYTES);
    let mut offset = 0;
    while offset + 16 <= RECORDS_BYTES {
        let record = records.wrapping_add(offset);
        // SAFETY: within the records; each is 16-byte aligned and starts with magic and size.
        let (magic, size) = unsafe { (*record.cast::<u32>(), *record.cast::<u32>().add(1)) };
        if magic == ESR_MAGIC {
            // SAFETY: the record of the syndrome has its 8 bytes after the header.
            let syndrome = unsafe { *record.cast::<u64>().add(1) };
            let store = syndrome & WRITE_NOT_READ != 0 && syndrome & CACHE_OPERATION == 0;
            return if store { FaultKind::Write } else { FaultKind::Read };
        }
        if magic == 0 || size < 8 {
            break;
        }
        offset += size as usize;
    }
    FaultKind::Unknown
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("mapwire runs on Linux on x86_64 and aarch64");
