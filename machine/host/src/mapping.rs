//! A range of address space that this process mapped, unmapped when dropped.
//!
//! The only module that calls `mmap` and `munmap`. Everything above it is bounds-checked against its length. Other processes may write any
//! byte of it at any time, so no reference to its bytes is ever made: words are atomics, and everything else is copied between raw
//! addresses.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

use crate::memory::raw::{self, Source};
use crate::page::PAGE_BYTES;

/// Loads and stores that a mapping allows at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Neither loads nor stores.
    None,
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Rights {
    pub(crate) fn prot(self) -> ProtFlags {
        match self {
            Self::None => ProtFlags::empty(),
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// Address space owned by this value: nobody else unmaps it or maps over it while it lives.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; it holds no thread-local state.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` hands out addresses and atomics only; plain accesses through the addresses
// are the caller's affair.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of `file` from `offset`, shared, at an address chosen by the kernel.
    pub fn shared(file: impl AsFd, offset: u64, bytes: usize, rights: Rights) -> Result<Self, Errno> {
        // SAFETY: without MAP_FIXED the kernel picks unused address space, so no memory that
        // Rust knows of changes.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes,
                rights.prot(),
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset,
            )
        }?;
        Self::from_raw(start, bytes)
    }

    /// Maps `bytes` of `file` from its start, shared, at exactly `address`; the file may be shorter, and grow later. `Errno::EXIST` if
    /// anything is mapped there.
    pub fn shared_at(file: impl AsFd, address: usize, bytes: usize) -> Result<Self, Errno> {
        let (rights, flags) =
            (Rights::ReadWrite.prot(), MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE);
        let place = ptr::with_exposed_provenance_mut(address);
        // SAFETY: MAP_FIXED_NOREPLACE refuses to map over existing mappings.
        let start = unsafe { rustix::mm::mmap(place, bytes, rights, flags, file, 0) }?;
        let mapping = Self::from_raw(start, bytes)?;
        // Kernels before 4.17 take the address for a hint.
        if mapping.address() == address { Ok(mapping) } else { Err(Errno::EXIST) }
    }

    /// As [`shared`](Self::shared) from the first byte on, for memory that another process uses too: it is left out of core dumps. Either
    /// [`verify`](crate::memory::memfd::verify) has approved it, or this process made it.
    pub fn foreign(file: impl AsFd, bytes: usize, rights: Rights) -> Result<Self, Errno> {
        let mapping = Self::shared(file, 0, bytes, rights)?;
        mapping.advise(0, bytes, Advice::LinuxDontDump)?;
        Ok(mapping)
    }

    /// Maps `bytes` of fresh zeroed memory, private to this process.
    pub fn anonymous(bytes: usize) -> Result<Self, Errno> {
        Self::private(bytes, None, Rights::ReadWrite, MapFlags::empty())
    }

    /// Maps `bytes` of zeroed memory without reserving any: a page takes memory once it is stored to. At exactly `address`, or where the
    /// kernel likes. `Errno::EXIST` if anything is mapped there.
    pub fn sparse(bytes: usize, address: Option<usize>) -> Result<Self, Errno> {
        Self::private(bytes, address, Rights::ReadWrite, MapFlags::NORESERVE)
    }

    /// Reserves `bytes` of address space at exactly `address`, without access and without
    /// memory. `Errno::EXIST` if anything is mapped there.
    pub(crate) fn reserve_at(address: usize, bytes: usize) -> Result<Self, Errno> {
        Self::private(bytes, Some(address), Rights::None, MapFlags::NORESERVE)
    }

    fn private(bytes: usize, address: Option<usize>, rights: Rights, flags: MapFlags) -> Result<Self, Errno> {
        let fixed = if address.is_some() { MapFlags::FIXED_NOREPLACE } else { MapFlags::empty() };
        let hint = ptr::without_provenance_mut(address.unwrap_or(0));
        // SAFETY: MAP_FIXED_NOREPLACE refuses to map over existing mappings; without it the kernel picks unused address space.
        let start =
            unsafe { rustix::mm::mmap_anonymous(hint, bytes, rights.prot(), MapFlags::PRIVATE | flags | fixed) }?;
        Self::from_raw(start, bytes)
    }

    /// Maps `bytes` of `file` from `offset` on over what is mapped at `address`; `sharing` says whether stores to it reach others.
    /// Accesses see the old memory or the new, never a hole.
    ///
    /// # Safety
    /// The range is mapped, and stays valid for whoever uses it: `file` holds the same bytes, or nobody expects them.
    pub(crate) unsafe fn over(
        address: usize,
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        rights: ProtFlags,
        sharing: MapFlags,
    ) -> Result<(), Errno> {
        let place = ptr::with_exposed_provenance_mut(address);
        let flags = sharing | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: this function's contract.
        unsafe { rustix::mm::mmap(place, bytes, rights, flags, file, offset) }.map(drop)
    }

    /// Moves the pages over what is mapped at `address`, in one step as [`over`](Self::over), with these rights.
    ///
    /// # Safety
    /// As for [`over`](Self::over), of the bytes of this mapping.
    pub(crate) unsafe fn move_over(self, address: usize, rights: MprotectFlags) -> Result<(), Errno> {
        let place = ptr::with_exposed_provenance_mut(address);
        let (from, bytes) = (self.start.as_ptr().cast(), self.bytes);
        if rights != MprotectFlags::READ | MprotectFlags::WRITE {
            // SAFETY: the range belongs to this value.
            unsafe { rustix::mm::mprotect(from, bytes, rights) }?;
        }
        // SAFETY: the range belongs to this value; the rest is this function's contract.
        unsafe { rustix::mm::mremap_fixed(from, bytes, bytes, MremapFlags::MAYMOVE, place) }?;
        // Its address space is gone.
        core::mem::forget(self);
        Ok(())
    }

    fn from_raw(start: *mut c_void, bytes: usize) -> Result<Self, Errno> {
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::INVAL)?;
        Ok(Self { start, bytes })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Length, a multiple of the page size.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    fn range(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: called for an offset within the mapping only.
        (end <= self.bytes).then(|| unsafe { self.start.as_ptr().add(offset) })
    }

    /// Address of `bytes` at `offset`. Panics if they are not inside the mapping: offsets come from this process's own arithmetic, never
    /// from a peer.
    #[inline(always)]
    pub fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        self.range(offset, bytes).expect("range outside the mapping")
    }

    /// Replaces `bytes` at `offset` by a shared mapping of `file` from `file_offset`.
    ///
    /// The old pages vanish from this address in one step: a concurrent access sees the old or
    /// the new memory, never a hole.
    pub(crate) fn replace(
        &self,
        offset: usize,
        bytes: usize,
        file: impl AsFd,
        file_offset: u64,
        rights: Rights,
    ) -> Result<(), Errno> {
        let start = self.range(offset, bytes).ok_or(Errno::INVAL)?;
        // SAFETY: the range lies within address space that `self` owns; accesses to it are raw
        // (no Rust reference to plain data is ever made from it).
        unsafe { Self::over(start.expose_provenance(), file, file_offset, bytes, rights.prot(), MapFlags::SHARED) }
    }

    /// Detaches the file: fresh memory, private to this process, replaces it. A concurrent access sees the old or the new memory.
    pub fn forget_file(&self) -> Result<(), Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `replace`.
        unsafe { rustix::mm::mmap_anonymous(self.start.as_ptr().cast(), self.bytes, Rights::ReadWrite.prot(), flags) }?;
        Ok(())
    }

    /// Changes the rights of whole pages.
    pub fn protect(&self, offset: usize, bytes: usize, rights: Rights) -> Result<(), Errno> {
        let start = self.range(offset, bytes).ok_or(Errno::INVAL)?;
        let flags = MprotectFlags::from_bits_retain(rights.prot().bits());
        // SAFETY: the range lies within address space that `self` owns.
        unsafe { rustix::mm::mprotect(start.cast(), bytes, flags) }
    }

    /// Gives advice to the kernel. The contents of shared memory stay as they are.
    pub fn advise(&self, offset: usize, bytes: usize, advice: Advice) -> Result<(), Errno> {
        let start = self.range(offset, bytes).ok_or(Errno::INVAL)?;
        // SAFETY: the range lies within address space that `self` owns; of shared memory, even MADV_DONTNEED drops the page
        // table entries only, and accesses to private memory are as raw as to shared.
        unsafe { rustix::mm::madvise(start.cast(), bytes, advice) }
    }

    /// Puts the contents into huge pages now (Linux 6.1; with any setting of transparent huge pages). Address, offset in the file and length
    /// must be multiples of 2 MiB.
    pub fn collapse(&self, offset: usize, bytes: usize) -> Result<(), Errno> {
        let start = self.range(offset, bytes).ok_or(Errno::INVAL)?;
        // SAFETY: as in `advise`: contents stay as they are, and the range is of `self`.
        match unsafe { libc::madvise(start.cast(), bytes, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        }
    }

    /// Makes pages present now, so that first accesses do not fault. Best effort: an old kernel refuses, which costs only time.
    pub fn prefault(&self, offset: usize, bytes: usize) {
        let _ = self.advise(offset, bytes, Advice::LinuxPopulateWrite);
    }

    /// The first word, which must be readable.
    #[inline(always)]
    pub(crate) fn first_word32(&self) -> &AtomicU32 {
        // SAFETY: a mapping has a page at least and starts on one; every access to these bytes, in all processes, is atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast()) }
    }

    /// The address of `bytes` at `offset`, if they are within the first `len`.
    #[inline(always)]
    fn within(&self, len: usize, offset: usize, bytes: usize) -> Option<*mut u8> {
        let len = len.min(self.bytes());
        // SAFETY: called for an offset within the mapping only.
        (offset <= len && bytes <= len - offset).then(|| unsafe { self.start.as_ptr().add(offset) })
    }

    /// Copies `from` to byte `offset`; false, and nothing copied, when that is not within the first `bytes`, which must be
    /// writable.
    #[inline(always)]
    pub(crate) fn put(&self, bytes: usize, offset: usize, from: Source<'_>) -> bool {
        // SAFETY: the range is within the mapping, as just checked, and `from` is mapped. It is other memory: what a process
        // sends is its own, and this is a mapping of a peer's, or one into which no reference exists.
        self.within(bytes, offset, from.len()).map(|to| unsafe { from.copy_to(to) }).is_some()
    }

    /// As [`put`](Self::put), in whole lines.
    pub(crate) fn put_whole_lines(&self, bytes: usize, offset: usize, from: Source<'_>) -> bool {
        // SAFETY: as in `put`.
        self.within(bytes, offset, from.len()).map(|to| unsafe { from.copy_whole_lines_to(to) }).is_some()
    }

    /// Copies from byte `offset` on to `to`; false, and nothing copied, when that is not within the first `bytes`, which must be
    /// readable.
    #[inline(always)]
    pub fn get(&self, bytes: usize, offset: usize, to: &mut [u8]) -> bool {
        // SAFETY: as in `put`, the other way round.
        self.within(bytes, offset, to.len()).map(|from| unsafe { raw::copy_out(from, to) }).is_some()
    }

    /// Stores `value` to `bytes` at `offset`, which must be writable; false, and nothing stored, when they are not within the mapping.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> bool {
        static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let filled;
        let from = match value {
            0 => &ZEROS,
            value => {
                filled = [value; PAGE_BYTES];
                &filled
            }
        };
        let Some(start) = self.within(self.bytes, offset, bytes) else { return false };
        let mut done = 0;
        while done < bytes {
            let part = &from[..(bytes - done).min(from.len())];
            // SAFETY: within the mapping, as just checked; `part` is memory of this function.
            unsafe { Source::from(part).copy_to(start.add(done)) };
            done += part.len();
        }
        true
    }

    /// Copies `bytes` from one offset to another, all of which must be readable and writable; false, and nothing copied, when they overlap
    /// or are not within the mapping.
    pub fn copy_within(&self, from: usize, to: usize, bytes: usize) -> bool {
        let (Some(source), Some(target)) = (self.within(self.bytes, from, bytes), self.within(self.bytes, to, bytes))
        else {
            return false;
        };
        if from.abs_diff(to) < bytes {
            return false;
        }
        // SAFETY: both are within the mapping, and do not overlap, as just checked.
        unsafe { raw::copy(source, target, bytes) };
        true
    }

    /// The atomic byte at `offset`, which must be readable.
    #[inline(always)]
    pub fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: within the mapping (checked by `at`); copies of these bytes are atomic too.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }
    }

    /// As [`byte`](Self::byte); `None` if it is not within the mapping.
    #[inline(always)]
    pub fn byte_within(&self, offset: usize) -> Option<&AtomicU8> {
        // SAFETY: within the mapping, as just checked; copies of these bytes are atomic too.
        (offset < self.bytes).then(|| unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(offset)) })
    }

    /// As [`word32`](Self::word32); `None` if it is not within the mapping, or not aligned.
    #[inline(always)]
    pub fn word32_within(&self, offset: usize) -> Option<&AtomicU32> {
        // The length is a multiple of 4.
        let is_within = offset < self.bytes && offset.is_multiple_of(4);
        // SAFETY: within the mapping and aligned, as just checked; copies of these bytes are atomic too.
        is_within.then(|| unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    /// The atomic word of 4 bytes at `offset`, which must be aligned and readable.
    #[inline(always)]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "word not aligned");
        // SAFETY: within the mapping (checked by `at`) and aligned; copies of these bytes are atomic too.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// `N` atomic words of 4 bytes from `offset` on, which must be aligned and readable.
    #[inline(always)]
    pub fn words32<const N: usize>(&self, offset: usize) -> &[AtomicU32; N] {
        assert!(offset.is_multiple_of(4), "words not aligned");
        // SAFETY: within the mapping (checked by `at`) and aligned; all access to them is atomic, as in `word32`.
        unsafe { &*self.at(offset, 4 * N).cast() }
    }

    /// As [`words32`](Self::words32), of 8 bytes.
    #[inline(always)]
    pub fn words64<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
        assert!(offset.is_multiple_of(8), "words not aligned");
        // SAFETY: as in `words32`.
        unsafe { &*self.at(offset, 8 * N).cast() }
    }

    /// The atomic word of 8 bytes at `offset`, which must be aligned and readable.
    #[inline(always)]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "word not aligned");
        // SAFETY: within the mapping (checked by `at`) and aligned; copies of these bytes are atomic too.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and is unmapped once, here.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}
