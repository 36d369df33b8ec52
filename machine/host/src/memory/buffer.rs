//! The exporter's buffer and the importer's mapping of it.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::MemoryError;
use super::adoption::Adopted;
use super::memfd::{self, Writers};
use super::raw::{self, Source};
use super::revocation;
use super::status::flags::{AWAITED, WATCHED};
use super::status::{PeerStatus, Status};
use super::words;
use mapwire_wire::{Atomic, Signal, Width};

use crate::barrier;
use crate::mapping::{Mapping, Rights};
use crate::page::PAGE_BYTES;

/// Memory that peers of this host can map; the exporter's side.
///
/// Private at first, until it is [shared](Self::share). Dropping it revokes it: importers keep the memory as an orphan.
#[derive(Debug)]
pub struct SharedBuffer {
    name: String,
    bytes: usize,
    data_bytes: usize,
    file: Arc<OwnedFd>,
    start: usize,
    home: Home,
    /// Who may store, and the status that tells importers of a revocation; `None` until the memory is shared.
    shared: Option<(Writers, Status)>,
    /// Number of threads that want to be woken after a store.
    awaiting: AtomicU32,
    /// Whether the service thread wants to be woken after a store.
    watched: bool,
}

/// Owner of a buffer's address space.
#[derive(Debug)]
enum Home {
    /// The buffer itself.
    Allocated(Mapping),
    /// The program, which gets it back.
    Adopted(Adopted),
    /// The program again.
    GivenBack,
}

impl SharedBuffer {
    /// Allocates at least `bytes`, in whole pages. `name` shows in `/proc/PID/maps`.
    ///
    /// Pages take memory when they are first touched.
    ///
    /// # Errors
    /// Zero bytes, more than the address space or a limit allows, or no descriptor left.
    pub fn allocate(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        let data_bytes = memfd::whole_pages(bytes)?;
        let file = memfd::create(name, data_bytes)?;
        let mapping = Mapping::shared(&file, 0, data_bytes, Rights::ReadWrite)
            .map_err(|errno| MemoryError::of_call("mmap", bytes, errno))?;
        let start = mapping.as_ptr().expose_provenance();
        Ok(Self::over(name, bytes, start, data_bytes, Arc::new(file), Home::Allocated(mapping)))
    }

    fn over(name: &str, bytes: usize, start: usize, data_bytes: usize, file: Arc<OwnedFd>, home: Home) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            data_bytes,
            file,
            start,
            home,
            shared: None,
            awaiting: AtomicU32::new(0),
            watched: false,
        }
    }

    /// Adopts the whole pages within `bytes` of private memory at `address`: heap or statics, mapped for loads and stores. They move onto
    /// a memfd without changing their addresses. Meanwhile no system call may store to them; stores of other threads wait (from Linux 5.14
    /// on, if the program has no SIGSEGV handler of its own; otherwise there must be none). A thread that blocks SIGSEGV must not store
    /// there: the kernel would end the process. Dropping the buffer, or revoking it, moves them back. Takes about 20 µs and 1.5 µs a page.
    ///
    /// While they are adopted:
    /// * a child of `fork` has them as private memory: its stores stay its own, and it sees those of others until it stores to the same
    ///   page;
    /// * huge pages become base pages; advice of `madvise` is forgotten, and `MADV_DONTNEED` leaves the bytes as they are;
    /// * locked memory stays locked;
    /// * protected pages stay protected, and pages that the program unmaps are no longer adopted.
    ///
    /// # Errors
    /// [`MemoryError::NotAdoptable`]: no whole page; memory that is shared, on a stack, executable, of huge pages, with guard pages, far,
    /// or of the C library for a thread; too many adoptions or mapped ranges. If the kernel refuses, the memory is as before.
    pub fn adopt(name: &str, address: usize, bytes: usize) -> Result<Self, MemoryError> {
        let refuse = |reason| MemoryError::NotAdoptable { address, bytes, reason };
        let end = address.checked_add(bytes).map(|end| end & !(PAGE_BYTES - 1));
        let (Some(start), Some(end)) = (address.checked_next_multiple_of(PAGE_BYTES), end) else {
            return Err(refuse("at the end of the address space"));
        };
        if start >= end {
            return Err(refuse("without a whole page"));
        }
        let data_bytes = end - start;
        let file = Arc::new(memfd::create(name, data_bytes)?);
        let adopted = Adopted::take(start, data_bytes, &file)?;
        Ok(Self::over(name, data_bytes, start, data_bytes, file, Home::Adopted(adopted)))
    }

    /// First byte, on a page boundary. Constant for the buffer's life, revoked or not.
    pub fn as_ptr(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.start)
    }

    /// Length requested, in bytes.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Makes the memory ready for importers. If `writers` differs from an earlier call, the buffer moves, as [`revoke`](Self::revoke)
    /// says.
    ///
    /// # Errors
    /// No descriptor, memory or address space left, or a kernel older than 5.1.
    pub fn share(&mut self, writers: Writers) -> Result<(), MemoryError> {
        if matches!(&self.shared, Some((earlier, _)) if *earlier != writers) {
            self.leave()?;
        }
        let status = match self.shared.take() {
            Some((_, status)) => status,
            None => {
                let status = Status::new(&self.name)?;
                if *self.awaiting.get_mut() != 0 {
                    status.set(AWAITED, true);
                }
                if self.watched {
                    status.set(WATCHED, true);
                }
                memfd::finish(&self.file, writers)?;
                status
            }
        };
        self.shared = Some((writers, status));
        Ok(())
    }

    /// The memfds of the memory and of its status, for [`MappedBuffer::map`], once it is [shared](Self::share). They change with each
    /// revocation.
    pub fn descriptors(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let (_, status) = self.shared.as_ref()?;
        Some((self.file.as_fd(), status.fd()))
    }

    #[cfg(test)]
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Ends the sharing: importers store nothing here from now on. Moves this buffer onto fresh memory with the same contents at the same
    /// address; the old memory is left to the importers as an orphan and marked as revoked.
    ///
    /// A store that an importer finished before it found [`MappedBuffer::stores_arrived`] true is part of the contents. Stores of other
    /// threads of this process must not race with the call. Pages pinned before it are pages of the orphan: unpin them first. A buffer
    /// whose [`descriptors`](Self::descriptors) were never requested stays on its memory.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate). The export is then as before; one of [adopted](Self::adopt) memory is marked as revoked, and parts
    /// that could not move stay on their memfd.
    pub fn revoke(&mut self) -> Result<(), MemoryError> {
        let is_known = matches!(&self.shared, Some((_, status)) if status.is_known());
        if !is_known && matches!(self.home, Home::Allocated(_)) {
            return Ok(());
        }
        self.leave()
    }

    /// Moves to memory that no importer knows.
    fn leave(&mut self) -> Result<(), MemoryError> {
        if matches!(&self.home, Home::Adopted(adopted) if !adopted.is_mine()) {
            return Ok(());
        }
        // Marked before the copy: what an importer stored before it could see the mark is copied; what it stores after may be lost, and it
        // can tell.
        self.set_revoked(true);
        let moved = match &self.home {
            Home::Allocated(mapping) => self.fresh_copy(mapping).map(Some),
            Home::Adopted(adopted) => adopted.give_back(&self.file).map(|()| None),
            Home::GivenBack => return Ok(()),
        };
        match moved {
            Ok(Some(fresh)) => self.file = Arc::new(fresh),
            Ok(None) => self.home = Home::GivenBack,
            Err(error) => {
                // A part of adopted memory may have moved: importers must not mistake it for the export.
                if matches!(self.home, Home::Allocated(_)) {
                    self.set_revoked(false);
                }
                return Err(error);
            }
        }
        self.shared = None;
        Ok(())
    }

    /// Maps a new memfd with the same contents in place of the old one.
    fn fresh_copy(&self, mapping: &Mapping) -> Result<OwnedFd, MemoryError> {
        let fail = |call| move |errno| MemoryError::of_call(call, self.bytes, errno);
        let file = memfd::create(&self.name, self.data_bytes)?;
        let fresh = Mapping::shared(&file, 0, self.data_bytes, Rights::ReadWrite).map_err(fail("mmap"))?;
        // So that a sparse buffer stays sparse.
        memfd::extents(&self.file, 0, self.data_bytes, |at, bytes| {
            copy_between(mapping, &fresh, at, bytes);
        })
        .map_err(fail("lseek"))?;
        mapping.replace(0, self.data_bytes, &file, 0, Rights::ReadWrite).map_err(fail("mmap"))?;
        Ok(file)
    }

    fn set_revoked(&self, revoked: bool) {
        if let Some((_, status)) = &self.shared {
            status.set_revoked(revoked);
        }
    }

    /// Shows importers a flag, or takes it back, once the memory is shared.
    fn set_flag(&self, flag: u32, on: bool) {
        if let Some((_, status)) = &self.shared {
            status.set(flag, on);
        }
    }

    /// Asks importers to wake this process after each store ([`MappedBuffer::is_awaited`]); check the memory once more after this call.
    /// Returns whether all importers that have not stored yet will see it: without `membarrier`, some may not. A revocation ends it. Takes
    /// a few microseconds.
    pub fn ask_for_wake(&self) -> bool {
        if self.awaiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.set_flag(AWAITED, true);
        }
        barrier::heavy()
    }

    /// Starts or stops asking importers, also those that map the memory later, to wake the service thread of this process after each store
    /// ([`MappedBuffer::is_awaited`]). Make a fence ([`barrier::heavy`]) after this, then check the memory. Returns whether this changed
    /// anything.
    pub fn set_watched(&mut self, watched: bool) -> bool {
        let before = core::mem::replace(&mut self.watched, watched);
        if before != watched {
            self.set_flag(WATCHED, watched);
        }
        before != watched
    }

    /// Ends [`ask_for_wake`](Self::ask_for_wake). Call it once for each call of that.
    pub fn end_asking(&self) {
        if self.awaiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.set_flag(AWAITED, false);
        }
    }

    fn own(&self) -> Result<&Mapping, MemoryError> {
        match &self.home {
            Home::Allocated(mapping) => Ok(mapping),
            Home::Adopted(_) | Home::GivenBack => Err(MemoryError::OfProgram),
        }
    }

    /// Copies `from` to byte `offset` of the buffer.
    ///
    /// # Errors
    /// The range leaves the buffer, or its memory is [adopted](Self::adopt): the program accesses it itself.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        let is_put = self.own()?.put(self.bytes, offset, from.into());
        if is_put { Ok(()) } else { check_range(self.bytes, offset, from.len()) }
    }

    /// Copies bytes of the buffer from `offset` to `to`.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        let is_got = self.own()?.get(self.bytes, offset, to);
        if is_got { Ok(()) } else { check_range(self.bytes, offset, to.len()) }
    }

    /// Releases the memory of whole pages to the system, also where peers have mapped it: they are zeros from then on.
    ///
    /// # Errors
    /// As [`write`](Self::write); or the kernel refuses, as if only those who mapped it before may write.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.own()?;
        check_range(self.bytes, offset, bytes)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&*self.file, flags, offset as u64, bytes as u64)
            .map_err(|errno| MemoryError::of_call("fallocate", bytes, errno))
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        if let Home::Adopted(_) = self.home {
            // Without memory for that, the pages stay on their memfd, marked as revoked.
            let _ = self.revoke();
        }
    }
}

/// An importer's mapping of a peer's [`SharedBuffer`]. Its memory may be a part of an export: offsets are those of the export.
#[derive(Debug)]
pub struct MappedBuffer {
    /// Offset of the first mapped byte.
    first: usize,
    bytes: usize,
    writable: bool,
    data: Mapping,
    status: PeerStatus,
    /// Bytes stored. Threads add to it in two steps: concurrent stores may be missed.
    stored: Arc<AtomicU64>,
}

impl MappedBuffer {
    /// Maps the exporter's memory, the bytes `part` of its export, for loads and, if `writable`, for stores, and its status. The
    /// descriptors may be closed afterwards.
    ///
    /// # Errors
    /// Memory that [`memfd::verify`] refuses, memory that its exporter shares for loads only (`EPERM`) if `writable`, or no address space.
    pub fn map(file: impl AsFd, status: impl AsFd, part: Range<usize>, writable: bool) -> Result<Self, MemoryError> {
        let bytes = part.len();
        let data_bytes = memfd::whole_pages(bytes)?;
        memfd::verify(&file, data_bytes)?;
        let rights = if writable { Rights::ReadWrite } else { Rights::Read };
        let data =
            Mapping::foreign(&file, data_bytes, rights).map_err(|errno| MemoryError::of_call("mmap", bytes, errno))?;
        Ok(Self { first: part.start, bytes, writable, data, status: PeerStatus::map(status)?, stored: Arc::default() })
    }

    /// Bytes stored by calls here. Some concurrent stores through one mapping may be missed.
    pub fn stored_bytes(&self) -> &Arc<AtomicU64> {
        &self.stored
    }

    /// Not atomic: that would cost as much as a short store itself.
    #[inline(always)]
    fn count(&self, bytes: usize) {
        let stored = self.stored.load(Ordering::Relaxed);
        self.stored.store(stored.wrapping_add(bytes as u64), Ordering::Relaxed);
    }

    /// Whether the exporter has moved away, so that stores no longer reach it. One load.
    #[inline(always)]
    pub fn revoked(&self) -> bool {
        revocation::is_revoked(self.status.word())
    }

    /// Whether all stores that this thread has made here are part of the export, also if it is revoked from now on. A full fence and one
    /// load.
    pub fn stores_arrived(&self) -> bool {
        revocation::stores_arrived(self.status.word())
    }

    /// Whether the [`update`](Self::update) that this thread has just made is part of the export, and need wake nobody. One load; the
    /// update was the fence.
    #[inline(always)]
    pub fn nothing_follows_update(&self) -> bool {
        revocation::status_after_update(self.status.word()) == 0
    }

    /// Whether the exporter wants to be woken after a store; ask after the store. One load.
    #[inline(always)]
    pub fn is_awaited(&self) -> bool {
        barrier::light();
        self.status.word().load(Ordering::Relaxed) & (AWAITED | WATCHED) != 0
    }

    /// If [`is_awaited`](Self::is_awaited), which of its threads want to be woken: waiting threads, and the service thread.
    #[cold]
    pub fn awaited_by(&self) -> (bool, bool) {
        let word = self.status.word().load(Ordering::Relaxed);
        (word & AWAITED != 0, word & WATCHED != 0)
    }

    /// Where byte `offset` of the export is mapped, if it and the following `bytes` are. They stay mapped after a revocation.
    pub fn at(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        let offset = self.within(offset, bytes).ok()?;
        Some(self.data.at(offset, bytes))
    }

    /// Whether the word of `bytes` at `offset` of the export is mapped and aligned.
    pub fn holds_word(&self, offset: usize, bytes: usize) -> bool {
        self.place_of_word(offset, bytes).is_some()
    }

    /// The bytes of the export that are mapped.
    #[inline]
    pub fn part(&self) -> Range<usize> {
        self.first..self.first + self.bytes
    }

    /// The offset in the mapping of a range of the export.
    #[inline(always)]
    fn within(&self, offset: usize, bytes: usize) -> Result<usize, MemoryError> {
        // An offset before the first mapped byte wraps, and is then too large.
        let at = offset.wrapping_sub(self.first);
        check_range(self.bytes, at, bytes).map(|()| at)
    }

    /// Copies `from` to byte `offset` of the export, as [`write`](Self::write) does; false if that would be an error. The fast path, for
    /// stores that should cost no more than a copy.
    #[inline(always)]
    pub fn put<'a>(&self, offset: usize, from: impl Into<Source<'a>>) -> bool {
        let from = from.into();
        let at = offset.wrapping_sub(self.first);
        let is_put = self.writable && self.data.put(self.bytes, at, from);
        if is_put {
            self.count(from.len());
        }
        is_put
    }

    /// As [`put`](Self::put), [in whole lines](super::raw::copy_whole_lines): for long stores to memory that the peer has read before.
    pub fn put_whole_lines<'a>(&self, offset: usize, from: impl Into<Source<'a>>) -> bool {
        let from = from.into();
        let at = offset.wrapping_sub(self.first);
        let is_put = self.writable && self.data.put_whole_lines(self.bytes, at, from);
        if is_put {
            self.count(from.len());
        }
        is_put
    }

    /// As [`put`](Self::put), then writes the signal, after the bytes; false, with nothing stored, if either would be an error.
    #[inline(always)]
    pub fn put_signal<'a>(&self, offset: usize, from: impl Into<Source<'a>>, signal: Signal) -> bool {
        match self.place_of_word(signal.offset as usize, size_of::<u64>()) {
            Some(at) if self.put(offset, from) => {
                words::signal(self.data.word64(at), signal.op, signal.value);
                true
            }
            _ => false,
        }
    }

    /// Updates the word at `offset`, and returns its old value; `None`, with nothing changed, if it is not mapped for stores or not
    /// aligned.
    #[inline(always)]
    pub fn update(&self, offset: usize, atomic: Atomic) -> Option<u64> {
        let at = self.place_of_word(offset, atomic.width.bytes() as usize)?;
        if !self.writable {
            return None;
        }
        Some(match atomic.width {
            Width::Four => words::update_u32(self.data.word32(at), atomic),
            Width::Eight => words::update_u64(self.data.word64(at), atomic),
        })
    }

    /// The offset in the mapping of a word of the export, if it is mapped, and aligned in both.
    #[inline(always)]
    fn place_of_word(&self, offset: usize, bytes: usize) -> Option<usize> {
        let at = offset.wrapping_sub(self.first);
        let is_aligned = (offset | at) & (bytes - 1) == 0;
        (is_aligned && at < self.bytes && self.bytes - at >= bytes).then_some(at)
    }

    /// Copies `from` to byte `offset` of the export.
    ///
    /// # Errors
    /// The range leaves the mapped part, or it was mapped for loads only.
    pub fn write<'a>(&self, offset: usize, from: impl Into<Source<'a>>) -> Result<(), MemoryError> {
        let from = from.into();
        if !self.writable {
            return Err(MemoryError::ReadOnly);
        }
        let offset = self.within(offset, from.len())?;
        self.data.put(self.bytes, offset, from);
        self.count(from.len());
        Ok(())
    }

    /// Copies bytes of the export from `offset` to `to`.
    ///
    /// # Errors
    /// The range leaves the mapped part.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        let offset = self.within(offset, to.len())?;
        self.data.get(self.bytes, offset, to);
        Ok(())
    }
}

fn check_range(len: usize, offset: usize, bytes: usize) -> Result<(), MemoryError> {
    if offset.checked_add(bytes).is_some_and(|end| end <= len) {
        Ok(())
    } else {
        Err(MemoryError::OutOfRange { offset, bytes, len })
    }
}

#[allow(unsafe_code)]
fn copy_between(from: &Mapping, to: &Mapping, offset: usize, bytes: usize) {
    assert!(offset + bytes <= from.bytes() && offset + bytes <= to.bytes());
    // SAFETY: both ranges were just checked; both mappings allow what is done to them, and are apart.
    unsafe { raw::copy(from.as_ptr().add(offset), to.as_ptr().add(offset), bytes) };
}
