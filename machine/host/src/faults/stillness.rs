//! Keeps stores off pages while they are copied: a thread that stores there waits in the handler of its page fault.
//!
//! The pages are open to loads only meanwhile. A system call that is to store there does not wait: it fails with `EFAULT`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{Advice, MprotectFlags};
use rustix::thread::Timespec;

use super::FaultKind;
use super::signals::fault_kind;
use crate::page::PAGE_BYTES;

/// `si_code` of a fault on memory that is mapped, but not for this access.
const SEGV_ACCERR: c_int = 2;

/// How long a thread sleeps before it looks again whether it may store.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };

/// Odd while stores are kept off [`START`]`..`[`END`]. Counts beginnings and ends.
static TURN: AtomicU64 = AtomicU64::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Keeps stores off whole pages until it is dropped. These are open to what they were open to before again then, unless something
/// else was mapped there.
#[derive(Debug)]
pub(crate) struct Stillness {
    start: usize,
    bytes: usize,
    rights: MprotectFlags,
}

impl Stillness {
    /// Begins it, one at a time: the caller holds the list of adoptions. It must not store there itself, and must not be interrupted by
    /// what does. All of the pages are open to `rights` now. `None` where stores cannot be made to wait: nobody may store there then.
    ///
    /// # Errors
    /// `mprotect` fails: too many mapped ranges, for instance.
    pub(crate) fn begin(start: usize, bytes: usize, rights: MprotectFlags) -> Result<Option<Self>, Errno> {
        let loads = rights.contains(MprotectFlags::READ);
        // Closed pages are opened to loads in any case. Nobody uses those.
        if loads && !(super::touch::is_armed() && can_populate()) {
            return Ok(None);
        }
        START.store(start, Ordering::SeqCst);
        END.store(start + bytes, Ordering::SeqCst);
        TURN.fetch_add(1, Ordering::SeqCst);
        let still = Self { start, bytes, rights };
        if let Err(errno) = protect(start, bytes, MprotectFlags::READ) {
            // Of several ranges the first may be closed. Where nothing is, this may fail as well.
            let _ = still.open();
            still.end_replaced();
            return Err(errno);
        }
        Ok(Some(still))
    }

    fn open(&self) -> Result<(), Errno> {
        protect(self.start, self.bytes, self.rights)
    }

    /// Ends it where other memory has taken the pages' place.
    pub(crate) fn end_replaced(self) {
        end();
        core::mem::forget(self);
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        // What was open can be opened again.
        let opened = self.open();
        debug_assert!(opened.is_ok(), "{opened:?}");
        end();
    }
}

fn end() {
    TURN.fetch_add(1, Ordering::SeqCst);
}

fn protect(start: usize, bytes: usize, flags: MprotectFlags) -> Result<(), Errno> {
    let start = core::ptr::with_exposed_provenance_mut(start);
    // SAFETY: loads go on as before. Stores of other threads fault, and wait in `may_retry` until they may go on; this thread
    // makes none, by the contract of `begin`.
    unsafe { rustix::mm::mprotect(start, bytes, flags) }
}

/// Whether the kernel opens a page for stores on demand, and says whether it could (Linux 5.14).
fn can_populate() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let probe = 0_u8;
        populate((&raw const probe).addr() & !(PAGE_BYTES - 1))
    })
}

fn populate(page: usize) -> bool {
    let page = core::ptr::with_exposed_provenance_mut(page);
    // SAFETY: changes no byte: makes a page present that the program may store to, or fails.
    unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxPopulateWrite) }.is_ok()
}

/// Whether a fault was a store to a page that was kept still, and may be repeated now. Waits for that. Async-signal-safe.
///
/// # Safety
/// `info` and `context` are those of the signal that is being handled.
pub(super) unsafe fn may_retry(signal: c_int, info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    if signal != libc::SIGSEGV || TURN.load(Ordering::Relaxed) == 0 {
        return false;
    }
    // SAFETY: this function's contract.
    let (code, address, kind) = unsafe { ((*info).si_code, (*info).si_addr().addr(), fault_kind(context)) };
    if code != SEGV_ACCERR || kind == FaultKind::Read {
        return false;
    }
    loop {
        let turn = TURN.load(Ordering::SeqCst);
        let range = START.load(Ordering::SeqCst)..END.load(Ordering::SeqCst);
        if turn % 2 == 1 && range.contains(&address) {
            // Not the C library's, which ends a thread that was cancelled.
            let _ = rustix::thread::nanosleep(&NAP);
            continue;
        }
        // The pages may have been still when the store was made, and no more when its handler began.
        if kind == FaultKind::Write && populate(address & !(PAGE_BYTES - 1)) {
            return true;
        }
        if TURN.load(Ordering::SeqCst) == turn {
            return false;
        }
    }
}
