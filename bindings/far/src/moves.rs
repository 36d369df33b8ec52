//! `mremap`: mappings that grow, shrink and move.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{EINVAL, ENOMEM, MADV_COLD, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE};
use mapwire_host::memory::is_plain_memory;
use mapwire_host::page::PAGE_BYTES;

use crate::calls::{refuse, whole};
use crate::locks;
use crate::maps::{LEAST_BYTES, Source, give_back, protect, take};
use crate::state::{space, space_of};
use crate::threads;

/// Moves a mapping of the kernel's, which was too short to be far and now is not, into far memory. `None`: it stays the kernel's, as it is
/// of another kind, or there is no room.
///
/// # Safety
/// As of mremap(2).
unsafe fn move_away(old: *mut c_void, old_bytes: usize, new_bytes: usize, flags: c_int) -> Option<*mut c_void> {
    let space = space()?;
    let start = old.addr();
    let end = start.checked_add(old_bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
    let was_short = old_bytes > 0 && old_bytes < LEAST_BYTES && new_bytes >= LEAST_BYTES;
    let is_plain = || {
        if !threads::serving(|| is_plain_memory(start, end - start)) {
            return false;
        }
        // The kernel refuses this advice for locked memory, which stays where it is, and otherwise does next to nothing.
        // SAFETY: it changes no byte.
        let advised = unsafe { libc::syscall(libc::SYS_madvise, old, end - start, MADV_COLD) };
        advised == 0
    };
    if flags != MREMAP_MAYMOVE || !start.is_multiple_of(PAGE_BYTES) || !was_short || !is_plain() {
        return None;
    }
    let to = take(space, new_bytes, PROT_READ | PROT_WRITE, Source::Zeros)?;
    let to: *mut c_void = ptr::with_exposed_provenance_mut(to);
    // SAFETY: both are open to it, and apart; by the caller's promise nobody uses the old one from here on.
    unsafe {
        ptr::copy_nonoverlapping(old.cast::<u8>(), to.cast::<u8>(), end - start);
        libc::syscall(libc::SYS_munmap, old, end - start);
    }
    Some(to)
}

/// mremap(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let Some(space) = space_of(old.addr()) else {
        if flags & MREMAP_FIXED != 0 && space().is_some_and(|space| space.part(new.addr(), new_bytes).is_some()) {
            // The kernel would put a mapping into far memory that the pager does not know.
            return refuse(EINVAL);
        }
        // SAFETY: by the caller's promise.
        let moved = unsafe { move_away(old, old_bytes, new_bytes, flags) };
        return moved.unwrap_or_else(|| {
            // SAFETY: by the caller's promise.
            let result = unsafe { libc::syscall(libc::SYS_mremap, old, old_bytes, new_bytes, flags, new) };
            ptr::with_exposed_provenance_mut(result as usize)
        });
    };
    let start = old.addr();
    let Some(part) = space.part(start, old_bytes).map(whole) else {
        return refuse(EINVAL);
    };
    let Some(new_end) = start.checked_add(new_bytes) else {
        return refuse(ENOMEM);
    };
    let new_end = new_end.next_multiple_of(PAGE_BYTES);
    if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0
        || !start.is_multiple_of(PAGE_BYTES)
        || new_bytes == 0
        || !space.is_mapped(&part)
    {
        return refuse(EINVAL);
    }
    if new_end <= part.end {
        if new_end < part.end {
            give_back(space, new_end..part.end);
        }
        return old;
    }
    if space.grow(part.end, new_end - part.end) {
        let more = part.end..new_end;
        space.map_more(&more);
        if protect(&more, PROT_READ | PROT_WRITE) == 0 {
            return old;
        }
        space.unmap(more);
    }
    if flags & MREMAP_MAYMOVE == 0 {
        return refuse(ENOMEM);
    }
    match take(space, new_bytes, PROT_READ | PROT_WRITE, Source::Zeros) {
        Some(to) => {
            let locked = locks::unlock(space, &part);
            space.move_pages(part.clone(), to);
            space.map_more(&(to + part.len()..to + (new_end - start)));
            for piece in locked {
                let moved = piece.start - part.start + to;
                locks::lock_again(space, &(moved..moved + piece.len()));
            }
            give_back(space, part);
            ptr::with_exposed_provenance_mut(to)
        }
        None => refuse(ENOMEM),
    }
}
