//! Blocks stores to pages while they are copied: a storing thread waits in the handler of its page fault.
//!
//! Meanwhile the pages are open to loads only. A system call that stores there does not wait: it fails with `EFAULT`.

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

/// How long a thread sleeps before it checks again whether it may store.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };

/// Odd while stores to [`START`]`..`[`END`] are blocked. Counts beginnings and ends.
static TURN: AtomicU64 = AtomicU64::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Blocks stores to whole pages until it is dropped. Then the pages get their former rights back, unless something else was mapped there.
#[derive(Debug)]
pub(crate) struct Stillness {
    start: usize,
    bytes: usize,
    rights: MprotectFlags,
}

impl Stillness {
    /// Begins it, one at a time: the caller holds the list of adoptions. The caller must not store there itself, nor be interrupted by
    /// code that does. All of the pages have `rights` now; `is_armed` says
    /// whether faults reach the handler that lets stores wait. `None` if stores cannot be made to wait: then nobody may store there.
    ///
    /// # Errors
    /// `mprotect` fails, for instance because of too many mapped ranges.
    pub(crate) fn begin(
        start: usize,
        bytes: usize,
        rights: MprotectFlags,
        is_armed: fn() -> bool,
    ) -> Result<Option<Self>, Errno> {
        let loads = rights.contains(MprotectFlags::READ);
        // Closed pages are opened to loads in any case. Nobody uses those.
        if loads && !(is_armed() && can_populate()) {
            return Ok(None);
        }
        START.store(start, Ordering::SeqCst);
        END.store(start + bytes, Ordering::SeqCst);
        TURN.fetch_add(1, Ordering::SeqCst);
        let still = Self { start, bytes, rights };
        if let Err(errno) = protect(start, bytes, MprotectFlags::READ) {
            // Of several ranges the first may be closed. If nothing is, this may fail as well.
            let _ = still.open();
            still.end_replaced();
            return Err(errno);
        }
        Ok(Some(still))
    }

    fn open(&self) -> Result<(), Errno> {
        protect(self.start, self.bytes, self.rights)
    }

    /// Ends it after other memory has replaced the pages.
    pub(crate) fn end_replaced(self) {
        end();
        core::mem::forget(self);
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        // Pages that were open can be opened again.
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
    // SAFETY: loads continue. Stores of other threads fault, and wait in `may_retry` until they may continue; this thread makes none, by
    // the contract of `begin`.
    unsafe { rustix::mm::mprotect(start, bytes, flags) }
}

/// Whether the kernel opens a page for stores on demand, and reports whether it could (Linux 5.14).
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

/// Whether a fault was a store to a blocked page, and may be repeated now; waits for that. Async-signal-safe.
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
            // Not the C library's function, which ends a cancelled thread.
            let _ = rustix::thread::nanosleep(&NAP);
            continue;
        }
        // The pages may have been blocked when the store was made, and no longer when its handler began.
        if kind == FaultKind::Write && populate(address & !(PAGE_BYTES - 1)) {
            return true;
        }
        if TURN.load(Ordering::SeqCst) == turn {
            return false;
        }
    }
}
