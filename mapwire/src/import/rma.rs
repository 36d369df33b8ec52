//! Long transfers with ranks that libfabric reaches: the provider moves the bytes between memories, past the NIC.

use mapwire_driver::DriverError;
use mapwire_driver::engine::Engine;
use mapwire_driver::rma::{Direction, RmaError, RmaTransfer};
use mapwire_host::faults::touch;
use mapwire_host::memory::raw::Source;
use mapwire_wire::{Signal, TRACE_FLAG_DIRECT, TraceOp};

use super::Import;
use super::mapped::after;
use crate::error::Result;

/// Bytes of the shortest transfer that goes so: a shorter one is faster by packets, which need not wait for those before.
const LEAST_BYTES: usize = 32 << 10;

impl Import {
    /// Stores what was checked to lie in the export and to be readable, then the signal. False when it is to go by the ring.
    pub(super) fn send_rma(&self, data: Source<'_>, offset: u64, notify: bool, signal: Option<Signal>) -> Result<bool> {
        if !self.goes_by_rma(data) {
            return Ok(false);
        }
        if !self.move_rma(Direction::Store, TraceOp::Send, data, offset)? {
            return Ok(false);
        }
        let rest = match (notify, signal) {
            (true, _) => self.notify(offset, data.len() as u64),
            (false, Some(_)) => self.send_ring(Source::EMPTY, 0, false, signal),
            (false, None) => Ok(()),
        };
        rest.map_err(|error| after(data.len(), data.len(), error))?;
        Ok(true)
    }

    /// Fetches what was checked to lie in the export, to memory that may be written. False when it is to go by the ring.
    pub(super) fn fetch_rma(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        if !self.goes_by_rma((&*into).into()) {
            return Ok(false);
        }
        touch(into.as_mut_ptr() as usize, into.len(), true)?;
        self.move_rma(Direction::Fetch, TraceOp::Fetch, (&*into).into(), offset)
    }

    fn goes_by_rma(&self, bytes: Source<'_>) -> bool {
        bytes.len() >= LEAST_BYTES && self.held.has_rma && !self.is_shared(bytes)
    }

    /// Waits until the exporter has taken what was sent before, and moves the bytes.
    fn move_rma(&self, direction: Direction, op: TraceOp, bytes: Source<'_>, offset: u64) -> Result<bool> {
        let held = &*self.held;
        let (engine, grant) = (&held.engine, &held.local.grant);
        let memory = (bytes.as_ptr() as u64, bytes.len() as u64);
        if !engine.lock().has_announced(grant, offset, memory.1) {
            return Ok(false);
        }
        if !held.way.is_settled() {
            match engine.settle(grant.node()) {
                Ok(()) => {}
                // The exporter takes nothing for now. The ring waits behind what it has not taken.
                Err(DriverError::Timeout { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        let mut driver = engine.lock_with_news(grant.node());
        self.refuse_if_over(&mut driver)?;
        let Some(transfer) = driver.begin_rma(direction, grant, offset, memory)? else {
            return Ok(false);
        };
        drop(driver);
        let moving = Moving { engine, transfer: Some(transfer) };
        let over = moving.finish();
        if held.way.is_traced() {
            self.trace(op, TRACE_FLAG_DIRECT, bytes);
        }
        let Err((begun_bytes, error)) = over else {
            return Ok(true);
        };
        // Mostly it is the consequence of something that is known by its own name.
        let peer = grant.node();
        let cause = self.refuse_if_over(&mut engine.lock()).err();
        let cause = cause.unwrap_or_else(|| match error {
            RmaError::PeerGone(_) => engine.lock().why_gone(peer).into(),
            error => DriverError::Rma { peer, error }.into(),
        });
        Err(match direction {
            Direction::Fetch => cause,
            _ => after(begun_bytes as usize, bytes.len(), cause),
        })
    }
}

/// A transfer under way: until it is over, the provider uses the memory of the caller, also when a handler of the program panics
/// meanwhile.
struct Moving<'a> {
    engine: &'a Engine,
    transfer: Option<RmaTransfer>,
}

impl Moving<'_> {
    fn finish(mut self) -> core::result::Result<(), (u64, RmaError)> {
        let outcome = self.wait();
        self.transfer = None;
        outcome
    }

    /// Without a timeout: the provider says how each operation ended, at the latest when the peer is gone.
    fn wait(&self) -> core::result::Result<(), (u64, RmaError)> {
        let Some(transfer) = &self.transfer else {
            return Ok(());
        };
        let over = self.engine.wait_for(None, String::new, |driver| driver.rma_over(transfer));
        over.unwrap_or(Ok(()))
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
