//! What is checked before bytes move: the way, rights, range, and whether the exporter still lets them come.

use mapwire_host::memory::MappedBuffer;
use mapwire_host::memory::raw::Source;
use mapwire_transport::bells::Wake;
use mapwire_wire::{Rights, Signal, TraceOp};

use super::Import;
use crate::error::{Error, Result, check_range};
use crate::raw;

impl Import {
    /// Whether a direct store or fetch may go ahead at once. Two loads of lines that are in this core's cache.
    #[inline]
    pub(super) fn is_open(&self, mapped: &MappedBuffer) -> bool {
        self.held.direct_stores.is_clear() && !mapped.revoked()
    }

    /// After a direct store: wakes the exporter's threads that sleep until one comes.
    #[inline(always)]
    pub(super) fn wake_awaiting(&self, mapped: &MappedBuffer) {
        if mapped.is_awaited() {
            self.wake(mapped);
        }
    }

    #[cold]
    fn wake(&self, mapped: &MappedBuffer) {
        let who = match mapped.awaited_by() {
            (false, false) => return,
            (true, false) => Wake::Waiting,
            (false, true) => Wake::Service,
            (true, true) => Wake::All,
        };
        self.held.engine.wake(self.held.local.grant.node(), who);
    }

    /// Makes a direct store possible, or says why it is not: waits for what was sent before by the ring.
    #[cold]
    pub(super) fn open_direct(&self) -> Result<()> {
        if self.held.local.mapped.as_ref().is_some_and(MappedBuffer::revoked) {
            return Err(self.held.revoked());
        }
        if !self.held.direct_stores.is_settled() {
            self.held.engine.settle(self.held.local.grant.node())?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check(&self, needs: Rights, offset: u64, length: u64) -> Result<()> {
        let grant = &self.held.local.grant;
        if !grant.rights.contains(needs) {
            return Err(Error::NoRight { needs, has: grant.rights });
        }
        check_range(offset, length, grant.length)
    }

    #[inline]
    pub(super) fn check_signal(&self, offset: u64) -> Result<()> {
        if !offset.is_multiple_of(Signal::WORD_BYTES) {
            return Err(Error::Unaligned(offset));
        }
        self.check(Rights::STORE, offset, Signal::WORD_BYTES)
    }

    /// Writes down an operation that no NIC translates.
    #[cold]
    pub(super) fn trace(&self, op: TraceOp, flags: u8, bytes: Source<'_>) {
        let (address, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
        self.held.engine.lock().trace(op, flags, address, length);
    }

    pub(super) fn is_shared(&self, bytes: Source<'_>) -> bool {
        raw::in_shared(&self.held.engine, bytes.as_ptr() as u64, bytes.len() as u64)
    }
}
