//! Giving memory to another rank before it asks.

use mapwire_dsm::{Error as ModelError, Minipage};
use mapwire_host::waiting::now_ns;

use super::{Memory, Shared, SharedError, bytes_of};
use crate::error::Result;
use crate::slice::{Sharable, SharedSlice};

impl Shared {
    /// Tells rank `rank` that it will read `slice`, while this thread goes on: it fetches that as by [`prefetch`](Self::prefetch), so that
    /// its threads need not wait for it. It is a hint, of which the other rank takes up to 16 minipages at a time.
    ///
    /// Nothing happens on one host, where the processor fetches, or under hlrc, where a rank may use what another wrote only after it has
    /// synchronised with it.
    ///
    /// # Errors
    /// The memory is closed, or the shared memory is at its end; a rank outside the job, or this one.
    pub fn push<T: Sharable>(&self, slice: &SharedSlice<T>, rank: usize) -> Result<()> {
        slice.check_open()?;
        self.push_bytes(slice.address(), bytes_of(slice), rank)
    }

    /// As [`push`](Self::push), of `bytes` bytes at `address`.
    ///
    /// # Errors
    /// As [`push`](Self::push), and bytes that are not within one view of the shared memory.
    pub fn push_bytes(&self, address: u64, bytes: u64, rank: usize) -> Result<()> {
        self.check()?;
        self.check_address(address, bytes)?;
        let number = |rank: usize| u16::try_from(rank).unwrap_or(u16::MAX);
        let (from, to, ranks) = (number(self.node().rank()), number(rank), number(self.node().size()));
        ModelError::check_push(from, to, ranks).map_err(SharedError::from)?;
        match &self.inner.memory {
            Memory::Protocol(protocol) if bytes > 0 => protocol.push(address, bytes, to),
            _ => Ok(()),
        }
    }
}

impl super::protocol::Protocol {
    /// Bytes that lie within a view, for another rank.
    fn push(&self, address: u64, bytes: u64, to: u16) -> Result<()> {
        let (view, offset) = self.layout().locate(address as usize).unwrap_or_default();
        let run = Minipage { view: view as u16, offset_bytes: offset as u64, length_bytes: bytes };
        Ok(self.command(|dsm, thread| dsm.push(now_ns(), thread, to, run))?)
    }
}
