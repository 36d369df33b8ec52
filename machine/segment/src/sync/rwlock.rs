//! A reader-writer lock: a mutex that writers hold, and a count of readers.
//!
//! A reader that comes when no writer has or wants the lock counts itself. Otherwise it takes the mutex as a writer would, counts itself
//! while it has it, and unlocks: so it waits in the same order as writers, and neither readers nor writers starve.

use crate::sync::error::{SyncError, Who};
use crate::sync::mutex::Mutex;
use crate::sync::threads::FREED;
use crate::sync::words::{Rounds, Waits, Word};
use crate::waiting::Waited;

/// In the count of readers: a writer has or wants the lock.
const WRITER: u32 = 1 << 31;
/// Most readers at a time.
const MOST: u32 = 1 << 20;

/// Finds a thread that has ended as a reader: its number, and who it was.
pub(crate) type EndedReader<'a> = &'a dyn Fn() -> Option<(u32, Who)>;

/// A reader-writer lock with those who use it. All words zero: unlocked.
#[derive(Debug)]
pub(crate) struct RwLock<'a, S: Waits> {
    /// Held by the writer.
    pub(crate) mutex: Mutex<'a, S>,
    pub(crate) readers: &'a S::Word,
}

impl<S: Waits> RwLock<'_, S> {
    /// Locks for reading, if no writer has or wants it.
    #[inline]
    pub(crate) fn try_read(&self) -> Result<bool, SyncError> {
        let mut seen = self.readers.load();
        let mut rounds = Rounds::default();
        while seen & WRITER == 0 {
            self.check(seen)?;
            match self.readers.replace(seen, seen + 1) {
                Ok(()) => return Ok(true),
                Err(other) => seen = other,
            }
            rounds.next(self.mutex.waits)?;
        }
        self.check(seen)?;
        Ok(false)
    }

    /// Locks for reading behind writers; false: not by `deadline_ns`. Calls `begin` right before.
    #[cold]
    pub(crate) fn read_in_turn(
        &self,
        me: u32,
        deadline_ns: Option<u64>,
        begin: impl FnOnce(),
    ) -> Result<bool, SyncError> {
        if !self.lock_mutex(me, deadline_ns)? {
            return Ok(false);
        }
        begin();
        // No writer: it would have the mutex.
        let read = self.try_read();
        self.mutex.unlock(me)?;
        match read? {
            true => Ok(true),
            false => Err(SyncError::Damaged(self.mutex.object)),
        }
    }

    /// Unlocks for a reader.
    #[inline]
    pub(crate) fn unlock_read(&self) -> Result<(), SyncError> {
        let mut seen = self.readers.load();
        let mut rounds = Rounds::default();
        loop {
            self.check(seen)?;
            if seen & !WRITER == 0 {
                return Err(SyncError::NotHeld { object: self.mutex.object, holder: None });
            }
            match self.readers.replace(seen, seen - 1) {
                Ok(()) => break,
                Err(other) => seen = other,
            }
            rounds.next(self.mutex.waits)?;
        }
        if seen == WRITER | 1 {
            self.mutex.waits.wake(self.readers, 1);
        }
        Ok(())
    }

    /// Locks for writing; false: not by `deadline_ns`.
    pub(crate) fn write(&self, me: u32, deadline_ns: Option<u64>, ended: EndedReader<'_>) -> Result<bool, SyncError> {
        Ok(self.lock_mutex(me, deadline_ns)? && self.wait_for_readers(me, deadline_ns, ended)?)
    }

    /// Locks for writing, if nobody holds it.
    pub(crate) fn try_write(&self, me: u32, looks: impl FnOnce() -> bool) -> Result<bool, SyncError> {
        if !self.mutex.try_lock(me, looks)? {
            return Ok(false);
        }
        if self.readers.replace(0, WRITER).is_ok() {
            return Ok(true);
        }
        self.mutex.unlock(me)?;
        self.check(self.readers.load())?;
        Ok(false)
    }

    /// Unlocks for the writer.
    #[inline]
    pub(crate) fn unlock_write(&self, me: u32) -> Result<(), SyncError> {
        self.mutex.check_holder(me)?;
        self.readers.store(0);
        self.mutex.unlock(me)
    }

    fn lock_mutex(&self, me: u32, deadline_ns: Option<u64>) -> Result<bool, SyncError> {
        match deadline_ns {
            None => self.mutex.lock(me).map(|()| true),
            Some(deadline_ns) => self.mutex.lock_until(me, deadline_ns),
        }
    }

    /// With the mutex held, keeps new readers out and waits for the others to leave.
    fn wait_for_readers(&self, me: u32, deadline_ns: Option<u64>, ended: EndedReader<'_>) -> Result<bool, SyncError> {
        let left = self.sleep_for_readers(deadline_ns, ended);
        match left {
            Ok(true) => return Ok(true),
            Err(SyncError::HolderEnded { .. }) => return left,
            _ => {}
        }
        let mut rounds = Rounds::default();
        loop {
            let seen = self.readers.load();
            if self.readers.replace(seen, seen & !WRITER).is_ok() {
                break;
            }
            rounds.next(self.mutex.waits)?;
        }
        self.mutex.unlock(me)?;
        left
    }

    fn sleep_for_readers(&self, deadline_ns: Option<u64>, ended: EndedReader<'_>) -> Result<bool, SyncError> {
        let waits = self.mutex.waits;
        let mut rounds = Rounds::default();
        loop {
            rounds.next(waits)?;
            let seen = self.readers.load();
            self.check(seen)?;
            if seen & WRITER == 0 && self.readers.replace(seen, seen | WRITER).is_err() {
                continue;
            }
            let seen = seen | WRITER;
            if seen == WRITER || waits.spin(|| self.readers.load() == WRITER) {
                return Ok(true);
            }
            let mut look = || match ended() {
                Some((number, who)) => Err(self.mutex.lose_to(number, who)),
                None => Ok(()),
            };
            let seen = self.readers.load();
            if seen & !WRITER != 0
                && seen & WRITER != 0
                && waits.sleep(self.readers, seen, deadline_ns, &mut look)? == Waited::TimedOut
            {
                return Ok(self.readers.load() == WRITER);
            }
        }
    }

    #[inline]
    fn check(&self, readers: u32) -> Result<(), SyncError> {
        match readers {
            FREED => Err(SyncError::Freed(self.mutex.object)),
            _ if readers & !WRITER > MOST => Err(SyncError::Damaged(self.mutex.object)),
            _ => Ok(()),
        }
    }
}
