//! `mmap` and similar calls. Large private mappings are far, if they are anonymous, or of a file and that is enabled; all others are the
//! kernel's.
//!
//! So are reservations, which are closed: just-in-time compilers and virtual machines map code, shared memory or files into them by
//! `MAP_FIXED`. The pager could not do without these pages.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;

use libc::{
    EINVAL, ENOMEM, MADV_COLD, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE,
    MADV_KEEPONFORK, MADV_MERGEABLE, MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_RANDOM, MADV_REMOVE,
    MADV_SEQUENTIAL, MADV_UNMERGEABLE, MADV_WILLNEED, MAP_32BIT, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED,
    MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED, MAP_PRIVATE, MAP_STACK, MAP_SYNC, MAP_TYPE, PROT_EXEC,
    PROT_NONE, off_t,
};
use mapwire_host::page::PAGE_BYTES;

use crate::calls::{fail, refuse, whole};
use crate::locks;
use crate::space::Space;
use crate::state::{part_of_space, space};

/// Shorter mappings stay in RAM: they are guard pages, stacks and tables of allocators.
pub(crate) const LEAST_BYTES: usize = 1 << 20;

/// Flags with which memory is not far: it has a fixed address, or is of a kind unknown to the pager.
const NOT_FAR: c_int =
    MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN | MAP_STACK | MAP_HUGETLB | MAP_LOCKED | MAP_32BIT | MAP_SYNC;

/// What new far memory holds.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Zeros,
    /// A file from this byte on.
    File(BorrowedFd<'a>, u64),
}

impl<'a> Source<'a> {
    /// Source of a mapping with these arguments of mmap(2); `None` if it is not for far memory.
    ///
    /// # Safety
    /// The file, if it is open, stays so while this is used.
    unsafe fn of(space: &Space, flags: c_int, file: c_int, offset: off_t) -> Option<Self> {
        if flags & MAP_TYPE != MAP_PRIVATE {
            return None;
        }
        if flags & MAP_ANONYMOUS != 0 {
            return Some(Self::Zeros);
        }
        let offset = u64::try_from(offset).ok()?;
        if file < 0 || !space.takes_files() {
            return None;
        }
        // SAFETY: by the caller's promise. If the descriptor is not open, the calls say so.
        Some(Self::File(unsafe { BorrowedFd::borrow_raw(file) }, offset))
    }

    /// Maps it into a part. False if it is not a file that far memory can read.
    fn put(self, space: &Space, part: &Range<usize>) -> bool {
        match self {
            Self::Zeros => {
                space.clear(part);
                true
            }
            Self::File(file, offset) => space.map_file(part, file, offset),
        }
    }
}

/// Sets the rights of far pages, whose mapping the kernel splits for that and joins again.
pub(crate) fn protect(part: &Range<usize>, rights: c_int) -> c_int {
    // SAFETY: the pages are the caller's, who asks for these rights or gives the pages back.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(part.start), part.len(), rights) }
}

/// Defines a function that maps memory: its name, and whether a reservation may be far. None calls another, as the allocator's `mmap` is
/// renamed by the linker.
macro_rules! mapping {
    ($(#[$doc:meta])* $name:ident, $reserves_far:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of mmap(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            bytes: usize,
            rights: c_int,
            flags: c_int,
            file: c_int,
            offset: off_t,
        ) -> *mut c_void {
            if let Some(space) = space() {
                // SAFETY: by the caller's promise.
                let source = unsafe { Source::of(space, flags, file, offset) };
                if flags & MAP_FIXED != 0
                    && let Some(part) = space.part(address.addr(), bytes)
                {
                    return replace(space, part, bytes, rights, source);
                }
                let is_reservation = rights == PROT_NONE && flags & MAP_ANONYMOUS != 0;
                let may_be_far = flags & NOT_FAR == 0 && rights & PROT_EXEC == 0 && bytes >= LEAST_BYTES;
                if let Some(source) = source.filter(|_| may_be_far && ($reserves_far || !is_reservation)) {
                    match (take(space, bytes, rights, source), source) {
                        (Some(start), _) => return ptr::with_exposed_provenance_mut(start),
                        (None, Source::Zeros) => return refuse(ENOMEM),
                        // The kernel reports the error, or maps what far memory cannot.
                        (None, Source::File(..)) => {}
                    }
                }
            }
            // SAFETY: by the caller's promise.
            let result = unsafe { libc::syscall(libc::SYS_mmap, address, bytes, rights, flags, file, offset) };
            ptr::with_exposed_provenance_mut(result as usize)
        }
    };
}

mapping!(
    /// mmap(2).
    mmap, false
);
mapping!(
    /// mmap64(2), the same with 64-bit offsets.
    mmap64, false
);
mapping!(
    /// What mimalloc calls instead: reservations of its own must be far, as it opens them by `mprotect`. The linker sees to it.
    __wrap_mmap, true
);

/// Closes all of far memory: the program may access only what it maps.
pub(crate) fn close(space: &Space) {
    // If it fails, wild accesses go unnoticed.
    protect(&space.range(), PROT_NONE);
}

/// A new part with these rights. `None` if there are too many parts already, it is too long, or its source is invalid.
pub(crate) fn take(space: &Space, bytes: usize, rights: c_int, source: Source<'_>) -> Option<usize> {
    let start = space.map(bytes)?;
    let part = whole(start..start + bytes);
    // Unassigned parts are zeros.
    let is_put = matches!(source, Source::Zeros) || source.put(space, &part);
    if !is_put || protect(&part, rights) != 0 {
        space.unmap(part);
        return None;
    }
    Some(start)
}

/// Replaces far memory by a mapping, which stays far: allocators return memory so.
fn replace(space: &Space, part: Range<usize>, bytes: usize, rights: c_int, source: Option<Source<'_>>) -> *mut c_void {
    let part = whole(part);
    let Some(source) = source.filter(|_| rights & PROT_EXEC == 0 && part.len() >= bytes) else {
        return refuse(ENOMEM);
    };
    if !part.start.is_multiple_of(PAGE_BYTES) || !space.is_mapped(&part) {
        return refuse(EINVAL);
    }
    locks::unlock(space, &part);
    if !source.put(space, &part) {
        return refuse(ENOMEM);
    }
    match protect(&part, rights) {
        0 => ptr::with_exposed_provenance_mut(part.start),
        _ => MAP_FAILED,
    }
}

/// munmap(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    let start = address.addr();
    let by_kernel = |part: Range<usize>| match part.is_empty() {
        true => 0,
        // SAFETY: by the caller's promise.
        false => unsafe { libc::syscall(libc::SYS_munmap, part.start, part.len()) as c_int },
    };
    let Some((space, part)) = part_of_space(start, bytes) else {
        // SAFETY: by the caller's promise.
        return unsafe { libc::syscall(libc::SYS_munmap, address, bytes) as c_int };
    };
    if !start.is_multiple_of(PAGE_BYTES) {
        return fail(EINVAL);
    }
    let after = part.end..start.saturating_add(bytes).max(part.end);
    let before = start.min(part.start)..part.start;
    give_back(space, whole(part));
    by_kernel(before).min(by_kernel(after))
}

/// Takes a part back. Accesses to it raise SIGSEGV from now on.
pub(crate) fn give_back(space: &Space, part: Range<usize>) {
    locks::unlock(space, &part);
    // If that fails, there are too many mappings. The part is not reused, as a wild store may have changed it.
    if protect(&part, PROT_NONE) == 0 {
        space.unmap(part);
    } else {
        space.clear(&part);
    }
}

/// madvise(2).
///
/// # Safety
/// As it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    let start = address.addr();
    let Some((space, part)) = part_of_space(start, bytes) else {
        // SAFETY: by the caller's promise.
        return unsafe { libc::syscall(libc::SYS_madvise, address, bytes, advice) as c_int };
    };
    if !start.is_multiple_of(PAGE_BYTES) {
        return fail(EINVAL);
    }
    match advice {
        // As the kernel does.
        MADV_DONTNEED | MADV_FREE | MADV_REMOVE if space.is_locked(&part) => {
            return fail(EINVAL);
        }
        MADV_DONTNEED | MADV_FREE | MADV_REMOVE => space.discard(whole(part)),
        // The pager handles these itself.
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_WILLNEED | MADV_HUGEPAGE | MADV_NOHUGEPAGE | MADV_COLD
        | MADV_PAGEOUT | MADV_DOFORK | MADV_DODUMP | MADV_DONTDUMP | MADV_KEEPONFORK | MADV_MERGEABLE
        | MADV_UNMERGEABLE => {}
        // Others are promises that it does not keep.
        _ => {
            return fail(EINVAL);
        }
    }
    0
}
