//! `mlock` and similar calls: locked far memory stays in RAM, as part of the limit.
//!
//! The kernel would lock as much as requested. The pager could evict none of that, and the program would exceed its limit.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EINVAL, ENOMEM};
use mapwire_host::page::PAGE_BYTES;

use crate::calls::{fail, whole};
use crate::report;
use crate::space::Space;
use crate::state::{part_of_space, space};

/// Says once why something is refused: programs seldom do.
fn explain(has_said: &AtomicBool, text: std::fmt::Arguments<'_>) {
    if !has_said.swap(true, Ordering::Relaxed) {
        report::line(format_args!("mapwire far: {text}"));
    }
}

/// Makes the kernel lock or unlock pages.
fn by_kernel(call: libc::c_long, part: &Range<usize>) -> c_int {
    // SAFETY: changes no byte.
    unsafe { libc::syscall(call, part.start, part.len()) as c_int }
}

/// Unlocks the locked pages of a part; returns them.
pub(crate) fn unlock(space: &Space, part: &Range<usize>) -> Vec<Range<usize>> {
    let pieces = space.unlock(part);
    for piece in &pieces {
        by_kernel(libc::SYS_munlock, piece);
    }
    pieces
}

/// Locks again the pages that were locked before the move.
pub(crate) fn lock_again(space: &Space, part: &Range<usize>) {
    if space.lock(part) && by_kernel(libc::SYS_mlock, part) != 0 {
        space.unlock(part);
    }
}

/// The far pages of a range.
fn pages_of_space(address: *const c_void, bytes: usize) -> Option<(&'static Space, Range<usize>)> {
    let start = address.addr() & !(PAGE_BYTES - 1);
    let (space, part) = part_of_space(start, bytes.saturating_add(address.addr() - start))?;
    Some((space, whole(part)))
}

/// Locks by `kernel`, if the far part of a range may be locked.
fn lock(address: *const c_void, bytes: usize, kernel: impl FnOnce() -> c_int) -> c_int {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    let Some((space, part)) = pages_of_space(address, bytes) else {
        return kernel();
    };
    if !space.is_mapped(&part) {
        return fail(ENOMEM);
    }
    if !space.lock(&part) {
        let most = space.most_locked() >> 10;
        explain(
            &HAS_SAID,
            format_args!(
                "mlock of {} KiB is refused: of far memory {most} KiB may be locked, half of --local; raise that",
                part.len() >> 10
            ),
        );
        return fail(ENOMEM);
    }
    let locked = kernel();
    if locked != 0 {
        unlock(space, &part);
    }
    locked
}

/// mlock(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, bytes: usize) -> c_int {
    // SAFETY: by the caller's promise.
    lock(address, bytes, || unsafe { libc::syscall(libc::SYS_mlock, address, bytes) as c_int })
}

/// mlock2(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, bytes: usize, flags: c_uint) -> c_int {
    // SAFETY: by the caller's promise.
    lock(address, bytes, || unsafe { libc::syscall(libc::SYS_mlock2, address, bytes, flags) as c_int })
}

/// munlock(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, bytes: usize) -> c_int {
    if let Some((space, part)) = pages_of_space(address, bytes) {
        unlock(space, &part);
    }
    // SAFETY: by the caller's promise.
    unsafe { libc::syscall(libc::SYS_munlock, address, bytes) as c_int }
}

/// mlockall(2). Refused: the program's memory exceeds what may stay in RAM.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if space().is_none() {
        // SAFETY: changes no byte.
        return unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int };
    }
    let all = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags == 0 || flags & !all != 0 {
        return fail(EINVAL);
    }
    explain(
        &HAS_SAID,
        format_args!("mlockall is refused, as far memory does not fit into RAM; lock what must stay there by mlock"),
    );
    fail(ENOMEM)
}

/// munlockall(2).
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    if let Some(space) = space() {
        unlock(space, &space.all_parts());
    }
    // SAFETY: changes no byte.
    unsafe { libc::syscall(libc::SYS_munlockall) as c_int }
}
