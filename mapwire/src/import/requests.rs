//! Sends and fetches under way, which own the memory that they use.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use mapwire_driver::DriverError;
use mapwire_driver::completions::WORDS;
use mapwire_wire::Signal;

use super::memory::{Memory, Then};
use super::{Held, Import};
use crate::error::Result;

/// Requests that a process may have under way on the ring path. The other completion words are for calls that wait.
const MOST_REQUESTS: usize = WORDS - WORDS / 8;

/// Calls that return before the transfer is over. Each gives a [`Request`], which owns the memory meanwhile. On the direct path
/// the transfer is over when the call returns. On the ring path the call waits only while 64 commands wait before it.
impl Import {
    /// Begins to store `data` at `offset`. The caller gives `data` away until [`Request::wait`] returns it.
    ///
    /// # Errors
    /// As [`send`](Self::send); more than 896 requests of this process under way on the ring path. Nothing is begun then.
    pub fn send_async<T: Stable>(&self, data: T, offset: u64) -> Result<Request<T>> {
        self.begin_send(data, offset, Then::Nothing)
    }

    /// Begins to store `data` at `offset`, and then `value` at `signal_offset`, as [`put_signal`](Self::put_signal) does.
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal) and [`send_async`](Self::send_async).
    pub fn put_signal_async<T: Stable>(
        &self,
        data: T,
        offset: u64,
        signal_offset: u64,
        value: u64,
    ) -> Result<Request<T>> {
        self.check_signal(signal_offset)?;
        let signal = Signal::set(signal_offset, value);
        self.begin_send(data, offset, Then::Signal(signal))
    }

    /// Begins to copy as many bytes as `into` holds from `offset` of the export to it. The caller gives `into` away until
    /// [`Request::wait`] returns it, filled.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch) and [`send_async`](Self::send_async).
    pub fn fetch_async<T: StableMut>(&self, offset: u64, mut into: T) -> Result<Request<T>> {
        let under_way = self.begin_request(Memory::Into(into.bytes_mut()), offset, Then::Nothing)?;
        Ok(Request { under_way, memory: into })
    }

    fn begin_send<T: Stable>(&self, data: T, offset: u64, then: Then) -> Result<Request<T>> {
        let under_way = self.begin_request(Memory::From(data.bytes().into()), offset, then)?;
        Ok(Request { under_way, memory: data })
    }

    /// Begins a transfer, or carries it out where that does not wait for long.
    fn begin_request(&self, mut memory: Memory<'_>, offset: u64, then: Then) -> Result<UnderWay> {
        self.held.engine.check_here()?;
        let length = memory.stored_bytes();
        let is_short = memory.len() <= if memory.is_stored() { then.short_bytes() } else { 0 };
        let word = if self.held.local.mapped.is_some() || is_short || self.is_shared(memory.bytes()) {
            self.move_now(memory, offset, then)?;
            None
        } else {
            self.check(memory.right(), offset, memory.len() as u64)?;
            memory.touch()?;
            let count = self.count_request()?;
            let word = self.begin(&mut memory, offset, then)?;
            count.keep();
            Some(word)
        };
        Ok(UnderWay { held: Arc::clone(&self.held), word, length })
    }

    /// Counts a request about to begin.
    fn count_request(&self) -> Result<Counted<'_>> {
        let count = Counted(&self.held);
        // The guard takes this back.
        let before = self.held.node.requests().fetch_add(1, Ordering::Relaxed);
        if before as usize >= MOST_REQUESTS {
            return Err(DriverError::TooManyOutstanding(MOST_REQUESTS).into());
        }
        Ok(count)
    }
}

/// A request that is counted and not yet begun. It is counted no more when this is dropped.
struct Counted<'a>(&'a Held);

impl Counted<'_> {
    /// It has begun: it counts until its word is given back.
    fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.node.requests().fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that stays at its place while it is given away: what a [`Request`] can send from.
pub trait Stable: sealed::Sealed + Send + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// Memory that stays at its place while it is given away, and that is its owner's alone: what a [`Request`] can fetch to.
pub trait StableMut: Stable {
    /// The bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

macro_rules! stable {
    ($($kind:ty),*) => {$(
        impl sealed::Sealed for $kind {}
        impl Stable for $kind {
            fn bytes(&self) -> &[u8] {
                self
            }
        }
    )*};
}

macro_rules! stable_mut {
    ($($kind:ty),*) => {$(
        stable!($kind);
        impl StableMut for $kind {
            fn bytes_mut(&mut self) -> &mut [u8] {
                self
            }
        }
    )*};
}

stable!(Arc<[u8]>, &'static [u8]);
stable_mut!(Vec<u8>, Box<[u8]>, &'static mut [u8]);

mod sealed {
    pub trait Sealed {}
}

/// A send or fetch under way, with the memory that it uses. Dropping it waits until that is used no more.
#[derive(Debug)]
#[must_use = "the memory comes back from `wait`"]
pub struct Request<T> {
    // Dropped first: it waits until `memory` is used no more.
    under_way: UnderWay,
    memory: T,
}

impl<T> Request<T> {
    /// Whether [`wait`](Self::wait) would return at once, as it does in a forked child, with an error. Never waits; runs a turn of the driver
    /// if it is not over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let engine = &self.under_way.held.engine;
        !engine.is_here() || self.under_way.is_over() || {
            engine.poll();
            self.under_way.is_over()
        }
    }

    /// Waits until the memory may be used again, and gives it back. What was fetched is in it; what was sent has left.
    ///
    /// # Errors
    /// As [`Import::send`] or [`Import::fetch`]: the exporter is gone, has revoked the export, or cannot pin its pages. The memory
    /// is dropped then; what was fetched into it is not whole.
    pub fn wait(self) -> Result<T> {
        let Self { mut under_way, memory } = self;
        under_way.held.engine.check_here()?;
        under_way.finish()?;
        Ok(memory)
    }
}

/// A command that uses memory of this process. Dropping it waits until it is over.
#[derive(Debug)]
struct UnderWay {
    held: Arc<Held>,
    /// Its completion word, until it has been waited for.
    word: Option<u32>,
    length: u64,
}

impl UnderWay {
    fn is_over(&self) -> bool {
        let words = self.held.engine.words();
        self.word.is_none_or(|word| words.is_over(word))
    }

    fn finish(&mut self) -> Result<()> {
        match self.word.take() {
            None => Ok(()),
            Some(word) => {
                let _counted = Counted(&self.held);
                self.held.finish(word, self.length)
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // In a forked child nothing uses the memory.
        if self.held.engine.is_here()
            && let Err(error) = self.finish()
        {
            tracing::warn!(%error, "a send or fetch that nobody waited for failed");
        }
    }
}
