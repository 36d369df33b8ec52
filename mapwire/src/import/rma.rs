//! Long transfers with ranks that libfabric reaches: the provider moves the bytes between memories, past the NIC.

use mapwire_driver::DriverError;
use mapwire_driver::engine::Engine;
use mapwire_driver::rma::{Direction, RmaError, RmaTransfer};
use mapwire_wire::TRACE_FLAG_DIRECT;

use super::Import;
use super::memory::{Memory, Then};
use super::transfer::after;
use crate::error::{Error, Result};

/// Bytes of the shortest transfer that goes so: a shorter one is faster by packets, which need not wait for those before.
const LEAST_BYTES: usize = 32 << 10;

impl Import {
    /// Moves what was checked to lie in the export and touched, then what follows. False when it is to go by the ring.
    pub(super) fn move_rma(&self, memory: &mut Memory<'_>, offset: u64, then: Then) -> Result<bool> {
        let held = &*self.held;
        if !held.has_rma || memory.len() < LEAST_BYTES || self.is_shared(memory.bytes()) {
            return Ok(false);
        }
        let (engine, grant) = (&held.engine, &held.local.grant);
        if !engine.lock().has_announced(grant, offset, memory.len() as u64) {
            return Ok(false);
        }
        // The exporter must have taken what was sent before.
        if !held.direct_stores.is_settled() {
            match engine.settle(grant.node()) {
                Ok(()) => {}
                // The exporter takes nothing for now. The ring waits behind what it has not taken.
                Err(DriverError::Timeout { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        let direction = if memory.is_stored() { Direction::Store } else { Direction::Fetch };
        let mut driver = engine.lock_with_news(grant.node());
        self.refuse_if_over(&mut driver)?;
        let Some(transfer) = driver.begin_rma(direction, grant, offset, memory.range())? else { return Ok(false) };
        drop(driver);
        let over = Moving { engine, transfer: Some(transfer) }.finish();
        if held.direct_stores.is_traced() {
            self.trace(memory.op(), TRACE_FLAG_DIRECT, memory.bytes());
        }
        let length = memory.len();
        if let Err((begun_bytes, error)) = over {
            let cause = self.why_rma_failed(error);
            return Err(if memory.is_stored() { after(begun_bytes as usize, length, cause) } else { cause });
        }
        self.follow(offset, length, then).map_err(|error| after(length, length, error))?;
        Ok(true)
    }

    /// Mostly it is the consequence of something that is known by its own name.
    #[cold]
    fn why_rma_failed(&self, error: RmaError) -> Error {
        let peer = self.held.local.grant.node();
        let mut driver = self.held.engine.lock();
        match (self.refuse_if_over(&mut driver), error) {
            (Err(known), _) => known,
            (Ok(()), RmaError::PeerGone(_)) => driver.why_gone(peer).into(),
            (Ok(()), error) => DriverError::Rma { peer, error }.into(),
        }
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
        let Some(transfer) = &self.transfer else { return Ok(()) };
        self.engine.wait_for(None, String::new, |driver| driver.rma_over(transfer)).unwrap_or(Ok(()))
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
