//! The segment: its mapping, its growth, and the words in it.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mapwire_host::limits;
use mapwire_host::mapping::Mapping;
use mapwire_host::memory::{MemoryError, memfd};
use mapwire_host::page::PAGE_BYTES;
use mapwire_host::waiting::Patience;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::error::SegmentError;
use crate::layout::{ALIGN_BYTES, DATA_AT, JOB_AT};
use crate::waiting::Vigil;

/// The file grows by this much at least.
const STEP_BYTES: u64 = 2 << 20;

/// Word of the job: the rank that ended the memory, plus one.
const ENDED: u64 = JOB_AT;

/// Memory that all ranks of a host map at the same address. Unmapped when dropped; the last process that unmaps it frees it.
///
/// A forked child has it too.
#[derive(Debug)]
pub struct Segment {
    mapping: Mapping,
    file: OwnedFd,
    /// Bytes that the file is known to have: it may have more by now.
    grown: AtomicU64,
    patience: Patience,
    vigil: Box<dyn Vigil>,
}

impl Segment {
    /// Maps `file`, which [`memfd::verify_growing`] has approved, at `base`, with room for `bytes`, a multiple of the page size.
    ///
    /// # Errors
    /// The base is no multiple of 2 MiB; too few bytes; something is mapped there; a limit of this process.
    pub fn map(
        file: OwnedFd,
        base: usize,
        bytes: u64,
        rank: usize,
        patience: Patience,
        vigil: Box<dyn Vigil>,
    ) -> Result<Self, SegmentError> {
        if base == 0 || !base.is_multiple_of(ALIGN_BYTES) {
            return Err(SegmentError::Base { base });
        }
        let range = (|| {
            let length = usize::try_from(bytes).ok()?;
            let end = isize::try_from(base.checked_add(length)?).ok()?;
            let is_right = bytes > DATA_AT && length.is_multiple_of(PAGE_BYTES);
            is_right.then_some(base..end as usize)
        })();
        let range = range.ok_or(SegmentError::Length { bytes })?;
        memfd::grow(&file, DATA_AT)?;
        let mapping =
            Mapping::shared_at(&file, base, range.len()).map_err(|errno| explain(errno, rank, range.clone()))?;
        let segment = Self { mapping, file, grown: AtomicU64::new(0), patience, vigil };
        // Without the advice core dumps would go through all of it.
        let _ = segment.mapping.advise(0, range.len(), Advice::LinuxDontDump);
        segment.notice_growth();
        Ok(segment)
    }

    /// Its first address.
    #[inline]
    pub fn base(&self) -> usize {
        self.mapping.address()
    }

    /// Its length in bytes, used or not.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.mapping.bytes() as u64
    }

    /// Its addresses.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.base()..self.base() + self.mapping.bytes()
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Offset of an address; `None` outside of the segment.
    #[inline]
    pub fn offset_of(&self, address: usize) -> Option<u64> {
        let offset = address.checked_sub(self.base())?;
        (offset < self.mapping.bytes()).then_some(offset as u64)
    }

    /// The word of 4 bytes at `offset`; `None` if it is not aligned, or not within what is in use.
    #[inline]
    pub fn word32(&self, offset: u64) -> Option<&AtomicU32> {
        (offset.is_multiple_of(4) && self.is_in_use(offset, 4)).then(|| self.mapping.word32(offset as usize))
    }

    /// The word of 8 bytes at `offset`; `None` if it is not aligned, or not within what is in use.
    #[inline]
    pub fn word64(&self, offset: u64) -> Option<&AtomicU64> {
        (offset.is_multiple_of(8) && self.is_in_use(offset, 8)).then(|| self.mapping.word64(offset as usize))
    }

    /// `N` words of 4 bytes from `offset` on; `None` if they are not aligned to 8 bytes, or not within what is in use.
    #[inline]
    pub(crate) fn words32<const N: usize>(&self, offset: u64) -> Option<&[AtomicU32; N]> {
        let is_right = offset.is_multiple_of(8) && self.is_in_use(offset, 4 * N as u64);
        is_right.then(|| self.mapping.words32(offset as usize))
    }

    /// As [`words32`](Self::words32), of 8 bytes.
    #[inline]
    pub(crate) fn words64<const N: usize>(&self, offset: u64) -> Option<&[AtomicU64; N]> {
        let is_right = offset.is_multiple_of(8) && self.is_in_use(offset, 8 * N as u64);
        is_right.then(|| self.mapping.words64(offset as usize))
    }

    /// The byte at `offset`; `None` if it is not within what is in use.
    #[inline]
    pub fn byte(&self, offset: u64) -> Option<&AtomicU8> {
        self.is_in_use(offset, 1).then(|| self.mapping.byte(offset as usize))
    }

    /// The byte at `offset`, which is in use; `None` outside of the segment.
    #[inline(always)]
    pub(crate) fn byte_in_use(&self, offset: u64) -> Option<&AtomicU8> {
        self.mapping.byte_within(offset as usize)
    }

    /// The word of 4 bytes at `offset`, which is in use; `None` outside of the segment, and if it is not aligned.
    #[inline(always)]
    pub(crate) fn word32_in_use(&self, offset: u64) -> Option<&AtomicU32> {
        self.mapping.word32_within(offset as usize)
    }

    /// Bytes from the start of the segment on that this process knows to be in use.
    #[inline(always)]
    pub(crate) fn known_bytes(&self) -> u64 {
        self.grown.load(Ordering::Relaxed)
    }

    /// Copies what lies at `offset` to `to`; false, and nothing copied, if it is not within what is in use.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        self.is_in_use(offset, to.len() as u64) && self.mapping.get(self.mapping.bytes(), offset as usize, to)
    }

    /// Stores `value` to `bytes` at `offset`; false, and nothing stored, if they are not within what is in use.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> bool {
        self.is_in_use(offset, bytes) && self.mapping.fill(offset as usize, bytes as usize, value)
    }

    /// Copies `bytes` from one offset to another; false, and nothing copied, if they overlap, or are not within what is in use.
    pub fn copy_within(&self, from: u64, to: u64, bytes: u64) -> bool {
        let is_in_use = self.is_in_use(from, bytes) && self.is_in_use(to, bytes);
        is_in_use && self.mapping.copy_within(from as usize, to as usize, bytes as usize)
    }

    /// Whether `bytes` at `offset` are within what is in use: accesses to them do not fault.
    #[inline]
    pub fn is_in_use(&self, offset: u64, bytes: u64) -> bool {
        let is_within = |grown: u64| offset <= grown && bytes <= grown - offset;
        is_within(self.grown.load(Ordering::Relaxed)) || is_within(self.notice_growth())
    }

    /// Takes note of what other processes have added; returns the length in use. Core dumps include it from now on.
    #[cold]
    pub fn notice_growth(&self) -> u64 {
        let length = rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_size as u64).min(self.bytes());
        let before = self.grown.fetch_max(length, Ordering::Relaxed);
        if before < length {
            let _ = self.mapping.advise(before as usize, (length - before) as usize, Advice::LinuxDoDump);
        }
        before.max(length)
    }

    pub(crate) fn vigil(&self) -> &dyn Vigil {
        &*self.vigil
    }

    /// Makes the first `end` bytes usable.
    ///
    /// # Errors
    /// More than the segment has; RLIMIT_FSIZE.
    pub fn grow_to(&self, end: u64) -> Result<(), SegmentError> {
        if self.is_in_use(0, end) {
            return Ok(());
        }
        let all_bytes = self.bytes();
        if end > all_bytes {
            return Err(SegmentError::OutOfRange { offset: 0, bytes: end, all_bytes });
        }
        let wanted = end.next_multiple_of(STEP_BYTES).min(all_bytes);
        if memfd::grow(&self.file, wanted).is_err() {
            memfd::grow(&self.file, end)?;
        }
        self.notice_growth();
        Ok(())
    }

    /// Gives whole pages back to the kernel, for all processes: they read as zeros from now on.
    ///
    /// # Errors
    /// The range is not within what is in use.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<(), SegmentError> {
        if !self.is_in_use(offset, bytes) {
            return Err(SegmentError::OutOfRange { offset, bytes, all_bytes: self.bytes() });
        }
        if bytes == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, how, offset, bytes)
            .map_err(|errno| MemoryError::of_call("fallocate", bytes as usize, errno).into())
    }

    /// Makes pages present in this process now, so that its first stores do not fault. Best effort.
    pub fn populate(&self, offset: u64, bytes: u64) {
        if self.is_in_use(offset, bytes) {
            self.mapping.prefault(offset as usize, bytes as usize);
        }
    }

    /// Advises the kernel of pages within the segment. Best effort.
    pub(crate) fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let _ = self.mapping.advise(offset as usize, bytes as usize, advice);
    }

    /// As [`advise`](Self::advise): puts these bytes into huge pages.
    pub(crate) fn collapse(&self, offset: u64, bytes: u64) {
        let _ = self.mapping.collapse(offset as usize, bytes as usize);
    }

    /// Tells all that `rank` has taken its part away without waiting for them: their waits end.
    pub fn end(&self, rank: u32) {
        let ended = self.mapping.word32(ENDED as usize);
        let _ = ended.compare_exchange(0, rank.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether waits still have a point.
    ///
    /// # Errors
    /// [`SegmentError::RankGone`].
    pub fn check(&self) -> Result<(), SegmentError> {
        let ended = self.mapping.word32(ENDED as usize).load(Ordering::Relaxed).checked_sub(1);
        match self.vigil.gone().or(ended) {
            Some(rank) => Err(SegmentError::RankGone(rank)),
            None => Ok(()),
        }
    }
}

/// The error of a mapping at these addresses.
fn explain(errno: Errno, rank: usize, wanted: Range<usize>) -> SegmentError {
    let base = wanted.start;
    match errno {
        Errno::EXIST => {
            let (found, name) = mapwire_host::memory::first_within(&wanted)
                .unwrap_or_else(|| (wanted.clone(), "an unknown mapping".to_owned()));
            SegmentError::Clash { rank, wanted, found, name }
        }
        Errno::NOMEM => SegmentError::AddressSpace { base, bytes: wanted.len() as u64, limit: limits::address_space() },
        errno => MemoryError::of_call("mmap", wanted.len(), errno).into(),
    }
}
