//! Semaphores, flags, barriers, reductions, and what is done once.

use core::sync::atomic::Ordering;

use super::Place;
use crate::sync::error::SyncError;
use crate::sync::objects::Objects;
use crate::sync::reduction::{self, Number, Reduce};
use crate::sync::round::Round;
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
        Ok(Semaphore { place: Place::of(self, "semaphore", offset, SEMAPHORE_BYTES)? })
    }

    /// The flag at `offset`: [`FLAG_BYTES`]; zeros: of value 0.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn flag(&self, offset: u64) -> Result<Flag<'_>, SyncError> {
        Ok(Flag { place: Place::of(self, "flag", offset, FLAG_BYTES)? })
    }

    /// The barrier at `offset`: [`BARRIER_BYTES`], which [`Barrier::init`] makes one.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn barrier_at(&self, offset: u64) -> Result<Barrier<'_>, SyncError> {
        Ok(Barrier { place: Place::of(self, "barrier", offset, BARRIER_BYTES)? })
    }

    /// What is done once, at `offset`: [`ONCE_BYTES`]; zeros: not done.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn once(&self, offset: u64) -> Result<Once<'_>, SyncError> {
        Ok(Once { place: Place::of(self, "once", offset, ONCE_BYTES)? })
    }

    /// The reduction at `offset`: [`REDUCTION_BYTES`], which [`Reduction::init`] makes one.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn reduction(&self, offset: u64) -> Result<Reduction<'_>, SyncError> {
        Ok(Reduction { place: Place::of(self, "reduction", offset, REDUCTION_BYTES)? })
    }
}

/// A counting semaphore in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Semaphore<'a> {
    place: Place<'a>,
}

impl<'a> Semaphore<'a> {
    #[inline]
    fn core(&self) -> semaphore::Semaphore<'a, Objects> {
        let (value, waiters) = (self.place.word(0), self.place.word(4));
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
    place: Place<'a>,
}

/// The value of a destroyed flag.
const FREED_VALUE: u64 = (FREED as u64) << 32 | FREED as u64;

impl<'a> Flag<'a> {
    #[inline]
    fn bell(&self) -> bell::Bell<'a, Objects> {
        bell::Bell { waits: self.place.objects, word: self.place.word(8) }
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
        self.place.word64(0).load(Ordering::Acquire)
    }

    /// Sets the value, and wakes those that wait for it.
    #[inline]
    pub fn set(&self, value: u64) {
        self.place.word64(0).swap(value, Ordering::SeqCst);
        self.bell().ring();
    }

    /// Adds to the value, and wakes those that wait for it. Returns the value before.
    #[inline]
    pub fn add(&self, by: u64) -> u64 {
        let before = self.place.word64(0).fetch_add(by, Ordering::SeqCst);
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
        let word = self.place.word64(0);
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
        if value == FREED_VALUE { Err(SyncError::Freed(self.place.name())) } else { Ok(Some(value)) }
    }
}

/// A barrier of a number of threads, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    place: Place<'a>,
}

fn barrier_of<'a>(place: &Place<'a>) -> barrier::Barrier<'a, Objects> {
    let round = Round { waits: place.objects, word: place.word(0) };
    barrier::Barrier { round, arrived: place.word(4), count: place.word(8), object: place.name() }
}

fn init_barrier(place: &Place<'_>, count: u32) -> Result<(), SyncError> {
    if count == 0 || count == FREED {
        let legal = "a barrier waits for a thread at least";
        return Err(SyncError::BadSize { object: place.name(), what: "a count of", value: count.into(), legal });
    }
    place.fill(0);
    place.word(8).store(count, Ordering::Release);
    Ok(())
}

impl Barrier<'_> {
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

    /// Waits until as many threads have arrived as it counts. True in the last of them.
    ///
    /// # Errors
    /// It was not initialised, or is destroyed; the memory is at its end.
    #[inline]
    pub fn wait(&self) -> Result<bool, SyncError> {
        barrier_of(&self.place).wait(|| {})
    }
}

/// A barrier whose threads each bring a value, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    place: Place<'a>,
}

impl Reduction<'_> {
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
        let place = &self.place;
        let kinds = [place.word(16), place.word(20)];
        let values = [place.word64(24), place.word64(32)];
        reduction::Reduction { barrier: barrier_of(place), kinds, values }.reduce(what, value)
    }
}

/// What one thread does and all others wait for, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Once<'a> {
    place: Place<'a>,
}

impl<'a> Once<'a> {
    #[inline]
    fn core(&self) -> once::Once<'a, Objects> {
        let bell = bell::Bell { waits: self.place.objects, word: self.place.word(4) };
        once::Once { state: self.place.word(0), bell, object: self.place.name() }
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
