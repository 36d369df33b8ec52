//! Calls of the program about memory: exports, imports, pages, and transfers past the NIC.

use std::sync::{Arc, Mutex};

use mapwire_host::memory::SharedBuffer;
use mapwire_host::waiting::now_ns;
use mapwire_nic::RefusedStores;
use mapwire_node::ImportError;
use mapwire_translation::PageRange;
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::{Grant, RequestId, VmmcError};
use mapwire_wire::{Endpoint, ExportId, ImportId, Key, NodeId, Rights, TraceOp};

use super::Driver;
use crate::engine::{Noted, TracedCall};
use crate::error::DriverError;
use crate::exports::ExportRequest;
use crate::ids::PROCESS;
use crate::imports::LocalImport;
use crate::rma::{self, Direction, Moved, RmaError, RmaTransfer};

impl<F: Fabric> Driver<F> {
    /// Marks the pages of `range` as in use by the command with completion word `word`.
    ///
    /// # Errors
    /// Pages that cannot be pinned.
    #[inline]
    pub fn hold(&mut self, word: u32, range: PageRange) -> Result<(), DriverError> {
        self.local.memories.hold(&mut self.local.node, word, range)
    }

    /// Undoes [`hold`](Self::hold) for a command that was not submitted.
    pub fn unhold(&mut self, word: u32) {
        self.local.node.release(PROCESS, word);
    }

    /// Exports memory. See [`Node::export`](mapwire_node::Node::export). Of several exports of one buffer the first takes the direct
    /// path: revoking it moves the buffer, which the importers of another would not follow.
    ///
    /// # Errors
    /// Empty range, no rights, name taken, limit on pinned pages, NIC memory. Nothing is exported then.
    pub fn export(&mut self, request: ExportRequest) -> Result<ExportId, DriverError> {
        let can_map = self.paths.passes_memory();
        let id = self.local.memories.export(&mut self.local.node, &mut self.local.outcomes, request, can_map)?;
        // Importers that wait for the name are answered now, not when this process next comes by.
        self.poll();
        Ok(id)
    }

    /// How many imports of an export are held.
    #[must_use]
    pub fn holders(&self, id: ExportId) -> usize {
        self.local.node.holders(PROCESS, id)
    }

    /// Takes an export back, at once: packets for it are refused from here on, and memory that importers have mapped is
    /// replaced in this process by a copy, so that they are left with an orphan (DESIGN's garbage page; UTLB §4.2).
    ///
    /// # Errors
    /// When there is no such export, or no memory for the copy; in the latter case packets are refused all the same.
    pub fn unexport(&mut self, id: ExportId) -> Result<(), DriverError> {
        let taken_back = self.local.memories.unexport(&mut self.local.node, &mut self.local.outcomes, id);
        self.poll();
        taken_back
    }

    /// Lets a buffer of this process stand for an export, or ends that: [`Node::redirect`](mapwire_node::Node::redirect). The buffer is
    /// kept until no fetch reads it.
    ///
    /// # Errors
    /// No such export; one that importers have mapped; a buffer shorter than the export; the limit on pinned pages.
    pub fn redirect(&mut self, id: ExportId, to: Option<&Arc<Mutex<SharedBuffer>>>) -> Result<(), DriverError> {
        self.local.memories.redirect(&mut self.local.node, id, to)
    }

    /// Whether a node takes requests. One that is asked all the same, over and over, counts as gone when a message to it is lost.
    pub fn takes_requests(&self, from: NodeId) -> bool {
        self.local.node.takes_requests(from)
    }

    /// Asks a node for an export.
    ///
    /// # Errors
    /// An invalid name.
    pub fn ask_import(
        &mut self,
        from: NodeId,
        name: &str,
        rights: Rights,
        token: Option<Key>,
        timeout_ns: u64,
    ) -> Result<RequestId, DriverError> {
        let from = Endpoint::first_of(from);
        let request = self.local.node.ask_import(now_ns(), PROCESS, from, name, rights, token, timeout_ns);
        let request = request.map_err(|error| self.import_error(error))?;
        self.poll();
        Ok(request)
    }

    /// The outcome of an import that was asked for, when there is one. A grant on the direct path is complete when its
    /// memory has been passed as well.
    pub fn take_import(&mut self, request: RequestId) -> Option<Result<LocalImport, DriverError>> {
        let mut mapped = None;
        if let Ok(granted) = self.local.node.outcome(PROCESS, request)? {
            let grant = granted.grant;
            let failed = match grant.direct.map(|_| self.local.memories.map_passed(request, &grant)) {
                None => {
                    // Nothing was promised; what was passed all the same is closed.
                    self.local.memories.drop_passed(request);
                    None
                }
                Some(Some(Ok(memory))) => {
                    mapped = Some(memory);
                    None
                }
                Some(Some(Err(error))) => Some(error),
                Some(None) if self.is_gone(grant.node()) => Some(self.why_gone(grant.node())),
                Some(None) => return None,
            };
            if let Some(error) = failed {
                self.abandon_import(request);
                return Some(Err(error));
            }
        }
        Some(match self.local.node.enter_import(PROCESS, request)? {
            Ok((id, grant)) => Ok(LocalImport { id, grant, mapped }),
            Err(error) => {
                self.poll();
                Err(self.import_error(error))
            }
        })
    }

    #[cold]
    pub(super) fn import_error(&mut self, error: ImportError) -> DriverError {
        match error {
            ImportError::Vmmc(VmmcError::PeerGone { peer, .. }) if self.paths.breach_of(peer.node).is_some() => {
                self.why_gone(peer.node)
            }
            ImportError::Vmmc(error) => error.into(),
            ImportError::Nic(error) => error.into(),
        }
    }

    /// Gives up an import whose memory has not come, and all that has.
    pub fn abandon_import(&mut self, request: RequestId) {
        self.local.memories.drop_passed(request);
        self.local.node.abandon_import(PROCESS, request);
        self.poll();
    }

    /// Gives an import up, and tells the exporter: at once, or when the commands that wait, which may use it, have been read.
    pub fn release_import(&mut self, id: ImportId, grant: &Grant) {
        if self.queue.has_commands() {
            self.local.memories.give_up(&self.queue, id, grant);
        } else {
            self.local.node.release_import(PROCESS, id, grant);
            self.poll();
        }
    }

    /// What was noted of sends by an import that were dropped after their command was done; notes afresh.
    pub fn take_refused(&mut self, import: ImportId) -> RefusedStores {
        self.local.node.take_refused(import)
    }

    /// Whether stores to and fetches from a rank can go past the NIC.
    pub(crate) fn has_rma(&self, of: NodeId) -> bool {
        self.local.memories.has_rma() && self.paths.has_remote_access(of)
    }

    /// What libfabric moved so far.
    pub(crate) fn moved(&mut self) -> Moved {
        self.local.memories.rma().map(|rma| rma.moved()).unwrap_or_default()
    }

    /// Bytes that calls stored straight into mapped memory.
    pub(crate) fn stored_in_place(&mut self) -> u64 {
        self.local.memories.stored_in_place()
    }

    /// Whether the exporter has announced where `length` bytes from `offset` of an import on are.
    pub fn has_announced(&self, grant: &Grant, offset: u64, length: u64) -> bool {
        rma::is_announced(&self.local.node, grant, offset, length)
    }

    /// Begins to move the `length` bytes at `address` to `offset` of an import, or back. `None` when they must go by packets: the exporter
    /// has not announced them, or the limit on pinned pages is too small.
    ///
    /// The caller has waited until the exporter has taken what was sent before.
    ///
    /// # Errors
    /// Memory that is not mapped.
    pub fn begin_rma(
        &mut self,
        direction: Direction,
        grant: &Grant,
        offset: u64,
        memory: (u64, u64),
    ) -> Result<Option<RmaTransfer>, DriverError> {
        match (self.local.memories.rma(), self.paths.fabric_mut().library()) {
            (Some(rma), Some(ofi)) => rma.begin(&mut self.local.node, ofi, direction, (grant, offset), memory),
            _ => Ok(None),
        }
    }

    /// How a transfer ended, once it has: what was begun of it in bytes, and why no more.
    pub fn rma_over(&mut self, transfer: &RmaTransfer) -> Option<Result<(), (u64, RmaError)>> {
        let is_gone = self.paths.is_gone(transfer.peer());
        self.local.memories.rma()?.take_over(
            &mut self.local.node,
            self.paths.fabric_mut().library()?,
            transfer,
            is_gone,
        )
    }

    /// Whether what is communicated is written down.
    #[inline]
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.local.outcomes.is_traced()
    }

    /// Notes an operation that the NIC takes no part in, or does not translate: see the flags of [`TraceRecord`](mapwire_wire::TraceRecord).
    #[cold]
    pub fn trace(&mut self, op: TraceOp, flags: u8, address: u64, bytes: u64) {
        self.local.outcomes.trace(&mut self.local.node, op, flags, (address, bytes));
    }

    /// Notes how long a thread has computed up to a call. Allocates nothing.
    #[cold]
    pub(crate) fn note_computing(&mut self, noted: Noted) {
        let Noted { thread, began_ns, computed_ns } = noted;
        self.local.outcomes.note(&mut self.local.node, |capture, _| capture.note_thread(began_ns, thread, computed_ns));
    }

    /// Notes a call of a thread that is over. Allocates nothing.
    #[cold]
    pub fn note_call(&mut self, thread: u16, call: TracedCall) {
        let TracedCall { op, address, bytes } = call;
        self.local
            .outcomes
            .note(&mut self.local.node, |capture, _| capture.note_call(now_ns(), thread, op, address, bytes));
    }
}
