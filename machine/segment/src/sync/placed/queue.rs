//! Work-stealing queues in a segment.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{FREED64, Place};
use crate::sync::deque::{self, DequeWords, Steal};
use crate::sync::error::{Object, SyncError};
use crate::sync::objects::Objects;
use crate::sync::words::Waits;

/// Bytes of a queue without values; each has 8 more.
pub const QUEUE_BYTES: u64 = 128;

/// Checks for how many values a queue is to have room.
///
/// # Errors
/// No power of two, or too many.
pub fn check_capacity(object: Object, capacity: u64) -> Result<(), SyncError> {
    if capacity.is_power_of_two() && capacity < 1 << 32 {
        return Ok(());
    }
    let legal = "a power of two, below 2^32";
    Err(SyncError::BadSize { object, what: "a capacity of", value: capacity, legal })
}

/// Its words: thieves write the first line, the owner the second.
const TOP: usize = 0;
const BOTTOM: usize = 8;
const CAPACITY: usize = 9;
const OWNER: usize = 10;

type QueuePlace<'a> = Place<'a, AtomicU64, { QUEUE_BYTES as usize / 8 }>;

impl Objects {
    /// The queue at `offset`: [`QUEUE_BYTES`] and the values, which [`Queue::init`] makes one.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn queue(&self, offset: u64) -> Result<Queue<'_>, SyncError> {
        Ok(Queue { place: Place::<AtomicU64, _>::of(self, "queue", offset)? })
    }
}

/// A work-stealing queue of values in a segment. The thread that pushes first owns it: it pushes and pops at one end, and all others
/// steal at the other. If the owner ends, another thread may push and so become the owner.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    place: QueuePlace<'a>,
}

/// A queue with a capacity that was read once.
struct Words<'a> {
    place: QueuePlace<'a>,
    capacity: u64,
}

impl DequeWords for Words<'_> {
    type Word = AtomicU64;

    #[inline]
    fn top(&self) -> &AtomicU64 {
        &self.place.words[TOP]
    }

    #[inline]
    fn bottom(&self) -> &AtomicU64 {
        &self.place.words[BOTTOM]
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn slot(&self, number: u64) -> Option<&AtomicU64> {
        let index = number & self.capacity.wrapping_sub(1);
        let at = index.checked_mul(8)?.checked_add(self.place.offset + QUEUE_BYTES)?;
        self.place.objects.segment().word64(at)
    }
}

impl<'a> Queue<'a> {
    /// Makes it a queue with room for `capacity` values, a power of two, whatever was there.
    ///
    /// # Errors
    /// Another capacity; no room for it in what is in use.
    pub fn init(&self, capacity: u64) -> Result<(), SyncError> {
        let object = self.place.name();
        check_capacity(object, capacity)?;
        if !self.place.objects.segment().is_in_use(self.place.offset, QUEUE_BYTES + 8 * capacity) {
            return Err(SyncError::Misplaced { object });
        }
        self.place.fill(0);
        self.place.words[CAPACITY].store(capacity, Ordering::Release);
        Ok(())
    }

    /// Makes calls errors from now on. Nobody uses it.
    pub fn destroy(&self) {
        self.place.destroy();
    }

    /// Adds a value at the owner's end; false: the queue is full.
    ///
    /// # Errors
    /// Another living thread owns it; it is destroyed or damaged.
    #[inline]
    pub fn push(&self, value: u64) -> Result<bool, SyncError> {
        self.own()?;
        deque::push(&self.words()?, value).map_err(|_| self.damaged())
    }

    /// Takes the value that was pushed last.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline]
    pub fn pop(&self) -> Result<Option<u64>, SyncError> {
        self.own()?;
        deque::pop(&self.words()?).map_err(|_| self.damaged())
    }

    /// Takes the value that was pushed first. Any thread may.
    ///
    /// # Errors
    /// It is destroyed or damaged.
    #[inline]
    pub fn steal(&self) -> Result<Steal, SyncError> {
        deque::steal(&self.words()?).map_err(|_| self.damaged())
    }

    fn damaged(&self) -> SyncError {
        SyncError::Damaged(self.place.name())
    }

    #[inline]
    fn words(&self) -> Result<Words<'a>, SyncError> {
        let capacity = self.place.words[CAPACITY].load(Ordering::Acquire);
        if capacity.is_power_of_two() && capacity < 1 << 32 {
            return Ok(Words { place: self.place, capacity });
        }
        let is_freed = capacity == FREED64;
        Err(if is_freed { SyncError::Freed(self.place.name()) } else { self.damaged() })
    }

    /// Makes this thread the owner, or finds that it is.
    #[inline]
    fn own(&self) -> Result<(), SyncError> {
        let me = self.place.objects.threads().me()?;
        let owner = &self.place.words[OWNER];
        if owner.load(Ordering::Relaxed) == u64::from(me) { Ok(()) } else { self.take_over(owner, me) }
    }

    #[cold]
    fn take_over(&self, owner: &AtomicU64, me: u32) -> Result<(), SyncError> {
        let objects = self.place.objects;
        let seen = owner.load(Ordering::Acquire);
        self.words()?;
        let is_free = seen == 0 || objects.ended(seen as u32).is_some();
        if is_free && owner.compare_exchange(seen, me.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        let holder = Some(objects.who(owner.load(Ordering::Relaxed) as u32));
        Err(SyncError::NotHeld { object: self.place.name(), holder })
    }
}
