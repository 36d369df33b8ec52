//! Semaphores, flags, barriers, reductions, and what is done once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::FREED64;
use super::Place;
use crate::sync::error::{Object, SyncError};
use crate::sync::objects::Objects;
use crate::sync::reduction::{self, Number, Reduce};
use crate::sync::threads::FREED;
use crate::sync::{barrier, bell, once, semaphore};

/// Bytes of a semaphore.
pub const SEMAPHORE_BYTES: u64 = 16;
/// Bytes of a flag.
pub const FLAG_BYTES: u64 = 16;
/// Bytes of a barrier.
pub const BARRIER_BYTES: u64 = 16;
/// Bytes of what is done once.
pub const ONCE_BYTES: u64 = 16;
/// Bytes of a reduction.
pub const REDUCTION_BYTES: u64 = 64;

impl Objects {
    /// The semaphore at `offset`: [`SEMAPHORE_BYTES`]; zeros: of value 0.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn semaphore(&self, offset: u64) -> Result<Semaphore<'_>, SyncError> {
        Ok(Semaphore { place: Place::<AtomicU32, _>::of(self, "semaphore", offset)? })
    }

    /// The flag at `offset`: [`FLAG_BYTES`]; zeros: of value 0.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn flag(&self, offset: u64) -> Result<Flag<'_>, SyncError> {
        Ok(Flag { place: Place::<AtomicU64, _>::of(self, "flag", offset)? })
    }

    /// The barrier at `offset`: [`BARRIER_BYTES`], which [`Barrier::init`] makes one.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn barrier_at(&self, offset: u64) -> Result<Barrier<'_>, SyncError> {
        Ok(Barrier { place: Place::<AtomicU32, _>::of(self, "barrier", offset)? })
    }

    /// What is done once, at `offset`: [`ONCE_BYTES`]; zeros: not done.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn once(&self, offset: u64) -> Result<Once<'_>, SyncError> {
        Ok(Once { place: Place::<AtomicU32, _>::of(self, "once", offset)? })
    }

    /// The reduction at `offset`: [`REDUCTION_BYTES`], which [`Reduction::init`] makes one.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn reduction(&self, offset: u64) -> Result<Reduction<'_>, SyncError> {
        Ok(Reduction { place: Place::<AtomicU32, _>::of(self, "reduction", offset)? })
    }
}

/// A counting semaphore in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore<'a> {
    place: Place<'a, AtomicU32, { SEMAPHORE_BYTES as usize / 4 }>,
}

impl<'a> Semaphore<'a> {
    #[inline]
    fn core(&self) -> semaphore::Semaphore<'a, Objects> {
        let [value, waiters, ..] = self.place.words;
        semaphore::Semaphore { waits: self.place.objects, value, waiters, object: self.place.name() }
    }

    /// Makes it a semaphore of this value, whatever was there.
    ///
    /// # Errors
    /// A value above [`SEMAPHORE_MAX`](semaphore::SEMAPHORE_MAX).
    pub fn init(&self, value: u32) -> Result<(), SyncError> {
        self.place.fill(0);
        self.core().post(value)
    }

    /// Makes calls errors from now on. Nobody waits.
    pub fn destroy(&self) {
        self.place.destroy();
    }

    /// The value now.
    ///
    /// # Errors
    /// It is destroyed or damaged.
    pub fn value(&self) -> Result<u32, SyncError> {
        self.core().value()
    }

    /// Waits until the value is not 0, and takes 1 from it.
    ///
    /// # Errors
    /// It is destroyed or damaged; the memory is at its end.
    #[inline]
    pub fn take(&self) -> Result<(), SyncError> {
        self.core().take(None).map(drop)
    }

    /// As [`take`](Self::take), by `deadline_ns` of [`now_ns`](mapwire_host::waiting::now_ns); false: it is too late.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_until(&self, deadline_ns: u64) -> Result<bool, SyncError> {
        self.core().take(Some(deadline_ns))
    }

    /// Takes 1 from the value, if it is not 0.
    ///
    /// # Errors
    /// It is destroyed or damaged.
    #[inline]
    pub fn try_take(&self) -> Result<bool, SyncError> {
        self.core().try_take()
    }

    /// Adds `count` to the value, and wakes as many that wait.
    ///
    /// # Errors
    /// It would be too high; it is destroyed or damaged.
    #[inline]
    pub fn post(&self, count: u32) -> Result<(), SyncError> {
        self.core().post(count)
    }
}

/// A number in a segment that others wait for.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    place: Place<'a, AtomicU64, { FLAG_BYTES as usize / 8 }>,
}

impl<'a> Flag<'a> {
    #[inline]
    fn bell(&self) -> bell::Bell<'a, Objects> {
        let Place { objects, offset, .. } = self.place;
        bell::Bell { waits: objects, word: objects.table_word(offset + 8) }
    }

    /// Makes it a flag of value 0, whatever was there.
    pub fn init(&self) {
        self.place.fill(0);
    }

    /// Makes waits errors from now on.
    pub fn destroy(&self) {
        self.place.destroy();
    }

    /// Its value, and what was stored before it was set.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.place.words[0].load(Ordering::Acquire)
    }

    /// Sets the value, and wakes those that wait for it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.place.words[0].swap(value, Ordering::SeqCst);
        self.bell().ring();
    }

    /// Adds to the value, and wakes those that wait for it. Returns the value before.
    #[inline]
    pub fn add(&self, by: u64) -> u64 {
        let before = self.place.words[0].fetch_add(by, Ordering::SeqCst);
        self.bell().ring();
        before
    }

    /// Waits until the value is `least` or more, and returns it.
    ///
    /// # Errors
    /// It is destroyed; the memory is at its end.
    #[inline]
    pub fn wait(&self, least: u64) -> Result<u64, SyncError> {
        Ok(self.wait_by(least, None)?.unwrap_or(least))
    }

    /// As [`wait`](Self::wait), by `deadline_ns` of [`now_ns`](mapwire_host::waiting::now_ns); `None`: it is too late.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&self, least: u64, deadline_ns: u64) -> Result<Option<u64>, SyncError> {
        self.wait_by(least, Some(deadline_ns))
    }

    #[inline]
    fn wait_by(&self, least: u64, deadline_ns: Option<u64>) -> Result<Option<u64>, SyncError> {
        let word = &self.place.words[0];
        let mut value = word.load(Ordering::Acquire);
        if value < least {
            let is_there = || {
                value = word.load(Ordering::SeqCst);
                value >= least
            };
            if !self.bell().wait_until(is_there, deadline_ns, &mut || Ok(()))? {
                return Ok(None);
            }
        }
        if value == FREED64 { Err(SyncError::Freed(self.place.name())) } else { Ok(Some(value)) }
    }
}

/// A barrier of a number of threads, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    place: Place<'a, AtomicU32, { BARRIER_BYTES as usize / 4 }>,
}

/// Checks how many threads are to meet at a barrier or reduction.
///
/// # Errors
/// A count of 0.
pub fn check_count(object: Object, count: u32) -> Result<(), SyncError> {
    if count == 0 || count == FREED {
        let legal = "a barrier waits for a thread at least";
        return Err(SyncError::BadSize { object, what: "a count of", value: count.into(), legal });
    }
    Ok(())
}

fn init_barrier<const N: usize>(place: &Place<'_, AtomicU32, N>, count: u32) -> Result<(), SyncError> {
    check_count(place.name(), count)?;
    place.fill(0);
    place.words[2].store(count, Ordering::Release);
    Ok(())
}

impl<'a> Barrier<'a> {
    #[inline]
    fn core(&self) -> barrier::Barrier<'a, Objects, AtomicU64> {
        let Place { objects, offset, .. } = self.place;
        let [_, _, count, bell] = self.place.words;
        let bell = bell::Bell { waits: objects, word: bell };
        barrier::Barrier { state: objects.table_word64(offset), bell, count, object: self.place.name() }
    }

    /// Makes it a barrier of `count` threads, whatever was there.
    ///
    /// # Errors
    /// A count of 0.
    pub fn init(&self, count: u32) -> Result<(), SyncError> {
        init_barrier(&self.place, count)
    }

    /// Makes calls errors from now on. Nobody waits.
    pub fn destroy(&self) {
        self.place.destroy();
    }

    /// Waits until as many threads have arrived as it counts, of any number that use it. True in the last of them.
    ///
    /// # Errors
    /// It was not initialised, or is destroyed; the memory is at its end.
    #[inline]
    pub fn wait(&self) -> Result<bool, SyncError> {
        self.core().wait()
    }
}

/// A barrier whose threads each bring a value, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    place: Place<'a, AtomicU32, { REDUCTION_BYTES as usize / 4 }>,
}

impl<'a> Reduction<'a> {
    #[inline]
    fn core(&self) -> reduction::Reduction<'a, Objects, AtomicU64> {
        let Place { objects, offset, words, .. } = self.place;
        let word64 = |at| objects.table_word64(offset + at);
        reduction::Reduction {
            entered: word64(0),
            count: &words[2],
            bell: bell::Bell { waits: objects, word: &words[3] },
            value: word64(16),
            results: [word64(24), word64(32)],
            ended: word64(40),
            takers: [&words[12], &words[13]],
            arrived: &words[14],
            object: self.place.name(),
        }
    }

    /// Makes it a reduction over `count` threads, whatever was there.
    ///
    /// # Errors
    /// A count of 0.
    pub fn init(&self, count: u32) -> Result<(), SyncError> {
        init_barrier(&self.place, count)
    }

    /// Makes calls errors from now on. Nobody waits.
    pub fn destroy(&self) {
        self.place.destroy();
    }

    /// Brings a value, waits until as many threads have done so as it counts, and returns what is made of all.
    ///
    /// # Errors
    /// Others ask for another reduction in this round; it was not initialised, or is destroyed; the memory is at its end.
    pub fn reduce<T: Number>(&self, what: Reduce, value: T) -> Result<T, SyncError> {
        self.core().reduce(what, value)
    }
}

/// What one thread does and all others wait for, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Once<'a> {
    place: Place<'a, AtomicU32, { ONCE_BYTES as usize / 4 }>,
}

impl<'a> Once<'a> {
    #[inline]
    fn core(&self) -> once::Once<'a, Objects> {
        let [state, bell, ..] = self.place.words;
        once::Once { state, bell: bell::Bell { waits: self.place.objects, word: bell }, object: self.place.name() }
    }

    /// Makes it not done, whatever was there.
    pub fn init(&self) {
        self.place.fill(0);
    }

    /// Whether it is done; then all that was stored by it is visible.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.core().is_done()
    }

    /// Begins it; false: another thread has done it, perhaps while this one waited. If true, do it and call [`end`](Self::end).
    ///
    /// # Errors
    /// This thread does it now; the thread that did it has ended; the memory is at its end.
    #[inline]
    pub fn begin(&self) -> Result<bool, SyncError> {
        self.core().begin(self.place.objects.threads().me()?)
    }

    /// Ends what [`begin`](Self::begin) began: done, or to be begun again by the next.
    ///
    /// # Errors
    /// This thread has not begun it.
    pub fn end(&self, is_done: bool) -> Result<(), SyncError> {
        self.core().end(self.place.objects.threads().me()?, is_done)
    }
}
