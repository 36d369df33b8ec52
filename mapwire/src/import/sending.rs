//! Sends under way, which own what they send.

use std::sync::Arc;

use mapwire_wire::{NodeId, SHORT_BYTES};

use super::Import;
use super::ring::finish;
use crate::error::{Error, Result};
use crate::node::Node;

impl Import {
    /// Begins to store `data`, which the caller gives away until [`Sending::wait`] returns it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_async<T: Stable>(&self, data: T, offset: u64) -> Result<Sending<T>> {
        let bytes = data.bytes();
        let word = if self.held.local.mapped.is_some()
            || bytes.len() <= SHORT_BYTES
            || self.is_shared(bytes)
        {
            self.send(bytes, offset)?;
            None
        } else {
            Some(self.submit_long(bytes, offset, false, None)?)
        };
        Ok(Sending {
            node: self.held.node.clone(),
            to: self.held.local.grant.node,
            word,
            data: Some(data),
        })
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
    node: Node,
    to: NodeId,
    word: Option<u32>,
    data: Option<T>,
}

impl<T> Sending<T> {
    /// Whether the data may be reused, without waiting. Runs one turn of the driver.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.node.inner.engine.poll();
        self.word
            .is_none_or(|word| self.node.inner.engine.words().is_over(word))
    }

    /// Waits until the data may be reused, and gives it back.
    ///
    /// # Errors
    /// As [`Import::send`].
    pub fn wait(mut self) -> Result<T> {
        let outcome = self.finish();
        let data = self.data.take();
        outcome?;
        // It is there until `wait` or `drop` takes it, and this is the one that does.
        data.ok_or(Error::OutOfRange {
            offset: 0,
            length: 0,
            end: 0,
            unit: "bytes",
        })
    }

    fn finish(&mut self) -> Result<()> {
        match self.word.take() {
            None => Ok(()),
            Some(word) => finish(&self.node.inner.engine, word, self.to),
        }
    }
}

impl<T> Drop for Sending<T> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::warn!(%error, "a send that nobody waited for failed");
        }
    }
}
