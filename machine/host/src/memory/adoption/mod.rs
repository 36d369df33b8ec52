//! Private memory of the program, moved onto a memfd in place, and back.
//! What the program sees does not change: same addresses, same bytes. Stores of its threads wait while pages move ([`Stillness`]), so none
//! is lost. What changes while the memory is adopted:
//!
//! * `fork`: the child gets a private mapping of the memfd ([`forks`]). Its stores stay its own. It sees what others
//!   store to pages that it has not stored to itself.
//! * Huge pages become base pages. Advice given by `madvise` before is forgotten, and `MADV_DONTNEED` no longer clears the bytes.
//! * Memory that was locked is locked again.
//! * Memory that the program unmaps is no longer adopted, and what it maps there instead is left alone.

use core::ffi::c_void;
use core::ptr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, MsyncFlags};

use super::forks::{self, Entry, Part};
use super::memfd;
use super::{MemoryError, raw};
use crate::descriptors::above_stdio;
use crate::faults::{Stillness, is_armed};
use crate::mapping::{Mapping, Rights};
use crate::page::PAGE_BYTES;
use crate::processes::Owner;
use crate::procmap::MappedRange;

mod refusals;

/// From this length on, pages that were never touched are detected, and not copied.
const SPARSE_BYTES: usize = 1 << 20;

/// Entries of `/proc/self/pagemap` read at a time.
const PAGEMAP_ENTRIES: usize = 4096;

/// Bytes of each entry.
const ENTRY_BYTES: usize = 8;

/// Adopted memory in whole pages. Its holder calls [`give_back`](Self::give_back).
#[derive(Debug)]
pub(super) struct Adopted {
    start: usize,
    bytes: usize,
    owner: Owner,
}

impl Adopted {
    /// Moves `bytes` at `start`, whole pages, onto `file`, which has that length and is empty.
    ///
    /// # Errors
    /// [`MemoryError::NotAdoptable`]; or the kernel refuses. The memory is then as before.
    pub(super) fn take(start: usize, bytes: usize, file: &Arc<OwnedFd>) -> Result<Self, MemoryError> {
        let mut adoptions = forks::lock()?;
        let refuse = |reason| MemoryError::NotAdoptable { address: start, bytes, reason };
        refusals::check_count(adoptions.len()).map_err(refuse)?;
        let ranges = refusals::private_ranges(start, bytes).map_err(refuse)?;
        adoptions.reserve();
        let this = Self { start, bytes, owner: Owner::me() };
        let locked: Vec<&MappedRange> =
            ranges.iter().filter(|range| is_locked(range.start, range.end - range.start)).collect();
        let touched = (bytes >= SPARSE_BYTES).then(Touched::open).flatten();
        move_out(start, bytes, &ranges, file, touched).map_err(|failed| match failed {
            ("pwrite", Errno::FAULT) => refuse(refusals::NOT_THERE),
            (call, errno) => MemoryError::of_call(call, bytes, errno),
        })?;
        adoptions.push(Entry { start, bytes, file: Arc::clone(file) });
        drop(adoptions);
        let locked = locked.iter().try_for_each(|range| lock(range.start, range.end - range.start));
        if let Err(errno) = locked {
            this.give_back(file)?;
            return Err(MemoryError::of_call("mlock", bytes, errno));
        }
        Ok(this)
    }

    /// Whether this process adopted it, not one from which it was forked.
    pub(super) fn is_mine(&self) -> bool {
        self.owner.is_me()
    }

    /// Moves the memory back to private pages in place, with the bytes now in `file`. Parts that the program has unmapped since are left
    /// alone.
    ///
    /// # Errors
    /// No memory or address space is left: the memory stays adopted.
    pub(super) fn give_back(&self, file: &Arc<OwnedFd>) -> Result<(), MemoryError> {
        let mut adoptions = forks::lock()?;
        for part in forks::standing(self.start, self.bytes, file)? {
            self.give_part_back(file, &part)?;
        }
        adoptions.remove(file);
        Ok(())
    }

    fn give_part_back(&self, file: &OwnedFd, part: &Part) -> Result<(), MemoryError> {
        let (start, bytes) = (part.range.start, part.range.len());
        let fail = |(call, errno)| MemoryError::of_call(call, bytes, errno);
        let was_locked = is_locked(start, bytes);
        let fresh = Mapping::anonymous(bytes).map_err(|errno| fail(("mmap", errno)))?;
        move_back(part, self.start, file, fresh).map_err(fail)?;
        if was_locked {
            // As many bytes as were locked until now. If the limit is lower all the same, the memory is back nevertheless.
            let _ = lock(start, bytes);
        }
        Ok(())
    }
}

/// A system call that failed, and why.
type Failed = (&'static str, Errno);

/// Moves `bytes` at `start`, which consist of `ranges`, to `file`. Allocates nothing: a thread that waits to store may hold the allocator.
fn move_out(
    start: usize,
    bytes: usize,
    ranges: &[MappedRange],
    file: &OwnedFd,
    mut touched: Option<Touched>,
) -> Result<(), Failed> {
    let fail = |call| move |errno| (call, errno);
    let rights = MprotectFlags::READ | MprotectFlags::WRITE;
    let still = Stillness::begin(start, bytes, rights, is_armed).map_err(fail("mprotect"))?;
    for range in ranges {
        copy_out(range, start, file, touched.as_mut()).map_err(fail("pwrite"))?;
    }
    // SAFETY: the file holds the bytes of the memory whose place it takes.
    unsafe { Mapping::over(start, file, 0, bytes, Rights::ReadWrite.prot(), MapFlags::SHARED) }
        .map_err(fail("mmap"))?;
    if let Some(still) = still {
        still.end_replaced();
    }
    Ok(())
}

/// Moves `part`, which maps `file` as if all of it began at `start`, to `fresh`, which replaces it. Allocates nothing, as [`move_out`].
fn move_back(part: &Part, start: usize, file: &OwnedFd, fresh: Mapping) -> Result<(), Failed> {
    let fail = |call| move |errno| (call, errno);
    let (place, bytes) = (part.range.start, part.range.len());
    let still = Stillness::begin(place, bytes, part.rights, is_armed).map_err(fail("mprotect"))?;
    let offset = place - start;
    memfd::extents(file, offset, bytes, |at, length| {
        fresh.prefault(at - offset, length);
        let to = fresh.at(at - offset, length);
        // SAFETY: `extents` gives parts of the range, which is mapped for loads; `at` has checked the other side. Both are apart.
        unsafe { raw::copy(address_of(start + at).cast(), to, length) };
    })
    .map_err(fail("lseek"))?;
    // SAFETY: the fresh pages hold the bytes of the memory whose place they take.
    unsafe { fresh.move_over(place, part.rights) }.map_err(fail("mremap"))?;
    if let Some(still) = still {
        still.end_replaced();
    }
    Ok(())
}

fn address_of(start: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(start)
}

/// Whether any page is locked in memory.
fn is_locked(start: usize, bytes: usize) -> bool {
    // SAFETY: invalidating memory without a device does nothing; the kernel refuses it for locked pages.
    let asked = unsafe { rustix::mm::msync(address_of(start), bytes, MsyncFlags::INVALIDATE) };
    asked == Err(Errno::BUSY)
}

fn lock(start: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: keeps pages in memory; no byte changes.
    unsafe { rustix::mm::mlock(address_of(start), bytes) }
}

/// Finds pages of private memory that were ever touched.
struct Touched {
    pagemap: OwnedFd,
    entries: Vec<u8>,
}

impl Touched {
    /// `None` if that is unknown.
    fn open() -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let pagemap = rustix::fs::open("/proc/self/pagemap", flags, Mode::empty()).and_then(above_stdio).ok()?;
        let entries = vec![0; PAGEMAP_ENTRIES * ENTRY_BYTES];
        Some(Self { pagemap, entries })
    }

    /// Calls `each` with the address and length of each run of touched pages in `start..end`, whole pages.
    fn runs(
        &mut self,
        start: usize,
        end: usize,
        mut each: impl FnMut(usize, usize) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        /// Present, or swapped out.
        const TOUCHED: u64 = 1 << 63 | 1 << 62;
        let mut at = start;
        while at < end {
            let pages = ((end - at) / PAGE_BYTES).min(PAGEMAP_ENTRIES);
            let entries = &mut self.entries[..pages * ENTRY_BYTES];
            let place = (at / PAGE_BYTES * ENTRY_BYTES) as u64;
            if rustix::io::pread(&self.pagemap, &mut *entries, place)? < entries.len() {
                return Err(Errno::IO);
            }
            let touched = |entry: &[u8]| {
                let mut word = [0; ENTRY_BYTES];
                word.copy_from_slice(entry);
                u64::from_ne_bytes(word) & TOUCHED != 0
            };
            let mut entries = entries.chunks_exact(ENTRY_BYTES).map(touched).peekable();
            while let Some(first) = entries.next() {
                let mut bytes = PAGE_BYTES;
                while entries.next_if_eq(&first).is_some() {
                    bytes += PAGE_BYTES;
                }
                if first {
                    each(at, bytes)?;
                }
                at += bytes;
            }
        }
        Ok(())
    }
}

/// Writes the pages of `range` to `file`, in which `start` is byte 0. Pages never touched stay holes.
fn copy_out(range: &MappedRange, start: usize, file: &OwnedFd, touched: Option<&mut Touched>) -> Result<(), Errno> {
    match touched {
        // Untouched pages of a file have that file's bytes.
        Some(touched) if range.inode == 0 => {
            touched.runs(range.start, range.end, |at, bytes| write_all(file, at, bytes, at - start))
        }
        _ => write_all(file, range.start, range.end - range.start, range.start - start),
    }
}

/// Writes memory to a file.
fn write_all(file: &OwnedFd, mut from: usize, mut bytes: usize, mut offset: usize) -> Result<(), Errno> {
    while bytes > 0 {
        // SAFETY: the kernel reads memory that is mapped, or fails; others may load and store there.
        let written = unsafe { libc::pwrite64(file.as_raw_fd(), address_of(from), bytes, offset as libc::off64_t) };
        match usize::try_from(written) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                from += written;
                offset += written;
                bytes -= written;
            }
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                errno => return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))),
            },
        }
    }
    Ok(())
}

#[cfg(all(test, not(miri)))]
mod tests;
