//! Mutexes, reader-writer locks and condition variables in a segment.

use core::sync::atomic::{AtomicU32, Ordering};

use super::Place;
use crate::sync::condition;
use crate::sync::error::SyncError;
use crate::sync::mutex::{self, MUTEX_BYTES, MutexWords};
use crate::sync::objects::Objects;
use crate::sync::rwlock;

/// Bytes of a reader-writer lock.
pub const RWLOCK_BYTES: u64 = 64;
/// Bytes of a condition variable.
pub const CONDITION_BYTES: u64 = 16;

/// The word of the readers' count, behind those of the mutex.
const READERS: usize = 8;

/// A mutex among the first words of an object.
#[inline]
fn mutex_of<'a, const N: usize>(place: &Place<'a, AtomicU32, N>) -> mutex::Mutex<'a, Objects> {
    let [state, turn, calls, rank, pid, tid, ..] =
        place.words.first_chunk::<8>().expect("an object has the words of a mutex");
    let words = MutexWords { state, turn, calls, lost: [rank, pid, tid] };
    mutex::Mutex { waits: place.objects, words, object: place.name() }
}

impl Objects {
    /// The mutex at `offset`: [`MUTEX_BYTES`], which zeros unlock.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn mutex(&self, offset: u64) -> Result<Mutex<'_>, SyncError> {
        Ok(Mutex { place: Place::<AtomicU32, _>::of(self, "mutex", offset)? })
    }

    /// The reader-writer lock at `offset`: [`RWLOCK_BYTES`], which zeros unlock.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn rwlock(&self, offset: u64) -> Result<RwLock<'_>, SyncError> {
        Ok(RwLock { place: Place::<AtomicU32, _>::of(self, "reader-writer lock", offset)? })
    }

    /// The condition variable at `offset`: [`CONDITION_BYTES`], zero at first.
    ///
    /// # Errors
    /// [`SyncError::Misplaced`].
    #[inline]
    pub fn condition(&self, offset: u64) -> Result<Condition<'_>, SyncError> {
        Ok(Condition { place: Place::<AtomicU32, _>::of(self, "condition variable", offset)? })
    }
}

/// A mutex in a segment. Whoever comes when it is free takes it, except that a thread that has waited for more than a millisecond is
/// served next.
#[derive(Clone, Copy, Debug)]
pub struct Mutex<'a> {
    place: Place<'a, AtomicU32, { MUTEX_BYTES as usize / 4 }>,
}

impl<'a> Mutex<'a> {
    #[inline]
    fn core(&self) -> mutex::Mutex<'a, Objects> {
        mutex_of(&self.place)
    }

    #[inline]
    fn me(&self) -> Result<u32, SyncError> {
        self.place.objects.threads().me()
    }

    /// Makes it a mutex, unlocked, whatever was there.
    pub fn init(&self) {
        self.place.fill(0);
    }

    /// Makes later calls errors.
    ///
    /// # Errors
    /// It is locked, or its holder has ended.
    pub fn destroy(&self) -> Result<(), SyncError> {
        if !self.try_lock()? {
            return Err(SyncError::InUse(self.place.name()));
        }
        self.place.destroy();
        Ok(())
    }

    /// Locks.
    ///
    /// # Errors
    /// This thread holds it; its holder has ended; it is destroyed or damaged; the memory is at its end.
    #[inline]
    pub fn lock(&self) -> Result<(), SyncError> {
        self.core().lock(self.me()?)
    }

    /// Locks, by `deadline_ns` of [`now_ns`](mapwire_host::waiting::now_ns); false: it is too late.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    #[inline]
    pub fn lock_until(&self, deadline_ns: u64) -> Result<bool, SyncError> {
        self.core().lock_until(self.me()?, deadline_ns)
    }

    /// Locks, if it is free.
    ///
    /// # Errors
    /// Its holder has ended, which is found out within about a tenth of a second; it is destroyed or damaged.
    #[inline]
    pub fn try_lock(&self) -> Result<bool, SyncError> {
        self.core().try_lock(self.me()?, || self.place.objects.looks())
    }

    /// Unlocks.
    ///
    /// # Errors
    /// This thread does not hold it.
    #[inline]
    pub fn unlock(&self) -> Result<(), SyncError> {
        self.core().unlock(self.me()?)
    }
}

/// A reader-writer lock in a segment. Neither readers nor writers starve: who cannot have it at once waits in one order.
#[derive(Clone, Copy, Debug)]
pub struct RwLock<'a> {
    place: Place<'a, AtomicU32, { RWLOCK_BYTES as usize / 4 }>,
}

impl<'a> RwLock<'a> {
    #[inline]
    fn core(&self) -> rwlock::RwLock<'a, Objects> {
        rwlock::RwLock { mutex: mutex_of(&self.place), readers: &self.place.words[READERS] }
    }

    /// Makes it a lock, unlocked, whatever was there.
    pub fn init(&self) {
        self.place.fill(0);
    }

    /// Makes later calls errors.
    ///
    /// # Errors
    /// It is locked, or its holder has ended.
    pub fn destroy(&self) -> Result<(), SyncError> {
        if !self.try_write()? {
            return Err(SyncError::InUse(self.place.name()));
        }
        self.place.destroy();
        Ok(())
    }

    /// Locks for reading.
    ///
    /// # Errors
    /// This thread holds it already and a writer waits; a holder has ended; it is destroyed or damaged; the memory is at its end.
    #[inline]
    pub fn read(&self) -> Result<(), SyncError> {
        self.read_by(true, None).map(drop)
    }

    /// As [`read`](Self::read), by `deadline_ns` of [`now_ns`](mapwire_host::waiting::now_ns); false: it is too late.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_until(&self, deadline_ns: u64) -> Result<bool, SyncError> {
        self.read_by(true, Some(deadline_ns))
    }

    /// Locks for reading, if no writer has or wants it.
    ///
    /// # Errors
    /// It is destroyed or damaged.
    pub fn try_read(&self) -> Result<bool, SyncError> {
        self.read_by(false, None)
    }

    #[inline]
    fn read_by(&self, waits: bool, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        let threads = self.place.objects.threads();
        let (me, offset) = (threads.me()?, self.place.offset);
        let note = threads.free_note(me);
        // Noted before, so that no reader ends unnoticed.
        let begin = || {
            if let Some(note) = note {
                note.store(offset | 1, Ordering::Release);
            }
        };
        let end = |content| match note {
            Some(note) => note.store(content, Ordering::Release),
            None if content != 0 => drop(threads.with_unnoted(|unnoted| unnoted.push(offset))),
            None => {}
        };
        begin();
        let core = self.core();
        let mut locked = core.try_read();
        if matches!(locked, Ok(false)) && waits {
            end(0);
            if self.is_read_by(me) {
                return Err(SyncError::Held(self.place.name()));
            }
            locked = core.read_in_turn(me, deadline_ns, begin);
        }
        end(if matches!(locked, Ok(true)) { offset } else { 0 });
        locked
    }

    /// Locks for writing.
    ///
    /// # Errors
    /// This thread holds it; a holder has ended; it is destroyed or damaged; the memory is at its end.
    #[inline]
    pub fn write(&self) -> Result<(), SyncError> {
        self.write_by(None).map(drop)
    }

    /// As [`write`](Self::write), by `deadline_ns` of [`now_ns`](mapwire_host::waiting::now_ns); false: it is too late.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_until(&self, deadline_ns: u64) -> Result<bool, SyncError> {
        self.write_by(Some(deadline_ns))
    }

    fn write_by(&self, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        let threads = self.place.objects.threads();
        let me = threads.me()?;
        if self.is_read_by(me) {
            return Err(SyncError::Held(self.place.name()));
        }
        self.core().write(me, deadline_ns, &|| threads.ended_reader(self.place.offset))
    }

    /// Locks for writing, if nobody holds it.
    ///
    /// # Errors
    /// The writer has ended, which is found out within about a tenth of a second; it is destroyed or damaged.
    pub fn try_write(&self) -> Result<bool, SyncError> {
        let objects = self.place.objects;
        self.core().try_write(objects.threads().me()?, || objects.looks())
    }

    /// Unlocks what this thread has locked, for reading or writing.
    ///
    /// # Errors
    /// This thread does not hold it.
    #[inline]
    pub fn unlock(&self) -> Result<(), SyncError> {
        let threads = self.place.objects.threads();
        let me = threads.me()?;
        if threads.reads_unnoted(self.place.offset) {
            self.core().unlock_read()?;
            threads.with_unnoted(|unnoted| {
                let at = unnoted.iter().position(|&offset| offset == self.place.offset);
                at.map(|at| unnoted.swap_remove(at))
            });
            return Ok(());
        }
        if let Some(note) = threads.note(me, self.place.offset) {
            let unlocked = self.core().unlock_read();
            note.store(0, Ordering::Release);
            return unlocked;
        }
        self.core().unlock_write(me)
    }

    /// Whether thread `me`, the calling one, reads it.
    fn is_read_by(&self, me: u32) -> bool {
        let threads = self.place.objects.threads();
        threads.reads_unnoted(self.place.offset) || threads.note(me, self.place.offset).is_some()
    }
}

/// A condition variable in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    place: Place<'a, AtomicU32, { CONDITION_BYTES as usize / 4 }>,
}

impl Condition<'_> {
    fn core(&self) -> condition::Condition<'_, Objects> {
        let [signals, waiters, ..] = self.place.words;
        condition::Condition { waits: self.place.objects, signals, waiters, object: self.place.name() }
    }

    /// Makes it a condition variable on which nobody waits, whatever was there.
    pub fn init(&self) {
        self.place.fill(0);
    }

    /// Makes calls errors from now on. Nobody waits.
    pub fn destroy(&self) {
        self.place.destroy();
    }

    /// Unlocks `mutex`, waits for a signal, and locks it again. May return without a signal, so look whether what is waited for is true.
    ///
    /// # Errors
    /// This thread does not hold the mutex; whoever held it meanwhile has ended; the memory is at its end.
    pub fn wait(&self, mutex: &Mutex<'_>) -> Result<(), SyncError> {
        self.core().wait(&mutex.core(), mutex.me()?, None).map(drop)
    }

    /// As [`wait`](Self::wait), by `deadline_ns` of [`now_ns`](mapwire_host::waiting::now_ns); false: there was no signal by then.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&self, mutex: &Mutex<'_>, deadline_ns: u64) -> Result<bool, SyncError> {
        self.core().wait(&mutex.core(), mutex.me()?, Some(deadline_ns))
    }

    /// Wakes one that waits.
    ///
    /// # Errors
    /// It is destroyed.
    #[inline]
    pub fn signal(&self) -> Result<(), SyncError> {
        self.core().signal(1)
    }

    /// Wakes all that wait.
    ///
    /// # Errors
    /// It is destroyed.
    #[inline]
    pub fn broadcast(&self) -> Result<(), SyncError> {
        self.core().signal(u32::MAX)
    }
}
