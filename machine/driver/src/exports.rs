//! Exports of this process: memory made usable by the NIC, offered by name, and taken back.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::{SharedBuffer, Writers};
use mapwire_host::pinning::PinError;
use mapwire_host::views::MultiView;
use mapwire_nic::Landing;
use mapwire_node::{Act, Ask, ExportError, SharedMemory};
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::Importers;
use mapwire_wire::{Endpoint, ExportId, MappedPart, NodeId, Rights};

use crate::driver::{Driver, PROCESS, SHARED_HANDLER, job_key};
use crate::error::DriverError;
use crate::log::Line;
use crate::notices::NotificationHandler;

/// Memory that importers can map.
#[derive(Clone, Debug)]
pub enum DirectMemory {
    /// A buffer, or memory of the program that was adopted.
    Buffer(Arc<Mutex<SharedBuffer>>),
    /// The shared memory's segment, by way of its privileged view; for peers only, and never revoked while it is open.
    Views(Arc<MultiView>),
}

/// Whom an export with these rights lets store: who may not is kept out by the kernel.
#[must_use]
pub fn writers(rights: Rights) -> Writers {
    if rights.contains(Rights::STORE) { Writers::All } else { Writers::Present }
}

/// What a process asks to export.
pub struct ExportRequest {
    /// Under which name.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// Who they may be.
    pub importers: Importers,
    /// What importers may map (the direct path): memory that lies in the range, all of it or its whole pages.
    pub direct: Option<DirectMemory>,
    /// Who is told of messages with a notification.
    pub handler: Option<NotificationHandler>,
}

impl ExportRequest {
    /// Which bytes of the range importers may map.
    fn mapped_part(&self) -> Option<MappedPart> {
        match self.direct.as_ref()? {
            DirectMemory::Buffer(buffer) => {
                let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                let first = buffer.as_ptr().addr() as u64;
                // Nothing, if the memory does not lie there.
                let offset = first.checked_sub(self.address)?;
                let bytes = (buffer.len() as u64).min(self.length.checked_sub(offset)?);
                (bytes > 0).then_some(MappedPart { offset, bytes })
            }
            DirectMemory::Views(_) => Some(MappedPart { offset: 0, bytes: self.length }),
        }
    }
}

/// What this computer keeps of an export.
pub(crate) struct LocalExport {
    pub(crate) id: ExportId,
    pub(crate) handler: Option<NotificationHandler>,
    direct: Option<DirectMemory>,
    /// Where it is redirected to.
    landing: Option<Arc<Mutex<SharedBuffer>>>,
}

/// A former landing, with the export whose fetches may still read it.
#[derive(Debug)]
pub(crate) struct LeftLanding {
    export: ExportId,
    _buffer: Arc<Mutex<SharedBuffer>>,
}

impl core::fmt::Debug for LocalExport {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LocalExport")
            .field("id", &self.id)
            .field("direct", &self.direct.is_some())
            .finish_non_exhaustive()
    }
}

/// Bit of the tag under which the status of an export is passed; its memory is passed under the tag without it.
pub(crate) const STATUS_TAG: u64 = 1 << 63;
/// Bits of the tag with the number of the importer's request.
pub(crate) const REQUEST: u64 = 0xffff_ffff;

/// Bits of the tag with the number of the export, for this process's own use: the highest bit of the number is left out.
fn tag_of(export: ExportId) -> u64 {
    u64::from(export.0) << 32 & !STATUS_TAG
}

impl LocalExport {
    /// What importers may map.
    pub(crate) fn direct(&self) -> Option<&DirectMemory> {
        self.direct.as_ref()
    }
}

impl<F: Fabric> Driver<F> {
    /// Exports memory. See [`Node::export`](mapwire_node::Node::export). Of several exports of one buffer the first takes the direct
    /// path: revoking it moves the buffer, which the importers of another would not follow.
    ///
    /// # Errors
    /// Empty range, no rights, name taken, limit on pinned pages, NIC memory. Nothing is exported then.
    pub fn export(&mut self, mut request: ExportRequest) -> Result<ExportId, DriverError> {
        let is_taken = match &request.direct {
            Some(DirectMemory::Buffer(buffer)) => self.is_direct(buffer),
            _ => false,
        };
        // Most of the shared memory's segment is not used at a time.
        let pins_late = matches!(request.direct, Some(DirectMemory::Views(_)));
        if is_taken || !(self.passes_memory() || self.rma.is_some()) {
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
        let exported = self.node.export(PROCESS, &mut self.pins, asked);
        let id = exported.map_err(|error| self.export_error(error))?;
        // Known here before anything is asked: an importer may wait already, and is answered at once.
        self.exports.push(LocalExport { id, handler: request.handler, direct: request.direct, landing: None });
        // Importers that wait for the name are answered now, not when this process next comes by.
        self.poll();
        Ok(id)
    }

    #[cold]
    fn export_error(&self, error: ExportError<PinError>) -> DriverError {
        match error {
            ExportError::Empty => DriverError::EmptyExport,
            ExportError::NoRights => DriverError::NoRights,
            ExportError::Range(error) => error.into(),
            ExportError::Pages(error) => self.pins.explain(error).into(),
            ExportError::Nic(error) => error.into(),
            ExportError::Vmmc(error) => error.into(),
            ExportError::RedirectsDirect => DriverError::RedirectsDirect,
            ExportError::ShortLanding { landing_bytes, export_bytes } => {
                DriverError::ShortLanding { landing_bytes, export_bytes }
            }
        }
    }

    /// Whether anybody can map what this process exports.
    fn passes_memory(&self) -> bool {
        let mut all = (0..self.fabric.size()).map(|node| NodeId(node as u16));
        all.any(|node| self.fabric.passes_memory(node))
    }

    /// How many imports of an export are held.
    #[must_use]
    pub fn holders(&self, id: ExportId) -> usize {
        self.node.holders(PROCESS, id)
    }

    /// Whether a buffer is exported on the direct path already.
    fn is_direct(&self, buffer: &Arc<Mutex<SharedBuffer>>) -> bool {
        self.exports.iter().any(|local| match &local.direct {
            Some(DirectMemory::Buffer(other)) => Arc::ptr_eq(other, buffer),
            _ => false,
        })
    }

    /// Takes an export back, at once: packets for it are refused from here on, and memory that importers have mapped is
    /// replaced in this process by a copy, so that they are left with an orphan (DESIGN's garbage page; UTLB §4.2).
    ///
    /// # Errors
    /// When there is no such export, or no memory for the copy; in the latter case packets are refused all the same.
    pub fn unexport(&mut self, id: ExportId) -> Result<(), DriverError> {
        self.node.unexport(PROCESS, id)?;
        let Some(index) = self.exports.iter().position(|local| local.id == id) else {
            return Ok(());
        };
        let mut local = self.exports.remove(index);
        self.leave_landing(id, local.landing.take());
        let mut moved = Ok(());
        if let Some(DirectMemory::Buffer(buffer)) = &local.direct {
            // Importers may have kept the memory, whatever they say.
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            moved = buffer.revoke();
            self.orphan(id);
        }
        self.poll();
        Ok(moved?)
    }

    /// Lets a buffer of this process stand for an export, or ends that: [`Node::redirect`](mapwire_node::Node::redirect). The buffer is
    /// kept until no fetch reads it.
    ///
    /// # Errors
    /// No such export; one that importers have mapped; a buffer shorter than the export; the limit on pinned pages.
    pub fn redirect(&mut self, id: ExportId, to: Option<&Arc<Mutex<SharedBuffer>>>) -> Result<(), DriverError> {
        let landing = to.map(|buffer| {
            let memory = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            Landing { address: memory.as_ptr() as u64, length: memory.len() as u64 }
        });
        let redirected = self.node.redirect(PROCESS, &mut self.pins, id, landing);
        redirected.map_err(|error| self.export_error(error))?;
        if let Some(local) = self.exports.iter_mut().find(|local| local.id == id) {
            let former = core::mem::replace(&mut local.landing, to.cloned());
            self.leave_landing(id, former);
        }
        Ok(())
    }

    /// Gives up a former landing as soon as no fetch reads it.
    fn leave_landing(&mut self, export: ExportId, landing: Option<Arc<Mutex<SharedBuffer>>>) {
        if let Some(buffer) = landing {
            self.left_landings.push(LeftLanding { export, _buffer: buffer });
        }
        self.release_landings();
    }

    /// Gives up the former landings that no fetch reads any more.
    pub(crate) fn release_landings(&mut self) {
        let node = &self.node;
        self.left_landings.retain(|left| node.reads_former_landing(left.export));
    }

    /// Carries out what the models and services ask for. Whether there was anything.
    #[inline]
    pub(crate) fn serve_services(&mut self) -> bool {
        // The clock is read only while something has a deadline.
        if let Some(at_ns) = self.node.poll_at()
            && let now_ns = mapwire_host::waiting::now_ns()
            && at_ns <= now_ns
        {
            let now_ns = self.catch_up(now_ns);
            self.node.handle_time(now_ns);
        }
        self.node.has_asks() && self.serve_asks()
    }

    fn serve_asks(&mut self) -> bool {
        while let Some(Ask { act, .. }) = self.node.poll_ask() {
            match act {
                Act::Store { handler, to, region, at } => self.store_region(handler, to, &region, at),
                Act::Protect { region, access, .. } => {
                    if let Some(port) = &mut self.shared {
                        port.protect(&region, access);
                    }
                }
                act => self.serve_rare(act),
            }
        }
        // What the node did itself is work, too: there may be messages to transmit.
        true
    }

    fn serve_rare(&mut self, act: Act) {
        match act {
            Act::PassMemory { to, export, tag } => self.pass_memory(to.node, export, tag),
            Act::GrantedApart { to, export } => {
                let mut exports = self.exports.iter();
                let local = exports.find(|local| local.id == export);
                match local.and_then(LocalExport::direct).cloned() {
                    Some(DirectMemory::Views(_)) => self.hear(to.node),
                    Some(DirectMemory::Buffer(buffer)) => {
                        let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                        self.announce(to, export, &buffer);
                    }
                    None => {}
                }
            }
            Act::ImportOver { request } => {
                if let Some(Err(_)) = self.node.outcome(PROCESS, request) {
                    self.drop_passed(request);
                }
                self.end_meeting(request);
            }
            Act::Revoked { from, export } => {
                if let Some(port) = &mut self.shared {
                    port.handle_revoked(from.node, export);
                }
            }
            Act::Meet { to, .. } => self.meet_sharer(to.node),
            Act::Store { .. } | Act::Protect { .. } => {}
        }
    }

    /// `from` imports the shared memory's segment: its messages are of this opening from here on. It will be answered, so it is met while
    /// others still come.
    fn hear(&mut self, from: NodeId) {
        let hear = |memory: &mut SharedMemory| memory.hear(Endpoint::first_of(from));
        let _ = self.node.call(PROCESS, SHARED_HANDLER, hear);
        self.meet_sharer(from);
    }

    /// Passes the memory of an export and its status under the number of the importer's request. The tags also say which export it is.
    fn pass_memory(&mut self, to: NodeId, export: ExportId, request: u64) {
        let tag = request & REQUEST | tag_of(export);
        self.pass_under(to, export, &[tag, tag | STATUS_TAG]);
        let mut exports = self.exports.iter();
        let local = exports.find(|local| local.id == export);
        if let Some(DirectMemory::Views(_)) = local.and_then(LocalExport::direct) {
            self.hear(to);
        }
    }

    /// Passes memory or status once more, if the importer still has the import.
    pub(crate) fn pass_again(&mut self, to: NodeId, tag: u64) {
        let named = |local: &&LocalExport| tag_of(local.id) == tag & !STATUS_TAG & !REQUEST;
        let export = self.exports.iter().find(named).map(|local| local.id);
        if let Some(export) = export.filter(|&id| self.node.is_held_by(PROCESS, id, to)) {
            self.pass_under(to, export, &[tag]);
        }
    }

    /// Passes descriptors of an export, each under its tag.
    fn pass_under(&mut self, to: NodeId, export: ExportId, tags: &[u64]) {
        let Some(local) = self.exports.iter().find(|local| local.id == export) else {
            return;
        };
        let Some(memory) = &local.direct else {
            return;
        };
        let fabric = &mut self.fabric;
        let mut pass = |memory: BorrowedFd<'_>, status: BorrowedFd<'_>| {
            for &tag in tags {
                let is_status = tag & STATUS_TAG != 0;
                fabric.pass(to, tag, if is_status { status } else { memory })?;
            }
            Ok(())
        };
        let passed = match memory {
            DirectMemory::Views(views) => pass(views.fd(), views.status().fd()),
            DirectMemory::Buffer(buffer) => {
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
            self.log.push(Line::NotPassed { to, export, error });
        }
    }
}
