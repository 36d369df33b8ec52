//! Sends under way, which own what they send.

use std::sync::Arc;

use mapwire_host::faults::touch;
use mapwire_wire::SHORT_BYTES;

use super::{Held, Import};
use crate::error::Result;

impl Import {
    /// Begins to store `data`, which the caller gives away until [`Sending::wait`] returns it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_async<T: Stable>(&self, data: T, offset: u64) -> Result<Sending<T>> {
        let bytes = data.bytes();
        let length = bytes.len() as u64;
        let word = if self.held.local.mapped.is_some()
            || bytes.len() <= SHORT_BYTES
            || self.is_shared(bytes.into())
        {
            self.send(bytes, offset)?;
            None
        } else {
            touch(bytes.as_ptr() as usize, bytes.len(), false)?;
            Some(self.submit_long(bytes.into(), offset, false, None)?)
        };
        let under_way = UnderWay {
            held: Arc::clone(&self.held),
            word,
            length,
        };
        Ok(Sending { under_way, data })
    }
}

/// Memory that stays at its place while it is given away: what [`Import::send_async`] can send from.
pub trait Stable: sealed::Sealed + Send + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];
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

stable!(Vec<u8>, Box<[u8]>, Arc<[u8]>, &'static [u8]);

mod sealed {
    pub trait Sealed {}
}

/// A send under way, which owns what it sends.
#[derive(Debug)]
#[must_use = "the data comes back from `wait`"]
pub struct Sending<T> {
    // Dropped first: it waits until `data` is used no more.
    under_way: UnderWay,
    data: T,
}

impl<T> Sending<T> {
    /// Whether the data may be reused, without waiting. Runs one turn of the driver.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let engine = &self.under_way.held.engine;
        engine.poll();
        self.under_way
            .word
            .is_none_or(|word| engine.words().is_over(word))
    }

    /// Waits until the data may be reused, and gives it back.
    ///
    /// # Errors
    /// As [`Import::send`].
    pub fn wait(self) -> Result<T> {
        let Self {
            mut under_way,
            data,
        } = self;
        under_way.finish()?;
        Ok(data)
    }
}

/// A command that uses memory of this process. Dropping it waits until it is over.
#[derive(Debug)]
struct UnderWay {
    held: Arc<Held>,
    /// Its completion word, until it has been waited for.
    word: Option<u32>,
    /// Bytes that it sends.
    length: u64,
}

impl UnderWay {
    fn finish(&mut self) -> Result<()> {
        match self.word.take() {
            None => Ok(()),
            Some(word) => self.held.finish(word, self.length),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "a send that nobody waited for failed");
        }
    }
}
