//! Blocks the program's signal handlers in a thread that holds what such a handler may need.
//!
//! A handler that touches shared memory faults, and the fault needs the driver. If the handler interrupted the thread that holds the
//! driver, neither could continue. So a thread that is about to take the driver blocks signals first ([`mask`]), if the program has
//! handlers at all ([`any_handler`]): a pair of system calls that other programs do not pay.
//!
//! Signals that the processor raises stay deliverable, and so do those that the C library uses itself.
//!
//! One case is not prevented. A handler interrupts a thread inside `malloc` and faults; the thread that holds the driver frees memory of
//! that thread's arena, and the two wait for each other.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};
use core::{mem, ptr};

use libc::c_int;

/// A set of signals in the kernel's form: signal `n` is bit `n - 1`.
type Set = u64;

/// Signals that are never blocked: the processor raises them, or a thread raises them for itself.
pub(crate) const RAISED: [c_int; 7] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Signals of the kernel: 1 to 64.
const SIGNALS: c_int = 64;

const fn bit(signal: c_int) -> Set {
    1 << (signal - 1)
}

/// The signals that a mask blocks.
fn blocked_set() -> Set {
    let raised = RAISED.iter().fold(0, |set, &signal| set | bit(signal));
    // The C library reserves those between 31 and SIGRTMIN: cancellation, timers, changes of user.
    let library = (32..libc::SIGRTMIN()).fold(0, |set, signal| set | bit(signal));
    !(raised | library)
}

#[derive(Clone, Copy, Debug)]
enum Masked {
    /// Handlers of the program may run.
    No,
    /// Not until the mask is removed; then this is blocked.
    Until(Set),
    /// Not while the fault handler runs.
    InFaultHandler,
    /// Never: a thread of the library.
    Always,
}

thread_local! {
    static MASKED: Cell<Masked> = const { Cell::new(Masked::No) };
}

/// Blocks handlers of the program in the calling thread until it is dropped; see [`mask`].
#[derive(Debug)]
pub struct Mask {
    /// Whether this mask took effect, rather than an earlier one.
    ours: bool,
    /// The state to restore belongs to the thread.
    _thread: PhantomData<*const ()>,
}

/// Blocks handlers of the program in the calling thread. Costs two system calls, unless they are blocked already. Async-signal-safe.
#[inline]
pub fn mask() -> Mask {
    let ours = matches!(MASKED.get(), Masked::No);
    if ours {
        let before = change(libc::SIG_BLOCK, blocked_set());
        MASKED.set(Masked::Until(before));
    }
    Mask { ours, _thread: PhantomData }
}

impl Drop for Mask {
    #[inline]
    fn drop(&mut self) {
        if self.ours
            && let Masked::Until(before) = MASKED.replace(Masked::No)
        {
            change(libc::SIG_SETMASK, before);
        }
    }
}

/// Calls `work` with the mask of the calling thread removed, and then restores it. Changes nothing where handlers may run anyway, nor
/// where they never may.
pub fn unmasked<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the mask, also if `work` panics.
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            let before = change(libc::SIG_BLOCK, blocked_set());
            MASKED.set(Masked::Until(before));
        }
    }
    let Masked::Until(before) = MASKED.get() else {
        return work();
    };
    MASKED.set(Masked::No);
    change(libc::SIG_SETMASK, before);
    let _again = Again;
    work()
}

/// Whether a signal is pending that the calling thread's mask blocks. A system call if there is a mask.
#[must_use]
pub fn is_signal_due() -> bool {
    let Masked::Until(before) = MASKED.get() else {
        return false;
    };
    let mut pending: Set = 0;
    // SAFETY: the kernel writes a set of the size given.
    unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, size_of::<Set>()) };
    pending & !before != 0
}

/// Blocks handlers of the program in the calling thread for good: a thread of the library.
pub fn mask_for_good() {
    change(libc::SIG_BLOCK, blocked_set());
    MASKED.set(Masked::Always);
}

/// Whether [`mask_for_good`] was called on the calling thread. It interrupts nothing, whatever it does.
#[must_use]
pub fn is_library_thread() -> bool {
    matches!(MASKED.get(), Masked::Always)
}

/// Whether the calling thread is in the page-fault handler, and not one of the library's.
#[must_use]
pub fn is_in_fault_handler() -> bool {
    matches!(MASKED.get(), Masked::InFaultHandler)
}

/// Records that the kernel blocks handlers of the program in the calling thread until this is dropped; see [`in_fault_handler`].
#[derive(Debug)]
pub struct InFaultHandler {
    before: Masked,
    _thread: PhantomData<*const ()>,
}

/// Marks the calling thread as running the fault handler, which the kernel runs with signals blocked.
#[must_use]
pub fn in_fault_handler() -> InFaultHandler {
    let before = MASKED.get();
    if !is_library_thread() {
        MASKED.set(Masked::InFaultHandler);
    }
    InFaultHandler { before, _thread: PhantomData }
}

impl Drop for InFaultHandler {
    fn drop(&mut self) {
        MASKED.set(self.before);
    }
}

/// Whether the program has a handler for any signal that [`mask`] blocks. A system call for each signal: tens of microseconds.
#[must_use]
pub fn any_handler() -> bool {
    (1..=SIGNALS).any(has_handler)
}

/// Signals that programs handle most, and that arrive while they work.
const COMMON: [c_int; 8] = [
    libc::SIGALRM,
    libc::SIGUSR1,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGUSR2,
    libc::SIGCHLD,
    libc::SIGIO,
    libc::SIGINT,
];

/// As [`any_handler`], but checks one signal at each call: in turn, and every other time one of those handled most.
#[must_use]
pub fn next_handler() -> bool {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let (round, is_common) = (turn / 2, turn.is_multiple_of(2));
    let signal = if is_common {
        COMMON[round as usize % COMMON.len()]
    } else {
        (round % SIGNALS.unsigned_abs()).cast_signed() + 1
    };
    has_handler(signal)
}

/// Whether `signal` is one that is blocked, and the program handles it.
fn has_handler(signal: c_int) -> bool {
    if blocked_set() & bit(signal) == 0 {
        return false;
    }
    // SAFETY: all fields are integers, sets of bits and an optional function pointer, for which zero is valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: reads the action into a `sigaction`; fails for numbers that are no signals.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    let default = [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    result == 0 && !default
}

/// Changes the blocked signals; returns those blocked before.
fn change(how: c_int, set: Set) -> Set {
    let mut before: Set = 0;
    // SAFETY: the kernel reads one set and writes the other, both of the size given. It fails only for a bad `how`.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, &raw mut before, size_of::<Set>()) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;

    static TAKEN: AtomicU32 = AtomicU32::new(0);
    static DURING_MASK: AtomicBool = AtomicBool::new(false);

    extern "C" fn take(_: c_int) {
        DURING_MASK.store(!matches!(MASKED.get(), Masked::No), Ordering::SeqCst);
        TAKEN.fetch_add(1, Ordering::SeqCst);
    }

    fn raise() {
        // SAFETY: the handler is installed; the signal goes to this thread.
        unsafe { libc::raise(libc::SIGUSR2) };
    }

    fn taken() -> u32 {
        TAKEN.load(Ordering::SeqCst)
    }

    /// One test: the handler and its count belong to the process.
    #[test]
    fn a_masked_thread_takes_signals_when_the_mask_is_off_and_not_before() {
        // SAFETY: zero is valid, as above; the handler only touches atomics.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = take as extern "C" fn(c_int) as usize;
        // SAFETY: installs a handler of the right type.
        let installed = unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, ptr::null_mut()) };
        assert_eq!(installed, 0);
        assert!(any_handler());
        let common = 2 * COMMON.len();
        assert!((0..common).any(|_| next_handler()), "a common one is found soon");
        assert!(!has_handler(libc::SIGSEGV), "what the processor raises does not count");

        let outer = mask();
        let inner = mask();
        assert!(!is_signal_due());
        raise();
        assert!(is_signal_due());
        drop(inner);
        assert_eq!(taken(), 0, "the outer mask holds");
        unmasked(|| assert_eq!(taken(), 1));
        assert!(!DURING_MASK.load(Ordering::SeqCst));
        raise();
        assert_eq!(taken(), 1, "the mask is on again");
        drop(outer);
        assert_eq!(taken(), 2);
        raise();
        assert_eq!(taken(), 3);

        let handler = in_fault_handler();
        drop(mask());
        unmasked(|| ());
        assert!(!is_signal_due());
        drop(handler);
        raise();
        assert_eq!(taken(), 4, "the fault handler has changed no mask");

        let caught = std::panic::catch_unwind(|| {
            let _mask = mask();
            unmasked(|| std::panic::resume_unwind(Box::new(())));
        });
        assert!(caught.is_err());
        raise();
        assert_eq!(taken(), 5, "a panic leaves no mask behind");

        std::thread::spawn(|| {
            mask_for_good();
            drop(in_fault_handler());
            assert!(is_library_thread());
            raise();
            unmasked(|| ());
            drop(mask());
            assert_eq!(taken(), 5);
        })
        .join()
        .unwrap();
    }
}
