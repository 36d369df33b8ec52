//! The ring path: commands for the NIC, which takes the bytes from this process's memory or puts them there.

use mapwire_driver::DriverError;
use mapwire_driver::completions::CommandFailure;
use mapwire_host::faults::touch;
use mapwire_host::memory::raw::Source;
use mapwire_nic::{CommandError, RefusedStores};
use mapwire_wire::{CommandRepr, Refusal, Rights, SHORT_BYTES, SHORT_SIGNAL_BYTES, Signal, TRACE_FLAG_INLINE, TraceOp};

use super::{Held, Import};
use crate::error::{Error, Result};

impl Import {
    /// Sends by the ring what was checked to lie in the export.
    pub(super) fn send_ring(&self, data: Source<'_>, offset: u64, notify: bool, signal: Option<Signal>) -> Result<()> {
        // An error here is one address; a fault in the driver would be the end of the process.
        touch(data.as_ptr() as usize, data.len(), false)?;
        let short = if signal.is_some() { SHORT_SIGNAL_BYTES } else { SHORT_BYTES };
        if data.len() <= short {
            let length = data.len() as u32;
            let import = self.held.local.id;
            let mut copy = [0; SHORT_BYTES];
            // Copied here, outside the driver's lock: `data` may be shared memory, and fault.
            data.copy_to_slice(&mut copy[..data.len()]);
            if self.held.way.is_traced() {
                self.trace(TraceOp::Send, TRACE_FLAG_INLINE, data);
            }
            let command = CommandRepr::ShortSend { import, offset, length, notify, signal };
            return self.submit(&command, &copy[..data.len()]);
        }
        if self.send_rma(data, offset, notify, signal)? || self.send_copy(data, offset, notify, signal)? {
            return Ok(());
        }
        let length = data.len() as u64;
        if self.is_shared(data) {
            // The driver must not fault: send a copy that cannot.
            let mut copy = vec![0; data.len()];
            data.copy_to_slice(&mut copy);
            let word = self.submit_long(copy[..].into(), offset, notify, signal)?;
            return self.held.finish(word, length);
        }
        let word = self.submit_long(data, offset, notify, signal)?;
        self.held.finish(word, length)
    }

    #[cold]
    pub(super) fn fetch_slow(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.held.engine.check_here()?;
        self.check(Rights::FETCH, offset, into.len() as u64)?;
        match &self.held.local.mapped {
            None => self.fetch_ring(offset, into),
            Some(mapped) => self.fetch_mapped(mapped, offset, into),
        }
    }

    /// Fetches by the ring what was checked to lie in the export.
    pub(super) fn fetch_ring(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        if self.is_shared((&*into).into()) {
            let mut copy = vec![0; into.len()];
            self.fetch_ring(offset, &mut copy)?;
            into.copy_from_slice(&copy);
            return Ok(());
        }
        if self.fetch_rma(offset, into)? {
            return Ok(());
        }
        let word = self.begin_fetch(offset, into)?;
        self.held.finish(word, 0)
    }

    /// Submits a fetch that was checked, of at least a byte, to private memory; gives its completion word.
    pub(super) fn begin_fetch(&self, offset: u64, into: &mut [u8]) -> Result<u32> {
        touch(into.as_mut_ptr() as usize, into.len(), true)?;
        let (address, length) = (into.as_mut_ptr() as u64, into.len() as u64);
        let import = self.held.local.id;
        let command = |completion| CommandRepr::Fetch { import, offset, address, length, completion };
        self.submit_held(address, length, command)
    }

    /// Waits until the exporter has handled all that was sent by the ring before: asks for a fetch of no bytes, whose answer
    /// comes behind the refusals.
    pub(super) fn flush_ring(&self) -> Result<()> {
        let held = &*self.held;
        let (engine, grant, import) = (&held.engine, &held.local.grant, held.local.id);
        let word = self.take_word()?;
        let command = CommandRepr::Fetch { import, offset: 0, address: 0, length: 0, completion: word };
        let submitted = engine
            .wait_for(
                Some(engine.timeout()),
                || format!("room in the command queue for a flush of `{}`", held.name),
                |driver| {
                    if driver.is_gone(grant.node()) {
                        return Some(Err(driver.why_gone(grant.node())));
                    }
                    engine.mark_dirty(driver, grant.node());
                    match driver.submit(&command, &[]) {
                        Ok(true) => Some(Ok(())),
                        Ok(false) => None,
                        Err(error) => Some(Err(error)),
                    }
                },
            )
            .and_then(|outcome| outcome);
        if let Err(error) = submitted {
            engine.words().cancel(word);
            return Err(error.into());
        }
        held.finish(word, 0)?;
        let refused = engine.lock().take_refused(import);
        if refused == RefusedStores::default() {
            return Ok(());
        }
        let first = refused.first.or(refused.first_unsent);
        Err(Error::NotStored {
            rank: u32::from(grant.node().0),
            name: held.name.clone(),
            count: if refused.unnamed { 0 } else { refused.count },
            first: first.map(|first| (first.offset, first.length)),
            reason: first.map_or(Refusal::Busy, |first| first.reason),
        })
    }

    pub(super) fn submit_long(
        &self,
        data: Source<'_>,
        offset: u64,
        notify: bool,
        signal: Option<Signal>,
    ) -> Result<u32> {
        self.check(Rights::STORE, offset, data.len() as u64)?;
        let (address, length) = (data.as_ptr() as u64, data.len() as u64);
        let import = self.held.local.id;
        let command =
            |completion| CommandRepr::LongSend { import, offset, address, length, notify, signal, completion };
        self.submit_held(address, length, command)
    }

    /// Writes a command to the queue, waiting for room.
    #[inline]
    pub(super) fn submit(&self, command: &CommandRepr, data: &[u8]) -> Result<()> {
        let engine = &self.held.engine;
        let peer = self.held.local.grant.node();
        let mut driver = engine.lock_with_news(peer);
        self.refuse_if_over(&mut driver)?;
        if engine.submit(driver, peer, command, data)? {
            return Ok(());
        }
        engine.wait_for(
            Some(engine.timeout()),
            || format!("room in the command queue, which is full of sends to rank {} and others", peer.0),
            |driver| {
                // The wait for room may have brought word of a revocation.
                if let Err(error) = self.refuse_if_over(driver) {
                    return Some(Err(error));
                }
                engine.mark_dirty(driver, peer);
                match driver.submit(command, data) {
                    Ok(true) => Some(Ok(())),
                    Ok(false) => None,
                    Err(error) => Some(Err(Error::from(error))),
                }
            },
        )??;
        Ok(())
    }
}

impl Held {
    /// Waits until the command with completion word `word` is over, which sends `length` bytes. One that a revocation crossed
    /// failed for that reason.
    pub(super) fn finish(&self, word: u32, length: u64) -> Result<()> {
        // The NIC ends every command: done, refused, or failed since the peer is gone. So the wait needs no timeout, and must not
        // have one: until then the NIC uses the caller's memory. A peer that is stopped is waited for until the launcher ends the
        // job.
        let engine = &self.engine;
        // Nor does a forked child wait for what its parent began.
        engine.check_here()?;
        let words = engine.words();
        let outcome = words.finish(word).or_else(|| engine.wait_until(None, |engine| engine.words().finish(word)));
        let Some(Err(CommandFailure { error, sent_bytes })) = outcome else {
            return Ok(());
        };
        let cause = match error {
            CommandError::PeerGone(peer) => engine.lock().why_gone(peer).into(),
            CommandError::Revoked(_) | CommandError::Refused(Refusal::Revoked) => self.revoked(),
            error => Error::from(DriverError::from(error)),
        };
        Err(match sent_bytes.min(length) {
            0 => cause,
            sent_bytes => Error::Partial { sent_bytes, length, cause: Box::new(cause) },
        })
    }

    pub(super) fn revoked(&self) -> Error {
        Error::Revoked { rank: u32::from(self.local.grant.node().0), name: self.name.clone() }
    }
}
