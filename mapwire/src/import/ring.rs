//! The ring path: commands for the NIC, which takes the bytes from this process's memory or puts them there.

use mapwire_driver::engine::Engine;
use mapwire_driver::{DriverError, DriverMode};
use mapwire_nic::CommandError;
use mapwire_wire::{CommandRepr, NodeId, Refusal, Rights, Signal, TRACE_FLAG_DIRECT, TraceOp};

use super::Import;
use crate::error::{Error, Result};

impl Import {
    #[cold]
    pub(super) fn fetch_slow(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(Rights::FETCH, offset, into.len() as u64)?;
        if let Some(mapped) = &self.held.local.mapped {
            self.open_direct()?;
            if self.held.way.is_traced() {
                self.trace(TraceOp::Fetch, TRACE_FLAG_DIRECT, into);
                return Ok(mapped.read(offset as usize, into)?);
            }
            return self.fetch(offset, into);
        }
        if into.is_empty() {
            return Ok(());
        }
        if self.is_shared(into) {
            let mut copy = vec![0; into.len()];
            self.fetch_slow(offset, &mut copy)?;
            into.copy_from_slice(&copy);
            return Ok(());
        }
        let (address, length) = (into.as_mut_ptr() as u64, into.len() as u64);
        let import = self.held.local.id;
        let command = |completion| CommandRepr::Fetch {
            import,
            offset,
            address,
            length,
            completion,
        };
        let word = self.submit_held(address, length, command, &[])?;
        self.finish(word)
    }

    /// Waits until a command is over. One that a revocation crossed failed for that reason.
    pub(super) fn finish(&self, word: u32) -> Result<()> {
        let grant = &self.held.local.grant;
        match finish(&self.held.engine, word, grant.node) {
            Err(Error::Driver(DriverError::Command(
                CommandError::Revoked(_) | CommandError::Refused(Refusal::Revoked),
            ))) => Err(self.revoked()),
            outcome => outcome,
        }
    }

    pub(super) fn submit_long(
        &self,
        data: &[u8],
        offset: u64,
        notify: bool,
        signal: Option<Signal>,
    ) -> Result<u32> {
        self.check(Rights::STORE, offset, data.len() as u64)?;
        let (address, length) = (data.as_ptr() as u64, data.len() as u64);
        let import = self.held.local.id;
        let command = |completion| CommandRepr::LongSend {
            import,
            offset,
            address,
            length,
            notify,
            signal,
            completion,
        };
        self.submit_held(address, length, command, &[])
    }

    /// Writes a command to the queue, waiting for room.
    #[inline]
    pub(super) fn submit(&self, command: &CommandRepr, data: &[u8]) -> Result<()> {
        let engine = &self.held.engine;
        let peer = self.held.local.grant.node;
        if engine.mode() == DriverMode::Inline {
            let mut driver = engine.lock();
            self.refuse_if_over(&driver)?;
            engine.mark_dirty(&driver, peer);
            if driver.submit(command, data).map_err(Error::from)? {
                return Ok(());
            }
        } else {
            self.refuse_if_over(&engine.lock())?;
            if engine.submit(peer, command, data)? {
                return Ok(());
            }
        }
        engine.wait_for(
            Some(engine.timeout()),
            || {
                format!(
                    "room in the command queue, which is full of sends to rank {} and others",
                    peer.0
                )
            },
            |driver| {
                engine.mark_dirty(driver, peer);
                match driver.submit(command, data) {
                    Ok(true) => Some(Ok(())),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                }
            },
        )??;
        Ok(())
    }
}

/// Waits until the command with completion word `word` is over.
pub(super) fn finish(engine: &Engine, word: u32, peer: NodeId) -> Result<()> {
    // The NIC ends every command: done, refused, or failed since the peer is gone. So the wait needs no timeout, and must not have
    // one: until then the NIC uses the caller's memory. A peer that is stopped is waited for until the launcher ends the job.
    let words = engine.words();
    let outcome = words
        .finish(word)
        .or_else(|| engine.wait_until(None, |engine| engine.words().finish(word)));
    match outcome {
        Some(Ok(())) | None => Ok(()),
        Some(Err(CommandError::PeerGone(_))) => Err(engine.lock().why_gone(peer).into()),
        Some(Err(error)) => Err(DriverError::from(error).into()),
    }
}
