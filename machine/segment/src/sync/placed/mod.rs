//! Objects anywhere in a segment, by their offset.

mod counted;
mod locks;
mod queue;

use core::sync::atomic::{AtomicU32, AtomicU64};

pub use counted::{BARRIER_BYTES, Barrier, FLAG_BYTES, Flag, ONCE_BYTES, Once, REDUCTION_BYTES, Reduction};
pub use counted::{SEMAPHORE_BYTES, Semaphore};
pub use locks::{CONDITION_BYTES, Condition, Mutex, RWLOCK_BYTES, RwLock};
pub use queue::{QUEUE_BYTES, Queue};

use crate::sync::error::{Object, SyncError};
use crate::sync::objects::Objects;
use crate::sync::threads::FREED;

/// Where an object lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    objects: &'a Objects,
    offset: u64,
    bytes: u64,
    kind: &'static str,
}

impl<'a> Place<'a> {
    /// The object's `bytes` at `offset`, if they are aligned and in use.
    #[inline]
    fn of(objects: &'a Objects, kind: &'static str, offset: u64, bytes: u64) -> Result<Self, SyncError> {
        let place = Self { objects, offset, bytes, kind };
        let is_right = offset.is_multiple_of(8) && objects.segment().is_in_use(offset, bytes);
        if is_right { Ok(place) } else { Err(SyncError::Misplaced { object: place.name() }) }
    }

    #[inline]
    fn name(&self) -> Object {
        Object::At(self.kind, self.objects.segment().base().wrapping_add(self.offset as usize))
    }

    /// The word `at` bytes from the start of the object, within it.
    #[inline]
    fn word(&self, at: u64) -> &'a AtomicU32 {
        self.objects.table_word(self.offset + at)
    }

    /// As [`word`](Self::word).
    #[inline]
    fn word64(&self, at: u64) -> &'a AtomicU64 {
        self.objects.table_word64(self.offset + at)
    }

    /// Fills the object.
    fn fill(&self, value: u32) {
        for at in (0..self.bytes).step_by(4) {
            self.word(at).store(value, core::sync::atomic::Ordering::Release);
        }
    }

    /// Makes the object say that it is destroyed.
    fn destroy(&self) {
        self.fill(FREED);
    }
}
