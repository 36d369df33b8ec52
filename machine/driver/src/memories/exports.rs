//! Exports of this process: memory made usable by the NIC, offered by name, and taken back.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::SharedBuffer;
use mapwire_host::pinning::PinError;
use mapwire_nic::Landing;
use mapwire_node::{ExportError, Node};
use mapwire_translation::AnyDesign;
use mapwire_transport::rendezvous::RendezvousError;
use mapwire_wire::{Endpoint, ExportId, HandlerId, NodeId};

use super::Memories;
use super::records::{Export, FormerLanding, REQUEST, STATUS_TAG, tag_of};

use crate::error::DriverError;
use crate::exports::{DirectMemory, ExportRequest, writers};
use crate::ids::{PROCESS, job_key};
use crate::log::Line;
use crate::outcomes::Outcomes;

impl Memories {
    /// Exports memory. Of several exports of one buffer the first takes the direct path: revoking it moves the buffer, which the importers
    /// of another would not follow. `can_map`: whether any importer can map memory of this process.
    pub(crate) fn export(
        &mut self,
        node: &mut Node<AnyDesign>,
        outcomes: &mut Outcomes,
        mut request: ExportRequest,
        can_map: bool,
    ) -> Result<ExportId, DriverError> {
        // Most of such memory is not used at a time.
        let pins_late = matches!(request.direct, Some(DirectMemory::Views(..)));
        let is_taken = matches!(&request.direct, Some(DirectMemory::Buffer(buffer)) if self.is_direct(buffer));
        if is_taken || !can_map && !self.has_rma() {
            request.direct = None;
        }
        if request.length > 0
            && !request.rights.is_empty()
            && let Some(DirectMemory::Buffer(buffer)) = &request.direct
        {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.set_watched(self.watching);
            buffer.share(writers(request.rights))?;
        }
        let part = request.mapped_part();
        let asked = mapwire_node::ExportRequest {
            name: request.name,
            key: job_key()?,
            address: request.address,
            length: request.length,
            rights: request.rights,
            importers: request.importers,
            direct: part,
            pins_late,
        };
        let exported = node.export(PROCESS, self.frames.pins_mut(), asked);
        let id = exported.map_err(|error| self.export_error(error))?;
        // Known here before anything is asked: an importer may wait already, and is answered at once.
        self.exports.push(Export { id, direct: request.direct, landing: None });
        outcomes.set_handler(id, request.handler);
        Ok(id)
    }

    #[cold]
    fn export_error(&self, error: ExportError<PinError>) -> DriverError {
        match error {
            ExportError::Range(error) => error.into(),
            ExportError::Pages(error) => self.frames.pins().explain(error).into(),
            ExportError::Nic(error) => error.into(),
            ExportError::Vmmc(error) => error.into(),
            error => DriverError::Export(error),
        }
    }

    /// Whether a buffer is exported on the direct path already.
    fn is_direct(&self, buffer: &Arc<Mutex<SharedBuffer>>) -> bool {
        let is_it = |other: &DirectMemory| matches!(other, DirectMemory::Buffer(other) if Arc::ptr_eq(other, buffer));
        self.exports.iter().any(|export| export.direct.as_ref().is_some_and(is_it))
    }

    /// Takes an export back, which packets are refused for from here on. Memory that importers have mapped is replaced in this process by a
    /// copy, so that they are left with an orphan (DESIGN's garbage page; UTLB §4.2).
    pub(crate) fn unexport(
        &mut self,
        node: &mut Node<AnyDesign>,
        outcomes: &mut Outcomes,
        id: ExportId,
    ) -> Result<(), DriverError> {
        node.unexport(PROCESS, id)?;
        let Some(index) = self.exports.iter().position(|export| export.id == id) else {
            return Ok(());
        };
        let export = self.exports.remove(index);
        outcomes.set_handler(id, None);
        self.leave_landing(node, id, export.landing);
        let Some(DirectMemory::Buffer(buffer)) = &export.direct else {
            return Ok(());
        };
        // Importers may have kept the memory, whatever they say.
        let moved = buffer.lock().unwrap_or_else(PoisonError::into_inner).revoke();
        if let Some(rma) = &self.rma {
            rma.withdraw(node, id);
        }
        Ok(moved?)
    }

    /// Lets a buffer of this process stand for an export, or ends that. The buffer is kept until no fetch reads it.
    pub(crate) fn redirect(
        &mut self,
        node: &mut Node<AnyDesign>,
        id: ExportId,
        to: Option<&Arc<Mutex<SharedBuffer>>>,
    ) -> Result<(), DriverError> {
        let landing = to.map(|buffer| {
            let memory = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            Landing { address: memory.as_ptr() as u64, length: memory.len() as u64 }
        });
        let redirected = node.redirect(PROCESS, self.frames.pins_mut(), id, landing);
        redirected.map_err(|error| self.export_error(error))?;
        if let Some(export) = self.exports.iter_mut().find(|export| export.id == id) {
            let former = core::mem::replace(&mut export.landing, to.cloned());
            self.leave_landing(node, id, former);
        }
        Ok(())
    }

    /// Gives up a former landing as soon as no fetch reads it.
    fn leave_landing(&mut self, node: &Node<AnyDesign>, export: ExportId, landing: Option<Arc<Mutex<SharedBuffer>>>) {
        self.former_landings.extend(landing.map(|buffer| FormerLanding { export, _buffer: buffer }));
        self.release_landings(node);
    }

    /// Gives up the former landings that no fetch reads any more.
    pub(super) fn release_landings(&mut self, node: &Node<AnyDesign>) {
        self.former_landings.retain(|former| node.reads_former_landing(former.export));
    }

    fn direct_of(&self, id: ExportId) -> Option<&DirectMemory> {
        self.exports.iter().find(|export| export.id == id)?.direct.as_ref()
    }

    /// The service whose views an export is of: whoever imports it is a peer of the service.
    pub(crate) fn service_of(&self, id: ExportId) -> Option<HandlerId> {
        match self.direct_of(id)? {
            DirectMemory::Views(handler, _) => Some(*handler),
            DirectMemory::Buffer(_) => None,
        }
    }

    /// Registers an export with libfabric for a far rank that has been granted it, and tells it where.
    pub(crate) fn announce(&self, node: &mut Node<AnyDesign>, outcomes: &mut Outcomes, to: Endpoint, export: ExportId) {
        if let (Some(rma), Some(DirectMemory::Buffer(buffer))) = (&self.rma, self.direct_of(export)) {
            let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = rma.announce(node, to, export, &buffer) {
                outcomes.log(Line::NotRegistered { export, error });
            }
        }
    }

    /// Passes the memory of an export and its status under the number of the importer's request, by `pass`. The tags also say which export
    /// it is.
    pub(crate) fn pass(
        &self,
        outcomes: &mut Outcomes,
        (to, export, request): (NodeId, ExportId, u64),
        pass: impl FnMut(u64, BorrowedFd<'_>) -> Result<(), RendezvousError>,
    ) {
        let tag = request & REQUEST | tag_of(export);
        self.pass_under(outcomes, (to, export), &[tag, tag | STATUS_TAG], pass);
    }

    /// Passes memory or status once more, if the importer still has the import.
    pub(crate) fn pass_again(
        &self,
        node: &Node<AnyDesign>,
        outcomes: &mut Outcomes,
        (to, tag): (NodeId, u64),
        pass: impl FnMut(u64, BorrowedFd<'_>) -> Result<(), RendezvousError>,
    ) {
        let named = |export: &&Export| tag_of(export.id) == tag & !STATUS_TAG & !REQUEST;
        let export = self.exports.iter().find(named).map(|export| export.id);
        if let Some(export) = export.filter(|&id| node.is_held_by(PROCESS, id, to)) {
            self.pass_under(outcomes, (to, export), &[tag], pass);
        }
    }

    fn pass_under(
        &self,
        outcomes: &mut Outcomes,
        (to, export): (NodeId, ExportId),
        tags: &[u64],
        mut pass: impl FnMut(u64, BorrowedFd<'_>) -> Result<(), RendezvousError>,
    ) {
        let mut pass = |memory: BorrowedFd<'_>, status: BorrowedFd<'_>| {
            let mut tags = tags.iter();
            tags.try_for_each(|&tag| pass(tag, if tag & STATUS_TAG != 0 { status } else { memory }))
        };
        let passed = match self.direct_of(export) {
            None => return,
            Some(DirectMemory::Views(_, views)) => pass(views.fd(), views.status().fd()),
            Some(DirectMemory::Buffer(buffer)) => {
                let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                match buffer.descriptors() {
                    Some((memory, status)) => pass(memory, status),
                    // A direct export shares its buffer first, and keeps it shared while it stands.
                    None => return,
                }
            }
        };
        if let Err(error) = passed {
            // The importer waits for the memory and will time out, naming the export.
            outcomes.log(Line::NotPassed { to, export, error: error.into() });
        }
    }

    /// Has importers ring after each direct store from here on, or no longer. Whether an importer is asked that was not before.
    pub(crate) fn set_watching(&mut self, on: bool) -> bool {
        self.watching = on;
        self.watched_buffers().fold(false, |any, buffer| {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.set_watched(on) && on || any
        })
    }

    /// The service thread was rung, or has slept long: importers may have stored to memory that they have mapped.
    pub(crate) fn handle_ring(&mut self, outcomes: &Outcomes, rung: bool) {
        if !self.watching || !rung && self.watched_buffers().next().is_none() {
            return;
        }
        if !outcomes.fire_events() && rung {
            self.set_watching(false);
        }
    }

    /// The buffers that importers may have mapped.
    fn watched_buffers(&self) -> impl Iterator<Item = &Mutex<SharedBuffer>> {
        self.exports.iter().filter_map(|export| match &export.direct {
            Some(DirectMemory::Buffer(buffer)) => Some(&**buffer),
            _ => None,
        })
    }
}
