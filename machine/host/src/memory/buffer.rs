//! The exporter's buffer and the importer's mapping of it.

use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::SeekFrom;

use super::MemoryError;
use super::memfd::{self, Writers};
use super::raw::{self, Source};
use super::revocation;
use super::status::flags::AWAITED;
use super::status::{PeerStatus, Status};
use crate::barrier;
use crate::mapping::{Mapping, Rights};

/// Memory that peers of this host can map; the exporter's side.
///
/// Zeroed and private at first, until it is [shared](Self::share). Dropping it revokes it: importers keep the memory
/// as an orphan.
#[derive(Debug)]
pub struct SharedBuffer {
    name: String,
    bytes: usize,
    data_bytes: usize,
    file: OwnedFd,
    mapping: Mapping,
    /// Who may store, and what tells importers of a revocation; there once the memory is shared.
    shared: Option<(Writers, Status)>,
    /// Threads that want to be woken after a store.
    awaiting: AtomicU32,
}

impl SharedBuffer {
    /// Memory of at least `bytes`, in whole pages. `name` shows in `/proc/PID/maps`.
    ///
    /// Pages are taken from the system when they are first touched.
    ///
    /// # Errors
    /// Zero bytes, more than the address space or a limit allows, or no descriptor left.
    pub fn allocate(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        let data_bytes = memfd::whole_pages(bytes)?;
        let file = memfd::create(name, data_bytes)?;
        let mapping = Mapping::shared(&file, 0, data_bytes, Rights::ReadWrite)
            .map_err(|errno| MemoryError::of_call("mmap", bytes, errno))?;
        Ok(Self {
            name: name.to_owned(),
            bytes,
            data_bytes,
            file,
            mapping,
            shared: None,
            awaiting: AtomicU32::new(0),
        })
    }

    /// First byte; on a page boundary. Stays the same for the buffer's life, revoked or not.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    /// Bytes asked for.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Makes the memory ready for importers: gives its memfd and that of its status, for
    /// [`MappedBuffer::map`]. Other ones after each revocation, and when `writers` differs from that of an earlier call: the
    /// buffer then moves, as [`revoke`](Self::revoke) says.
    ///
    /// # Errors
    /// No descriptor, memory or address space left, or a kernel older than 5.1.
    pub fn share(
        &mut self,
        writers: Writers,
    ) -> Result<(BorrowedFd<'_>, BorrowedFd<'_>), MemoryError> {
        if matches!(&self.shared, Some((earlier, _)) if *earlier != writers) {
            self.revoke()?;
        }
        let status = match self.shared.take() {
            Some((_, status)) => status,
            None => {
                let status = Status::new(&self.name)?;
                status.set_awaited(*self.awaiting.get_mut() != 0);
                memfd::finish(&self.file, writers)?;
                status
            }
        };
        let (_, status) = self.shared.insert((writers, status));
        Ok((self.file.as_fd(), status.fd()))
    }

    /// Its memfd. [`share`](Self::share) it before another process gets it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its status, once it is [shared](Self::share).
    pub fn status(&self) -> Option<&Status> {
        self.shared.as_ref().map(|(_, status)| status)
    }

    /// Moves this buffer onto fresh memory with the same contents at the same address; the old
    /// memory is left to the importers as an orphan and marked as revoked.
    ///
    /// A store that an importer finished before it found [`MappedBuffer::stores_arrived`] true is
    /// part of the contents. Stores of other threads of this process must not race with the call.
    /// Pages pinned before it are pages of the orphan: unpin them first.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate). The export then stands as before.
    pub fn revoke(&mut self) -> Result<(), MemoryError> {
        let fresh_file = memfd::create(&self.name, self.data_bytes)?;
        {
            let fresh = Mapping::shared(&fresh_file, 0, self.data_bytes, Rights::ReadWrite)
                .map_err(|errno| MemoryError::of_call("mmap", self.bytes, errno))?;
            // Marked before the copy: what an importer stored before it could see the mark is
            // copied, what it stores after may be lost, and it can know.
            self.set_revoked(true);
            let moved = self.copy_extents(&fresh).and_then(|()| {
                self.mapping
                    .replace(0, self.data_bytes, &fresh_file, 0, Rights::ReadWrite)
                    .map_err(|errno| MemoryError::of_call("mmap", self.bytes, errno))
            });
            if let Err(error) = moved {
                self.set_revoked(false);
                return Err(error);
            }
        }
        self.file = fresh_file;
        self.shared = None;
        Ok(())
    }

    /// Copies the pages that were ever touched, so that a sparse buffer stays sparse.
    fn copy_extents(&self, fresh: &Mapping) -> Result<(), MemoryError> {
        let fail = |errno| MemoryError::of_call("lseek", self.bytes, errno);
        let mut at = 0;
        while at < self.data_bytes {
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at as u64)) {
                Ok(start) => (start as usize).min(self.data_bytes),
                Err(rustix::io::Errno::NXIO) => break,
                Err(errno) => return Err(fail(errno)),
            };
            let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start as u64)).map_err(fail)?;
            let end = (end as usize).min(self.data_bytes);
            copy_between(&self.mapping, fresh, start, end - start);
            at = end.max(start + 1);
        }
        Ok(())
    }

    fn set_revoked(&self, revoked: bool) {
        if let Some((_, status)) = &self.shared {
            status.set_revoked(revoked);
        }
    }

    fn set_awaited(&self, awaited: bool) {
        if let Some((_, status)) = &self.shared {
            status.set_awaited(awaited);
        }
    }

    /// Begins to ask importers to wake this process after each store ([`MappedBuffer::is_awaited`]); look at the memory once
    /// more after this call. Whether all see it who have not stored before: where the kernel lacks `membarrier`, some may
    /// not. A revocation ends it. Takes a few microseconds.
    pub fn ask_for_wake(&self) -> bool {
        if self.awaiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.set_awaited(true);
        }
        barrier::heavy()
    }

    /// Ends [`ask_for_wake`](Self::ask_for_wake). Once for each call of that.
    pub fn end_asking(&self) {
        if self.awaiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.set_awaited(false);
        }
    }

    /// Copies `from` to byte `offset` of the buffer.
    ///
    /// # Errors
    /// The range leaves the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        write(&self.mapping, self.bytes, offset, from)
    }

    /// Copies bytes of the buffer from `offset` to `to`.
    ///
    /// # Errors
    /// The range leaves the buffer.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        read(&self.mapping, self.bytes, offset, to)
    }

    /// Loads a word in one piece, before every load made after it.
    ///
    /// # Errors
    /// The word leaves the buffer or is not aligned.
    pub fn load_acquire_u64(&self, offset: usize) -> Result<u64, MemoryError> {
        check_word(self.bytes, offset)?;
        Ok(self.mapping.word64(offset).load(Ordering::Acquire))
    }
}

/// An importer's mapping of a peer's [`SharedBuffer`].
#[derive(Debug)]
pub struct MappedBuffer {
    bytes: usize,
    writable: bool,
    data: Mapping,
    status: PeerStatus,
}

impl MappedBuffer {
    /// Maps the exporter's memory of `bytes`, for loads and, if `writable`, for stores, and its status. The descriptors may
    /// be closed afterwards.
    ///
    /// # Errors
    /// Memory that [`memfd::verify`] refuses, memory that its exporter shares for loads only (`EPERM`) if `writable`, or no
    /// address space.
    pub fn map(
        file: impl AsFd,
        status: impl AsFd,
        bytes: usize,
        writable: bool,
    ) -> Result<Self, MemoryError> {
        let data_bytes = memfd::whole_pages(bytes)?;
        memfd::verify(&file, data_bytes)?;
        let rights = if writable {
            Rights::ReadWrite
        } else {
            Rights::Read
        };
        let data = Mapping::foreign(&file, data_bytes, rights)
            .map_err(|errno| MemoryError::of_call("mmap", bytes, errno))?;
        Ok(Self {
            bytes,
            writable,
            data,
            status: PeerStatus::map(status)?,
        })
    }

    /// Whether the exporter moved away: stores no longer reach it. One load.
    #[inline(always)]
    pub fn revoked(&self) -> bool {
        revocation::is_revoked(self.status.word())
    }

    /// Whether all stores that this thread has made here are part of the export, also if it is
    /// revoked from now on. A full fence and one load.
    pub fn stores_arrived(&self) -> bool {
        revocation::stores_arrived(self.status.word())
    }

    /// Whether the exporter wants to be woken after a store: to be asked after the store. One load.
    #[inline(always)]
    pub fn is_awaited(&self) -> bool {
        barrier::light();
        self.status.word().load(Ordering::Relaxed) & AWAITED != 0
    }

    /// First byte; on a page boundary. Stays mapped after a revocation.
    pub fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// Bytes of the export.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Copies `from` to byte `offset` of the export, as [`write`](Self::write) does; false when that would be an error.
    /// The short way, for stores that should cost no more than a copy.
    #[inline(always)]
    pub fn put<'a>(&self, offset: usize, from: impl Into<Source<'a>>) -> bool {
        self.writable && self.data.put(self.bytes, offset, from.into())
    }

    /// As [`put`](Self::put), then stores `value` in one piece at `signal_offset`, after the bytes; false, and nothing is stored,
    /// when either would be an error.
    #[inline(always)]
    pub fn put_signal<'a>(
        &self,
        offset: usize,
        from: impl Into<Source<'a>>,
        signal_offset: usize,
        value: u64,
    ) -> bool {
        let holds_signal = signal_offset.is_multiple_of(size_of::<u64>())
            && signal_offset < self.bytes
            && self.bytes - signal_offset >= size_of::<u64>();
        if !holds_signal || !self.put(offset, from) {
            return false;
        }
        self.data
            .word64(signal_offset)
            .store(value, Ordering::Release);
        true
    }

    /// Copies `from` to byte `offset` of the export.
    ///
    /// # Errors
    /// The range leaves the export, or it was mapped for loads only.
    pub fn write<'a>(&self, offset: usize, from: impl Into<Source<'a>>) -> Result<(), MemoryError> {
        let from = from.into();
        if !self.writable {
            return Err(MemoryError::ReadOnly);
        }
        if self.data.put(self.bytes, offset, from) {
            return Ok(());
        }
        Err(MemoryError::OutOfRange {
            offset,
            bytes: from.len(),
            len: self.bytes,
        })
    }

    /// Copies bytes of the export from `offset` to `to`.
    ///
    /// # Errors
    /// The range leaves the export.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        read(&self.data, self.bytes, offset, to)
    }

    /// Stores a word in one piece, after every store made before it.
    ///
    /// # Errors
    /// The word leaves the export or is not aligned, or it was mapped for loads only.
    pub fn store_release_u64(&self, offset: usize, value: u64) -> Result<(), MemoryError> {
        if !self.writable {
            return Err(MemoryError::ReadOnly);
        }
        check_word(self.bytes, offset)?;
        self.data.word64(offset).store(value, Ordering::Release);
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

fn check_word(len: usize, offset: usize) -> Result<(), MemoryError> {
    check_range(len, offset, 8)?;
    if offset.is_multiple_of(8) {
        Ok(())
    } else {
        Err(MemoryError::Misaligned { offset, align: 8 })
    }
}

#[allow(unsafe_code)]
fn write(to: &Mapping, len: usize, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
    check_range(len, offset, from.len())?;
    // SAFETY: the range was just checked against the buffer, which is mapped for stores; no
    // reference into it exists, so it cannot overlap `from`.
    unsafe { raw::copy_in(to.as_ptr().add(offset), from) };
    Ok(())
}

#[allow(unsafe_code)]
fn read(from: &Mapping, len: usize, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
    check_range(len, offset, to.len())?;
    // SAFETY: the range was just checked against the buffer, which is mapped for loads; no
    // reference into it exists, so it cannot overlap `to`.
    unsafe { raw::copy_out(from.as_ptr().add(offset), to) };
    Ok(())
}

#[allow(unsafe_code)]
fn copy_between(from: &Mapping, to: &Mapping, offset: usize, bytes: usize) {
    assert!(offset + bytes <= from.bytes() && offset + bytes <= to.bytes());
    // SAFETY: both ranges were just checked; both mappings allow what is done to them, and are apart.
    unsafe { raw::copy(from.as_ptr().add(offset), to.as_ptr().add(offset), bytes) };
}
