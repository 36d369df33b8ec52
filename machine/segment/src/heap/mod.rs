//! `malloc` and its like in the memory that all ranks of a host share.
//!
//! Any thread of any rank may allocate, and free what any other has allocated. Nobody waits for another: every change to the heap's words
//! that two could make is one atomic operation, so a thread that dies at any point costs the others some memory at most.
//!
//! | module | part |
//! |---|---|
//! | `units` | the pages, in units of 64 KiB: taken, given back, as slabs and as runs |
//! | `classes` | sizes of blocks, and how a slab of a size is laid out |
//! | `sharing` | how threads share a slab, and the lists of slabs |
//! | `slabs` | the same on the segment's words |
//! | `cache` | what a thread keeps for itself |
//! | `inner` | blocks and runs: found, taken, given back |
//! | `debug` | what debug mode writes around blocks, and checks |
//! | `survey` | figures, leaks, damage |
//!
//! Sizes up to 128 KiB have classes, as in mimalloc (D. Leijen, B. Zorn, L. de Moura: *Mimalloc: Free List Sharding in Action*, APLAS 2019).
//! A slab has bits for its blocks instead of a free list through them: a link in a block would be a word that any rank can write. Threads
//! keep freed blocks in memory of their own, and give them back by clearing bits, many at once. Longer blocks are runs of units, of which a
//! thread keeps four of up to 4 MiB.
//!
//! **Memory.** A fresh page takes memory once it is touched. Whole units that become free are given back to the kernel, so free units read as
//! zeros, and [`Heap::alloc`] need not clear them.
//!
//! **Neighbours.** A thread takes the blocks of a class from one slab at a time, by ascending address. So allocations of one size that a
//! thread makes one after the other, with nothing freed meanwhile, lie side by side, but for some kilobytes between two slabs and freed blocks
//! that are used again. A slab of blocks up to 1 KiB has 64 KiB.
//!
//! **Trust.** What is read from the segment is checked before it is used, as everywhere in this crate: a rank that overwrites the heap's words
//! makes others get memory that is in use, errors, or none. Nothing that a call gives lies outside of the segment.

mod cache;
mod classes;
mod debug;
mod error;
mod inner;
#[cfg(all(test, loom))]
#[path = "tests/loom.rs"]
mod loom_tests;
mod sharing;
mod slabs;
mod survey;
#[cfg(all(test, not(loom)))]
mod tests;
mod units;

use std::sync::Arc;

pub use error::{Allocated, HeapError};
pub use survey::{ClassStatistics, Leak, Statistics};

use crate::segment::Segment;
use classes::{LEAST_ALIGN, SMALL_BYTES, class_of};
use inner::{Inner, Taken};

/// The largest alignment that can be asked for, in bytes: the segment's own.
pub const MOST_ALIGN: u64 = crate::layout::ALIGN_BYTES as u64;

/// The heap of a segment, as one process sees it. Cheap to clone; forked children may go on to use it, and signal handlers must not. Memory is
/// named by its offset in the segment, and is at the same address in all ranks.
#[derive(Clone, Debug)]
pub struct Heap {
    inner: Arc<Inner>,
    /// What debug mode writes down for new blocks.
    by: Allocated,
}

impl Heap {
    /// The heap of `segment`, for `rank`. With `is_debug`, the heap looks for stores beside blocks and to freed ones, and knows who allocated
    /// what; a block then takes 48 bytes more, and its room is written to.
    ///
    /// # Errors
    /// Another rank has opened it with another `is_debug`; no memory.
    pub fn open(segment: Arc<Segment>, rank: u32, is_debug: bool) -> Result<Self, HeapError> {
        let rank = is_debug.then_some(rank);
        Ok(Self { inner: Arc::new(Inner::new(segment, is_debug)?), by: Allocated { rank, location: 0 } })
    }

    /// The same heap. In debug mode what is allocated through it is said to be allocated at `location`, a word that means something to the
    /// caller, such as the address of a name.
    #[must_use]
    pub fn at(&self, location: u64) -> Self {
        Self { inner: Arc::clone(&self.inner), by: Allocated { location, ..self.by } }
    }

    /// The segment.
    pub fn segment(&self) -> &Arc<Segment> {
        self.inner.segment()
    }

    /// Allocates `bytes` zeroed bytes at a multiple of `align`: at least 16, from 64 bytes on 64, from a page on whole pages. From 2 MiB on,
    /// huge pages are possible.
    ///
    /// # Errors
    /// [`NoBytes`](HeapError::NoBytes), [`Align`](HeapError::Align), [`OutOfMemory`](HeapError::OutOfMemory); the file cannot become so long
    /// ([`Segment`](HeapError::Segment)).
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<u64, HeapError> {
        let natural = match bytes {
            ..64 => LEAST_ALIGN,
            64..4096 => 64,
            _ => 4096,
        };
        // An align of 0 stays wrong.
        self.allocate(bytes, if align == 0 { 0 } else { align.max(natural) }, true)
    }

    /// Allocates `bytes`, aligned to 16. What is in them is not said.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn malloc(&self, bytes: u64) -> Result<u64, HeapError> {
        match self.take_kept(bytes) {
            Some(offset) => Ok(offset),
            None => self.allocate(bytes, LEAST_ALIGN, false),
        }
    }

    #[inline(never)]
    fn take_kept(&self, bytes: u64) -> Option<u64> {
        let is_small = bytes.wrapping_sub(1) < SMALL_BYTES;
        if is_small { self.inner.take_kept(class_of(bytes)) } else { None }
    }

    /// Allocates `count` times `bytes` zeroed bytes, aligned to 16.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`TooLong`](HeapError::TooLong).
    pub fn calloc(&self, count: u64, bytes: u64) -> Result<u64, HeapError> {
        let all = count.checked_mul(bytes).ok_or(HeapError::TooLong { count, bytes })?;
        self.allocate(all, LEAST_ALIGN, true)
    }

    /// Allocates `bytes` at a multiple of `align`, a power of two up to [`MOST_ALIGN`].
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn aligned_alloc(&self, align: u64, bytes: u64) -> Result<u64, HeapError> {
        self.allocate(bytes, align, false)
    }

    #[inline(never)]
    fn allocate(&self, bytes: u64, align: u64, zeroed: bool) -> Result<u64, HeapError> {
        if bytes == 0 {
            return Err(HeapError::NoBytes);
        }
        if !align.is_power_of_two() || align > MOST_ALIGN {
            return Err(HeapError::Align { align });
        }
        if self.inner.is_debug() {
            return self.allocate_recorded(bytes, align, zeroed);
        }
        let Taken { offset, is_fresh, .. } = self.inner.take(bytes, align)?;
        if zeroed && !is_fresh {
            self.segment().fill(offset, bytes, 0);
        }
        Ok(offset)
    }

    #[cold]
    fn allocate_recorded(&self, bytes: u64, align: u64, zeroed: bool) -> Result<u64, HeapError> {
        let too_long = HeapError::TooLong { count: 1, bytes };
        let room = bytes.checked_add(debug::EXTRA_BYTES).ok_or(too_long)?;
        let taken = self.inner.take(room, align)?;
        debug::hand_out(self.segment(), taken, debug::Record { bytes, by: self.by }, zeroed)?;
        Ok(taken.offset)
    }

    /// Frees what is allocated at `offset`, by any thread of any rank.
    ///
    /// # Errors
    /// [`Outside`](HeapError::Outside), [`NotAllocated`](HeapError::NotAllocated), [`FreedTwice`](HeapError::FreedTwice),
    /// [`Inside`](HeapError::Inside). Where two free the same block at the same time, both may succeed, and the heap is damaged. In debug mode
    /// this is found too, and so are [`Overrun`](HeapError::Overrun) and [`Record`](HeapError::Record), which leave the block allocated.
    #[inline]
    pub fn free(&self, offset: u64) -> Result<(), HeapError> {
        if self.give_kept(offset) { Ok(()) } else { self.free_slowly(offset) }
    }

    #[inline(never)]
    fn give_kept(&self, offset: u64) -> bool {
        self.inner.give_kept(offset).is_some()
    }

    #[cold]
    fn free_slowly(&self, offset: u64) -> Result<(), HeapError> {
        let piece = self.inner.find(offset)?;
        if self.inner.is_debug() {
            self.check_and_poison(piece)?;
        }
        self.inner.give(piece)
    }

    #[cold]
    fn check_and_poison(&self, piece: inner::Piece) -> Result<(), HeapError> {
        let (offset, room) = self.inner.extent(piece);
        debug::check(self.segment(), offset, room)?;
        if matches!(piece, inner::Piece::Block { .. }) {
            debug::poison(self.segment(), offset, room);
        }
        Ok(())
    }

    /// Makes the block at `offset` `bytes` long, where it lies or elsewhere; what fits keeps its content. After an error it is as it was.
    ///
    /// # Errors
    /// As [`malloc`](Self::malloc) and [`free`](Self::free).
    pub fn realloc(&self, offset: u64, bytes: u64) -> Result<u64, HeapError> {
        if bytes == 0 {
            return Err(HeapError::NoBytes);
        }
        let piece = self.inner.find(offset)?;
        if !self.inner.is_debug() && self.inner.resize(piece, bytes)? {
            return Ok(offset);
        }
        let has = self.usable_bytes(offset)?;
        let to = self.malloc(bytes)?;
        self.segment().copy_within(offset, to, has.min(bytes));
        if let Err(error) = self.free(offset) {
            self.free(to)?;
            return Err(error);
        }
        Ok(to)
    }

    /// Bytes that may be used of the block at `offset`: as many as were asked for, or more. In debug mode just as many.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn usable_bytes(&self, offset: u64) -> Result<u64, HeapError> {
        let (offset, room) = self.inner.extent(self.inner.find(offset)?);
        if !self.inner.is_debug() {
            return Ok(room);
        }
        Ok(debug::check(self.segment(), offset, room)?.bytes)
    }

    /// Gives back what the calling thread keeps for further allocations, and all memory that nobody uses to the kernel.
    pub fn trim(&self) {
        cache::empty(&self.inner);
        self.inner.slabs().dissolve_all_empty();
    }
}
