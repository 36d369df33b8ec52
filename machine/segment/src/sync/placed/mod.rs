//! Objects anywhere in a segment, by their offset.

mod counted;
mod locks;
mod queue;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use counted::{BARRIER_BYTES, Barrier, FLAG_BYTES, Flag, ONCE_BYTES, Once, REDUCTION_BYTES, Reduction};
pub use counted::{SEMAPHORE_BYTES, Semaphore, check_count};
pub use locks::{CONDITION_BYTES, Condition, Mutex, RWLOCK_BYTES, RwLock};
pub use queue::{QUEUE_BYTES, Queue, check_capacity};

use crate::sync::error::{Object, SyncError};
use crate::sync::objects::Objects;
use crate::sync::threads::FREED;

/// An object's words, of 4 bytes or of 8, and where they lie.
#[derive(Debug)]
pub(crate) struct Place<'a, W, const N: usize> {
    objects: &'a Objects,
    words: &'a [W; N],
    offset: u64,
    kind: &'static str,
}

impl<W, const N: usize> Clone for Place<'_, W, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W, const N: usize> Copy for Place<'_, W, N> {}

impl<'a, const N: usize> Place<'a, AtomicU32, N> {
    /// The object at `offset`, if it is aligned and in use.
    #[inline]
    fn of(objects: &'a Objects, kind: &'static str, offset: u64) -> Result<Self, SyncError> {
        match objects.segment().words32(offset) {
            Some(words) => Ok(Self { objects, words, offset, kind }),
            None => Err(misplaced(objects, kind, offset)),
        }
    }

    /// Fills the object.
    fn fill(&self, value: u32) {
        self.words.iter().for_each(|word| word.store(value, Ordering::Release));
    }

    /// Makes the object say that it is destroyed.
    fn destroy(&self) {
        self.fill(FREED);
    }
}

/// The value of two words of [`FREED`].
const FREED64: u64 = (FREED as u64) << 32 | FREED as u64;

impl<'a, const N: usize> Place<'a, AtomicU64, N> {
    /// As for words of 4 bytes.
    #[inline]
    fn of(objects: &'a Objects, kind: &'static str, offset: u64) -> Result<Self, SyncError> {
        match objects.segment().words64(offset) {
            Some(words) => Ok(Self { objects, words, offset, kind }),
            None => Err(misplaced(objects, kind, offset)),
        }
    }

    fn fill(&self, value: u64) {
        self.words.iter().for_each(|word| word.store(value, Ordering::Release));
    }

    fn destroy(&self) {
        self.fill(FREED64);
    }
}

impl<W, const N: usize> Place<'_, W, N> {
    #[inline]
    fn name(&self) -> Object {
        Object::At(self.kind, self.words.as_ptr().addr())
    }
}

#[cold]
fn misplaced(objects: &Objects, kind: &'static str, offset: u64) -> SyncError {
    SyncError::Misplaced { object: Object::At(kind, objects.segment().base().wrapping_add(offset as usize)) }
}
