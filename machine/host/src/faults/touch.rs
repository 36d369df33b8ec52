//! Touches memory that may be unmapped, and reports it where a load or store would end the process.
//!
//! A send copies the caller's memory under a lock, from pages that were pinned once. Asking whether they are still mapped (`mincore`)
//! costs a system call, too much for a send. So a function of three instructions touches one byte of each page, and a handler of SIGSEGV
//! and SIGBUS that finds a fault in them lets the function return "no". A touch costs a load.
//!
//! The handler is installed at the first touch and stays. All other faults go to the previous handler, on the stack that the kernel chose.
//! If the program later installs a handler of its own, that one gets touches of unmapped memory.

use core::ffi::{c_int, c_void};
use std::sync::Once;

use super::FaultSignal;
use super::signals::{Previous, install_below, mask_as_before, pass_on, reaches};
use super::stillness::may_retry;
use crate::memory::MemoryError;
use crate::page::PAGE_BYTES;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.mapwire_touch, \"ax\", @progbits",
    ".global mapwire_touch_load, mapwire_touch_store, mapwire_touch_end, mapwire_touch_failed",
    ".hidden mapwire_touch_load, mapwire_touch_store, mapwire_touch_end, mapwire_touch_failed",
    ".type mapwire_touch_load, @function",
    ".type mapwire_touch_store, @function",
    "mapwire_touch_load:",
    "mov al, byte ptr [rdi]",
    "mov eax, 1",
    "ret",
    "mapwire_touch_store:",
    "lock or byte ptr [rdi], 0",
    "mov eax, 1",
    "ret",
    "mapwire_touch_end:",
    "mapwire_touch_failed:",
    "xor eax, eax",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.mapwire_touch, \"ax\", @progbits",
    ".global mapwire_touch_load, mapwire_touch_store, mapwire_touch_end, mapwire_touch_failed",
    ".hidden mapwire_touch_load, mapwire_touch_store, mapwire_touch_end, mapwire_touch_failed",
    ".type mapwire_touch_load, %function",
    ".type mapwire_touch_store, %function",
    "mapwire_touch_load:",
    "ldrb w1, [x0]",
    "mov w0, #1",
    "ret",
    "mapwire_touch_store:",
    "ldxrb w1, [x0]",
    "stxrb w2, w1, [x0]",
    "cbnz w2, mapwire_touch_store",
    "mov w0, #1",
    "ret",
    "mapwire_touch_end:",
    "mapwire_touch_failed:",
    "mov w0, #0",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn mapwire_touch_load(address: usize) -> u32;
    fn mapwire_touch_store(address: usize) -> u32;
    fn mapwire_touch_end();
    fn mapwire_touch_failed();
}

static ARMED: Once = Once::new();

/// Who handled the signals before: of SIGBUS, then of SIGSEGV.
static BEFORE: [Previous; 2] = [const { Previous::nobody() }; 2];

/// Touches every page of `address..address + bytes`: loads a byte, or, if `stores`, stores it back. Another thread may unmap the memory
/// right after.
///
/// # Errors
/// [`MemoryError::NotMapped`] with the first address that cannot be touched.
#[inline]
pub fn touch(address: usize, bytes: usize, stores: bool) -> Result<(), MemoryError> {
    if cfg!(miri) || bytes == 0 {
        return Ok(());
    }
    ARMED.call_once(arm);
    let touch = if stores { mapwire_touch_store } else { mapwire_touch_load };
    let end = address.saturating_add(bytes);
    let mut at = address;
    while at < end {
        // SAFETY: the function touches one byte of a page in the caller's range, and changes nothing; if the page is not there, the
        // handler makes it return 0.
        if unsafe { touch(at) } == 0 {
            return Err(not_mapped(address, bytes, at, stores));
        }
        at = (at & !(PAGE_BYTES - 1)).saturating_add(PAGE_BYTES);
    }
    Ok(())
}

#[cold]
fn not_mapped(address: usize, bytes: usize, at: usize, stores: bool) -> MemoryError {
    MemoryError::NotMapped {
        address,
        bytes,
        wanted: if stores { "loads and stores" } else { "loads" },
        at,
        found: "not mapped so",
    }
}

/// Whether faults reach this module's handler before any of the program's. Installs it if it never was.
pub(crate) fn is_armed() -> bool {
    ARMED.call_once(arm);
    reaches(FaultSignal::Segv, on_touch)
}

#[cold]
fn arm() {
    for signal in [FaultSignal::Bus, FaultSignal::Segv] {
        // If the kernel refuses a handler, a touch faults as a plain access does.
        let _ = install_below(signal, on_touch, &BEFORE[signal as usize]);
    }
}

/// Called by the kernel, or by the handler of watched ranges, on the faulting thread.
extern "C" fn on_touch(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands over a valid siginfo, and the ucontext of this signal.
    let recovered = unsafe { (*info).si_code > 0 && (may_retry(signal, info, context) || recover(context)) };
    if !recovered {
        let before = if signal == libc::SIGBUS { FaultSignal::Bus } else { FaultSignal::Segv };
        // SAFETY: the arguments are those of this very signal.
        unsafe {
            // As if this handler were not there.
            mask_as_before(context);
            pass_on(&BEFORE[before as usize], signal, info, context);
        }
    }
}

/// Makes a touch that faulted return 0; false if it was not a touch.
///
/// # Safety
/// `context` is the ucontext of a signal that is being handled.
unsafe fn recover(context: *mut c_void) -> bool {
    let first = mapwire_touch_load as *const () as usize;
    let end = mapwire_touch_end as *const () as usize;
    // SAFETY: valid by this function's contract; nobody else has a reference to it.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let counter = &mut machine.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let counter = &mut machine.pc;
    if !(first..end).contains(&(*counter as usize)) {
        return false;
    }
    // Both functions keep nothing on the stack, so this one returns to their caller.
    *counter = mapwire_touch_failed as *const () as usize as _;
    true
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

    use super::*;
    use crate::testing::child;

    const PAGES: usize = 4;

    /// Four pages of memory at an address chosen by the kernel.
    fn pages() -> usize {
        // SAFETY: memory at a new place, which nothing else uses.
        unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                PAGES * PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .unwrap() as usize
    }

    fn unmap(address: usize, pages: usize) {
        let address = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: memory of `pages`, which nothing uses any more.
        unsafe { rustix::mm::munmap(address, pages * PAGE_BYTES) }.unwrap();
    }

    #[test]
    fn memory_that_is_not_there_is_named_by_its_first_missing_page() {
        let start = pages();
        for stores in [false, true] {
            assert_eq!(touch(start, PAGES * PAGE_BYTES, stores), Ok(()));
        }
        unmap(start + 2 * PAGE_BYTES, 1);
        assert_eq!(touch(start, 2 * PAGE_BYTES, true), Ok(()));
        let missing = touch(start + 9, 3 * PAGE_BYTES, false).unwrap_err();
        let at = start + 2 * PAGE_BYTES;
        assert!(matches!(missing, MemoryError::NotMapped { at: found, .. } if found == at), "{missing}");
        assert!(touch(usize::MAX - 9, 100, false).is_err());
        unmap(start, PAGES);
    }

    #[test]
    fn memory_for_loads_only_takes_no_store() {
        let start = pages();
        let address = core::ptr::with_exposed_provenance_mut(start);
        // SAFETY: a page of this test, which nothing else uses.
        unsafe { rustix::mm::mprotect(address, PAGE_BYTES, MprotectFlags::READ) }.unwrap();
        assert_eq!(touch(start, PAGE_BYTES, false), Ok(()));
        let refused = touch(start, 1, true).unwrap_err();
        assert!(refused.to_string().contains("loads and stores"), "{refused}");
        unmap(start, PAGES);
    }

    #[test]
    fn threads_touch_at_once() {
        let start = pages();
        unmap(start + PAGE_BYTES, 1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(touch(start, PAGE_BYTES, false), Ok(()));
                        assert!(touch(start, 2 * PAGE_BYTES, false).is_err());
                    }
                });
            }
        });
        unmap(start, PAGES);
    }

    #[test]
    fn any_other_fault_kills_as_ever() {
        let (status, text) = child("others", || {
            assert!(touch(8, 1, false).is_err());
            println!("so far, so good");
            // SAFETY: meant to fault: page 0 is never mapped.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        });
        if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
            assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
            assert!(text.contains("so far, so good"), "{text}");
        }
    }
    #[test]
    fn a_signal_that_somebody_sends_kills_as_ever() {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            let (status, text) = child(&format!("sent-{signal}"), || {
                assert!(touch(8, 1, false).is_err());
                println!("so far, so good");
                // SAFETY: sends a signal to this process, which is a child of the test.
                unsafe { libc::kill(libc::getpid(), signal) };
                // Another thread of the process may take it.
                std::thread::sleep(std::time::Duration::from_secs(5));
            });
            if std::env::var_os("MAPWIRE_TEST_CHILD").is_none() {
                assert_eq!(status.signal(), Some(signal), "{status}");
                assert!(text.contains("so far, so good"), "{text}");
            }
        }
    }
}
