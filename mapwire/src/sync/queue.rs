//! Work-stealing queues.

use std::sync::Arc;

use mapwire_dsm::Verb;
use mapwire_segment::sync as one_host;
use mapwire_segment::sync::{QUEUE_BYTES, Steal, SyncError, Who, check_capacity};

use super::Backed;
use super::served::Served;
use crate::error::Result;
use crate::shared::Protocol;

/// A work-stealing queue of values in shared memory. The thread that pushes first owns it: it pushes and pops at one end, and all others
/// steal at the other. On one host, if the owner ends, another thread may push and so become the owner.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a>(pub(super) Backed<one_host::Queue<'a>, ServedQueue<'a>>);

impl Queue<'_> {
    /// Makes it a queue with room for `capacity` values, a power of two, whatever was there.
    ///
    /// # Errors
    /// Another capacity; no room for it in the memory.
    pub fn init(&self, capacity: u64) -> Result<()> {
        match &self.0 {
            Backed::OneHost(it) => Ok(it.init(capacity)?),
            Backed::Served(it) => it.init(capacity),
        }
    }

    /// Makes calls errors from now on. Nobody uses it.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn destroy(&self) -> Result<()> {
        match &self.0 {
            Backed::OneHost(it) => {
                it.destroy();
                Ok(())
            }
            Backed::Served(it) => it.0.done(Verb::Destroy, 0),
        }
    }

    /// Adds a value at the owner's end; false: the queue is full.
    ///
    /// # Errors
    /// Another living thread owns it; it is destroyed or damaged.
    #[inline]
    pub fn push(&self, value: u64) -> Result<bool> {
        match &self.0 {
            Backed::OneHost(it) => Ok(it.push(value)?),
            Backed::Served(it) => it.locked(|words| words.push(value)),
        }
    }

    /// Takes the value that was pushed last.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    #[inline]
    pub fn pop(&self) -> Result<Option<u64>> {
        match &self.0 {
            Backed::OneHost(it) => Ok(it.pop()?),
            Backed::Served(it) => it.locked(|words| words.pop()),
        }
    }

    /// Takes the value that was pushed first. Any thread may.
    ///
    /// # Errors
    /// It is destroyed or damaged.
    #[inline]
    pub fn steal(&self) -> Result<Steal> {
        match &self.0 {
            Backed::OneHost(it) => Ok(it.steal()?),
            Backed::Served(it) => it.locked(|words| words.steal()),
        }
    }
}

/// A queue whose words and values are ordinary shared memory under the lock of this object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServedQueue<'a>(pub(super) Served<'a>);

/// Its words: how many values were ever taken from the front and put at the end, the capacity, and the owner.
const TOP: u64 = 0;
const BOTTOM: u64 = 8;
const CAPACITY: u64 = 16;
const OWNER: u64 = 24;

/// The queue while it is locked.
struct Words<'a> {
    queue: &'a Served<'a>,
    protocol: Arc<Protocol>,
}

impl ServedQueue<'_> {
    fn init(&self, capacity: u64) -> Result<()> {
        check_capacity(self.0.name(), capacity)?;
        let protocol = self.0.home.protocol()?;
        if !protocol.holds(self.0.address, QUEUE_BYTES + 8 * capacity) {
            return Err(SyncError::Misplaced { object: self.0.name() }.into());
        }
        self.0.done(Verb::Init, 0)?;
        self.locked(|words| {
            [(TOP, 0), (BOTTOM, 0), (CAPACITY, capacity), (OWNER, 0)]
                .into_iter()
                .try_for_each(|(at, value)| words.set(at, value))
        })
    }

    fn locked<T>(&self, body: impl FnOnce(&Words<'_>) -> Result<T>) -> Result<T> {
        let words = Words { queue: &self.0, protocol: self.0.home.protocol()? };
        self.0.done(Verb::Take, 0)?;
        let result = body(&words);
        self.0.done(Verb::Give, 0)?;
        result
    }
}

impl Words<'_> {
    fn damaged(&self) -> SyncError {
        SyncError::Damaged(self.queue.name())
    }

    fn get(&self, at: u64) -> Result<u64> {
        Ok(self.protocol.load(self.queue.address + at)?.ok_or_else(|| self.damaged())?)
    }

    fn set(&self, at: u64, value: u64) -> Result<()> {
        let is_stored = self.protocol.store(self.queue.address + at, value)?;
        if is_stored { Ok(()) } else { Err(self.damaged().into()) }
    }

    /// Top, bottom and capacity, which any rank may have written.
    fn ends(&self) -> Result<(u64, u64, u64)> {
        let (top, bottom, capacity) = (self.get(TOP)?, self.get(BOTTOM)?, self.get(CAPACITY)?);
        check_capacity(self.queue.name(), capacity).map_err(|_| self.damaged())?;
        if bottom.wrapping_sub(top) > capacity {
            return Err(self.damaged().into());
        }
        Ok((top, bottom, capacity))
    }

    /// Where the value of that number lies.
    fn slot(number: u64, capacity: u64) -> u64 {
        QUEUE_BYTES + 8 * (number & (capacity - 1))
    }

    /// Makes this thread the owner, or finds that it is.
    fn own(&self) -> Result<()> {
        let me = self.protocol.identity()? + 1;
        match self.get(OWNER)? {
            0 => self.set(OWNER, me),
            owner if owner == me => Ok(()),
            owner => {
                let other = owner - 1;
                let who = Who { rank: (other >> 16) as u32, pid: 0, tid: (other & 0xffff) as u32 + 1 };
                Err(SyncError::NotHeld { object: self.queue.name(), holder: Some(who) }.into())
            }
        }
    }

    fn push(&self, value: u64) -> Result<bool> {
        let (top, bottom, capacity) = self.ends()?;
        self.own()?;
        if bottom.wrapping_sub(top) == capacity {
            return Ok(false);
        }
        self.set(Self::slot(bottom, capacity), value)?;
        self.set(BOTTOM, bottom.wrapping_add(1))?;
        Ok(true)
    }

    fn pop(&self) -> Result<Option<u64>> {
        let (top, bottom, capacity) = self.ends()?;
        self.own()?;
        if top == bottom {
            return Ok(None);
        }
        let value = self.get(Self::slot(bottom.wrapping_sub(1), capacity))?;
        self.set(BOTTOM, bottom.wrapping_sub(1))?;
        Ok(Some(value))
    }

    fn steal(&self) -> Result<Steal> {
        let (top, bottom, capacity) = self.ends()?;
        if top == bottom {
            return Ok(Steal::Empty);
        }
        let value = self.get(Self::slot(top, capacity))?;
        self.set(TOP, top.wrapping_add(1))?;
        Ok(Steal::Taken(value))
    }
}
