//! Keeps stores off pages while they are copied: a thread that stores there waits in the handler of its page fault.
//!
//! The pages are open to loads only meanwhile. A system call that is to store there does not wait: it fails with `EFAULT`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{Advice, MprotectFlags};

use super::FaultKind;
use super::signals::fault_kind;
use crate::page::PAGE_BYTES;

/// `si_code` of a fault on memory that is mapped, but not for this access.
const SEGV_ACCERR: c_int = 2;

/// How long a thread sleeps before it looks again whether it may store.
const NAP: Duration = Duration::from_micros(20);

/// Odd while stores are kept off [`START`]`..`[`END`]. Counts beginnings and ends.
static TURN: AtomicU64 = AtomicU64::new(0);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Keeps stores off whole pages until it is dropped. These were open to loads and stores before and are so again, unless
/// something else was mapped there.
#[derive(Debug)]
pub(crate) struct Stillness {
    start: usize,
    bytes: usize,
}

impl Stillness {
    /// Begins it, one at a time: the caller holds the list of adoptions. It must not store there itself, and must not be interrupted by
    /// what does. `None` where stores cannot be
    /// made to wait: nobody may store there then.
    ///
    /// # Errors
    /// `mprotect` fails: too many mapped ranges, for instance.
    pub(crate) fn begin(start: usize, bytes: usize) -> Result<Option<Self>, Errno> {
        if !super::touch::is_armed() || !can_populate() {
            return Ok(None);
        }
        START.store(start, Ordering::SeqCst);
        END.store(start + bytes, Ordering::SeqCst);
        TURN.fetch_add(1, Ordering::SeqCst);
        // Dropped on an error, too.
        let still = Self { start, bytes };
        protect(start, bytes, MprotectFlags::READ)?;
        Ok(Some(still))
    }

    /// Ends it where other memory has taken the pages' place.
    pub(crate) fn end_replaced(self) {
        end();
        core::mem::forget(self);
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        // What was open to stores can be opened again.
        let opened = protect(
            self.start,
            self.bytes,
            MprotectFlags::READ | MprotectFlags::WRITE,
        );
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
pub(super) unsafe fn may_retry(
    signal: c_int,
    info: *const libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    if signal != libc::SIGSEGV || TURN.load(Ordering::Relaxed) == 0 {
        return false;
    }
    // SAFETY: this function's contract.
    let (code, address, kind) = unsafe {
        (
            (*info).si_code,
            (*info).si_addr().addr(),
            fault_kind(context),
        )
    };
    if code != SEGV_ACCERR || kind == FaultKind::Read {
        return false;
    }
    loop {
        let turn = TURN.load(Ordering::SeqCst);
        let range = START.load(Ordering::SeqCst)..END.load(Ordering::SeqCst);
        if turn % 2 == 1 && range.contains(&address) {
            std::thread::sleep(NAP);
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
