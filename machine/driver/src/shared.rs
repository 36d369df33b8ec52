//! The DSM model's port to this computer: views, page protections, and the peers' privileged views, into which minipages are
//! stored in place (Millipage §2.1: no buffer between, and no thread suspended while data arrives).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mapwire_dsm::{Access as Wanted, Dsm, Message, Outcome, PeerError, Protection as Granted};
use mapwire_host::faults::{Access, FaultKind, PageProtection, ProtectionError, WatchError};
use mapwire_host::memory::MappedBuffer;
use mapwire_host::views::{MultiView, ViewError};
use mapwire_host::waiting::now_ns;
use mapwire_node::{SharedEnd, SharedMemory};
use mapwire_service::{Access as Wish, Region, Service};
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::{Grant, RequestId};
use mapwire_wire::{Endpoint, ExportId, HandlerId, Header, ImportId, Kind, NodeId, Rights, TRACE_FLAG_DIRECT, TraceOp};
use thiserror::Error;

use crate::breach::Breach;
use crate::driver::{Driver, PROCESS, SHARED_HANDLER};
use crate::error::{DriverError, rank};
use crate::imports::LocalImport;
use crate::log::Line;
use crate::mover;

/// What can go wrong with the shared memory.
#[derive(Debug, Error)]
pub enum SharedError {
    /// This process is a forked child of the one that joined.
    #[error(transparent)]
    Forked(#[from] mapwire_host::processes::Forked),
    /// The model refuses.
    #[error(transparent)]
    Model(#[from] mapwire_dsm::Error),
    /// Its tables cannot have this shape.
    #[error(transparent)]
    Config(#[from] mapwire_dsm::ConfigError),
    /// The views cannot be mapped.
    #[error(transparent)]
    Views(#[from] ViewError),
    /// Its messages cannot reach it.
    #[error(transparent)]
    Register(#[from] mapwire_node::RegisterError),
    /// Pages cannot be protected.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    /// Faults cannot be caught.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// What carries packets between hosts catches page faults itself.
    #[error(
        "libfabric's provider `{0}` catches SIGSEGV and SIGBUS itself, so accesses to shared memory cannot be served beside it: use another provider (--transport ofi:tcp), or --transport shm"
    )]
    Provider(String),
    /// A peer does not follow the protocol.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A peer sent a message that is none.
    #[error(
        "rank {} sent a message that is not one of the shared memory; end the job, its memory is no longer consistent",
        rank(.0)
    )]
    Garbled(NodeId),
    /// A rank is gone, and with it what it owned.
    #[error("rank {} is gone, and with it the shared memory that it owned", rank(.0))]
    RankGone(NodeId),
    /// A rank has closed the memory while others use it.
    #[error(
        "rank {} has taken its part of the shared memory away: it did not wait for the others to close it too",
        rank(.0)
    )]
    RankClosed(NodeId),
    /// A rank asked for memory before it had joined.
    #[error(
        "rank {} asked for shared memory before it had opened it; end the job, its memory is no longer consistent",
        rank(.0)
    )]
    NoView(NodeId),
    /// The part of another rank cannot be had.
    #[error("no way to the part of the shared memory that rank {} owns: {}", rank(.0), .1)]
    Segment(NodeId, Arc<DriverError>),
    /// Not all ranks have opened it.
    #[error("{missing} not opened the shared memory, and for {} s no other has; {states}", .after.as_secs_f32())]
    Late {
        /// Who has not.
        missing: String,
        /// For so long nothing has changed.
        after: Duration,
        /// The ranks by state.
        states: String,
    },
    /// A rank broke the rules of the link, and counts as gone.
    #[error("rank {} is broken ({breach}), and with it the shared memory that it owned", rank(.peer))]
    RankBroken {
        /// The rank.
        peer: NodeId,
        /// What it did.
        breach: Breach,
    },
    /// Shared memory is open already.
    #[error("the shared memory of this process is open already")]
    Open,
    /// Shared memory is not open.
    #[error("the shared memory of this process is not open, or no longer")]
    NotOpen,
    /// More threads than were announced.
    #[error("more than {0} threads of this process use the shared memory")]
    TooManyThreads(usize),
}

/// Threads of a process that may use the shared memory.
pub const MAX_THREADS: usize = 64;

/// The shared memory of this process, as far as it is this computer's. What decides is a service of the node ([`SharedMemory`]).
#[derive(Debug)]
pub struct SharedPort {
    views: Arc<MultiView>,
    protection: PageProtection,
    /// What the application may do now, by view and first page of a minipage: zeroed memory, which the operating system
    /// supplies as it is used.
    access: Vec<u8>,
    /// Every peer's privileged view.
    peers: Vec<Option<Segment>>,
    /// What each peer exports it as.
    segments: Vec<Option<ExportId>>,
    /// The name under which each rank exports it.
    name: String,
    /// Imports of peers' views that are under way.
    meetings: BTreeMap<RequestId, NodeId>,
    /// Those that are held.
    imports: Vec<(ImportId, Grant)>,
    /// What went wrong here; every wait gets it from then on.
    broken: Option<Broken>,
}

/// The privileged view of a peer, into which this rank stores minipages.
#[derive(Debug)]
pub enum Segment {
    /// Of a rank on this host: it is mapped here.
    Mapped(MappedBuffer),
    /// Of another: the NIC stores there.
    Imported(ImportId),
}

/// How a minipage gets into a peer's privileged view.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// It is there.
    InPlace,
    /// The NIC stores it: which import, and the address of the bytes here.
    ByNic(ImportId, u64),
}

/// Why the shared memory is at its end.
#[derive(Clone, Debug)]
enum Broken {
    Closed(NodeId),
    /// It has shown no privileged view to store into.
    NoView(NodeId),
    /// Its privileged view cannot be imported.
    Segment(NodeId, Arc<DriverError>),
    Protection(ProtectionError),
    /// The model named memory that is not there.
    Model,
}

impl SharedPort {
    /// Joins the views of `ranks` ranks, which all export theirs under `name`.
    #[must_use]
    pub fn new(ranks: u16, name: String, views: Arc<MultiView>, protection: PageProtection) -> Self {
        let entries = views.layout().views * views.layout().pages();
        Self {
            views,
            protection,
            access: vec![0; entries],
            peers: (0..ranks).map(|_| None).collect(),
            segments: vec![None; usize::from(ranks)],
            name,
            meetings: BTreeMap::new(),
            imports: Vec::new(),
            broken: None,
        }
    }

    /// The views.
    #[must_use]
    pub fn views(&self) -> &Arc<MultiView> {
        &self.views
    }

    /// Puts the privileged view of a peer in place.
    fn set_peer(&mut self, peer: NodeId, local: LocalImport) {
        let index = usize::from(peer.0);
        if index < self.peers.len() {
            self.imports.push((local.id, local.grant));
            self.segments[index] = Some(local.grant.export);
            self.peers[index] = Some(match local.mapped {
                Some(mapped) if mapped.part().start == 0 => Segment::Mapped(mapped),
                _ => Segment::Imported(local.id),
            });
        }
    }

    /// Whether the privileged view of a peer is in place.
    fn has_peer(&self, peer: NodeId) -> bool {
        let view = self.peers.get(usize::from(peer.0));
        view.is_some_and(Option::is_some)
    }

    /// The view of a peer cannot be imported.
    fn lose(&mut self, peer: NodeId, error: DriverError) {
        self.broken.get_or_insert(Broken::Segment(peer, Arc::new(error)));
    }

    /// The imports of peers' views, to be released.
    pub fn take_imports(&mut self) -> Vec<(ImportId, Grant)> {
        core::mem::take(&mut self.imports)
    }

    /// A peer has taken an export back: its segment, perhaps.
    pub(crate) fn handle_revoked(&mut self, peer: NodeId, export: ExportId) {
        if self.segments.get(usize::from(peer.0)) == Some(&Some(export)) {
            self.broken.get_or_insert(Broken::Closed(peer));
        }
    }

    /// What a packet of the shared memory's handler says of data that its sender has stored in the privileged view: address and
    /// bytes.
    #[cold]
    pub(crate) fn arrived(&self, header: &Header, message: &[u8]) -> Option<(u64, u64)> {
        let is_ours = header.kind == Kind::Handler as u8 && header.message.get() == SHARED_HANDLER.0;
        match is_ours.then(|| Message::parse(message)) {
            Some(Ok((Message::Grant { minipage, data: true, .. }, _))) => {
                self.source_of(minipage.offset_bytes, minipage.length_bytes)
            }
            _ => None,
        }
    }

    /// The view and the page that an address of the application lies in.
    pub(crate) fn locate(&self, address: usize) -> Option<(u16, u64)> {
        let (view, offset) = self.views.locate(address)?;
        // A layout has at most 512 views.
        let page = (offset / mapwire_translation::PAGE_BYTES) as u64;
        Some((view as u16, page))
    }

    /// Where bytes are in the privileged view: their address, and how many.
    #[cold]
    fn source_of(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let from = self.views.privileged(offset as usize, bytes as usize).ok()?;
        Some((from as u64, bytes))
    }

    /// Stores a region at the offset `at` of a peer's privileged view, where that is mapped: the message that follows it through the ring is
    /// published after it (x86 keeps stores in order; the ring's release store does so everywhere).
    #[inline]
    fn store(&self, to: NodeId, region: &Region, at: u64) -> Result<Stored, Broken> {
        let (offset, length) = (region.offset as usize, region.bytes as usize);
        // Ranks meet before any of them uses the memory, and know each other's views then.
        let Some(Some(peer)) = self.peers.get(usize::from(to.0)) else {
            return Err(Broken::NoView(to));
        };
        match (self.views.privileged(offset, length), peer) {
            (Ok(from), Segment::Mapped(peer)) if peer.at(at as usize, length).is_some() => {
                mover::store_region(from, peer, at as usize, length);
                Ok(Stored::InPlace)
            }
            (Ok(from), &Segment::Imported(import)) => Ok(Stored::ByNic(import, from as u64)),
            // The model names only minipages inside the segment, which every rank maps at the same length.
            _ => Err(Broken::Model),
        }
    }

    /// Sets the protection of the page at `address` to what the model says that it is.
    fn reopen(&mut self, address: usize, dsm: &Dsm) {
        let Some((view, page)) = self.locate(address) else {
            return;
        };
        let Some((_, protection)) = dsm.minipage_at(view, page) else {
            return;
        };
        let access = match protection {
            Granted::None => return,
            Granted::Read => Access::Read,
            Granted::Write => Access::Write,
        };
        if let Err(error) = self.protection.set(usize::from(view), page as usize, 1, access, access) {
            self.broken.get_or_insert(Broken::Protection(error));
        }
    }

    /// Gives the application an access to the pages of a region.
    #[inline]
    pub(crate) fn protect(&mut self, region: &Region, to: Wish) {
        let view = usize::from(region.view);
        let page_bytes = mapwire_translation::PAGE_BYTES as u64;
        let first = (region.offset / page_bytes) as usize;
        let pages = (region.offset + region.bytes).div_ceil(page_bytes) as usize - first;
        let to = match to {
            Wish::None => Access::None,
            Wish::Read => Access::Read,
            Wish::Write => Access::Write,
        };
        let Some(slot) = self.access.get_mut(view * self.views.layout().pages() + first) else {
            return;
        };
        let from = match *slot {
            0 => Access::None,
            1 => Access::Read,
            _ => Access::Write,
        };
        *slot = to as u8;
        if let Err(error) = self.protection.set(view, first, pages, from, to) {
            self.broken.get_or_insert(Broken::Protection(error));
        }
    }
}

/// What a fault at a page wants, also when the processor does not say.
pub(crate) fn wanted(dsm: &Dsm, view: u16, page: u64, kind: FaultKind) -> Wanted {
    match kind {
        FaultKind::Read => Wanted::Read,
        FaultKind::Write => Wanted::Write,
        FaultKind::Unknown => match dsm.minipage_at(view, page) {
            Some((_, Granted::Read)) => Wanted::Write,
            _ => Wanted::Read,
        },
    }
}

impl Broken {
    fn error(self) -> SharedError {
        match self {
            Self::Closed(node) => SharedError::RankClosed(node),
            Self::NoView(node) => SharedError::NoView(node),
            Self::Segment(node, error) => SharedError::Segment(node, error),
            Self::Protection(error) => SharedError::Protection(error),
            Self::Model => SharedError::NotOpen,
        }
    }
}

impl<F: Fabric> Driver<F> {
    /// Puts the shared memory in place.
    pub(crate) fn open_shared(&mut self, dsm: Dsm, port: SharedPort) -> Result<(), SharedError> {
        let mut memory = Box::new(SharedMemory::new(dsm, 1).with_meetings());
        // Word of those that go from here on comes through the node.
        let ranks = (0..self.fabric.size()).map(|rank| NodeId(rank as u16));
        if let Some(gone) = ranks.into_iter().find(|&rank| self.is_gone(rank)) {
            memory.handle_peer_gone(now_ns(), gone);
        }
        self.node.register(PROCESS, SHARED_HANDLER, memory)?;
        self.shared = Some(Box::new(port));
        Ok(())
    }

    /// Imports the privileged view of a peer, unless that is done or under way: the shared memory sends nothing to the peer before, since
    /// whoever has imported its view knows that it has opened the memory. The page-fault handler leaves it to others.
    pub fn meet_sharer(&mut self, peer: NodeId) {
        if self.is_confined {
            self.left_meeting = Some(peer);
            self.node.leave_for_later();
            return;
        }
        let Some(port) = &self.shared else {
            return;
        };
        let is_known = port.has_peer(peer) || port.meetings.values().any(|other| *other == peer);
        if is_known || peer == self.me {
            return;
        }
        let from = Endpoint::first_of(peer);
        // Whoever opens the memory sees to it that this does not take too long.
        let (now_ns, forever) = (now_ns(), u64::MAX);
        let asked = (self.node).ask_import(now_ns, PROCESS, from, &port.name, Rights::ALL, None, forever);
        let asked = asked.map_err(|error| self.import_error(error));
        if let Some(port) = &mut self.shared {
            match asked {
                Ok(request) => drop(port.meetings.insert(request, peer)),
                Err(error) => port.lose(peer, error),
            }
        }
    }

    /// Meets the peer that the page-fault handler has left.
    pub(crate) fn make_up_meeting(&mut self) {
        if let Some(peer) = self.left_meeting.take() {
            self.meet_sharer(peer);
        }
    }

    /// Ends a meeting if its import is complete: messages go to the peer from here on.
    pub(crate) fn end_meeting(&mut self, request: RequestId) {
        let meetings = self.shared.as_ref().map(|port| &port.meetings);
        let Some(&peer) = meetings.and_then(|all| all.get(&request)) else {
            return;
        };
        let Some(outcome) = self.take_import(request) else {
            return;
        };
        // What this computer found out of a peer that is gone is told by the shared memory.
        let is_gone = self.is_gone(peer);
        if let Some(port) = &mut self.shared {
            port.meetings.remove(&request);
            match outcome {
                Ok(local) => port.set_peer(peer, local),
                Err(_) if is_gone => {}
                Err(error) => port.lose(peer, error),
            }
        }
        let met = |memory: &mut SharedMemory| memory.handle_met(Endpoint::first_of(peer));
        let _ = self.node.call(PROCESS, SHARED_HANDLER, met);
    }

    /// Whether a peer has been met; `None`: not yet.
    ///
    /// # Errors
    /// The shared memory is at its end.
    pub fn has_met(&self, peer: NodeId) -> Option<Result<(), SharedError>> {
        match (self.check_shared(), &self.shared) {
            (Err(error), _) => Some(Err(error)),
            (Ok(()), Some(port)) if port.has_peer(peer) => Some(Ok(())),
            _ => None,
        }
    }

    /// Takes the shared memory away.
    pub(crate) fn close_shared(&mut self) -> (Option<Box<SharedPort>>, Option<Box<dyn Service>>) {
        if self.left_store.take().is_some() {
            self.node.handle_stored(PROCESS, false);
        }
        self.left_meeting = None;
        let meetings = self.shared.as_mut().map(|port| core::mem::take(&mut port.meetings));
        for (request, _) in meetings.unwrap_or_default() {
            self.abandon_import(request);
        }
        self.shared_before = self.shared_before + self.shared_counters();
        let memory = self.node.deregister(PROCESS, SHARED_HANDLER);
        (self.shared.take(), memory)
    }

    /// How a thread's operation ended, once; or why it never will.
    ///
    /// # Errors
    /// When the shared memory is broken and the outcome is not there.
    #[inline]
    pub(crate) fn take_outcome(&mut self, thread: u16) -> Option<Result<Outcome, SharedError>> {
        match self.call_shared(|memory| memory.take_outcome(thread)) {
            None => Some(Err(SharedError::NotOpen)),
            Some(None) => self.check_port().err().map(Err),
            Some(Some(Ok(outcome))) => Some(Ok(outcome)),
            // What this computer found out says more than what follows from it.
            Some(Some(Err(end))) => Some(self.check_port().and(Err(self.shared_error(end)))),
        }
    }

    /// Whether the shared memory is at its end.
    ///
    /// # Errors
    /// Why.
    #[inline]
    pub fn check_shared(&self) -> Result<(), SharedError> {
        let memory = self.shared_memory().ok_or(SharedError::NotOpen)?;
        self.check_port()?;
        match memory.end() {
            None => Ok(()),
            Some(end) => Err(self.shared_error(end)),
        }
    }

    #[inline]
    fn check_port(&self) -> Result<(), SharedError> {
        match self.shared.as_ref().and_then(|port| port.broken.as_ref()) {
            None => Ok(()),
            Some(broken) => Err(broken.clone().error()),
        }
    }

    #[cold]
    fn shared_error(&self, end: SharedEnd) -> SharedError {
        let gone = |node, breach: Option<Breach>| match breach {
            Some(breach) => SharedError::RankBroken { peer: node, breach },
            None => SharedError::RankGone(node),
        };
        match end {
            SharedEnd::Gone(node) => gone(node, self.breaches.of(node)),
            SharedEnd::Lost(node) if self.is_gone(node) => gone(node, self.breaches.of(node)),
            SharedEnd::Lost(node) => gone(node, Some(mapwire_node::Breach::Overfull.into())),
            SharedEnd::Peer(error) => SharedError::Peer(error),
            SharedEnd::Garbled(from) => SharedError::Garbled(from.node),
        }
    }

    /// Begins an operation of the program, if the shared memory is not at its end.
    #[inline]
    pub(crate) fn begin_shared<T>(
        &mut self,
        begin: impl FnOnce(&mut SharedMemory, &SharedPort) -> T,
    ) -> Result<T, SharedError> {
        let port = self.shared.as_deref().ok_or(SharedError::NotOpen)?;
        if let Some(broken) = &port.broken {
            return Err(broken.clone().error());
        }
        let begun = self
            .node
            .call(PROCESS, SHARED_HANDLER, |memory: &mut SharedMemory| match memory.end() {
                None => Ok(begin(memory, port)),
                Some(end) => Err(end),
            })
            .ok_or(SharedError::NotOpen)?;
        begun.map_err(|end| self.shared_error(end))
    }

    /// Sets the protection of the page at `address` to what it is.
    pub(crate) fn reopen(&mut self, address: usize) {
        let memory: Option<&SharedMemory> = self.node.service(PROCESS, SHARED_HANDLER);
        if let (Some(port), Some(memory)) = (&mut self.shared, memory) {
            port.reopen(address, memory.dsm());
        }
    }

    /// Stores a region at the offset `at` of a peer's memory. A grant never goes out without its data. What the NIC is to store may need pages pinned:
    /// the page-fault handler leaves it to other threads, and with it all that the shared memory asks for next.
    pub(crate) fn store_region(&mut self, handler: HandlerId, to: Endpoint, region: &Region, at: u64) {
        if handler != SHARED_HANDLER {
            self.store_of_service(handler, to, region, at);
            return;
        }
        let Some(port) = &mut self.shared else {
            self.node.handle_stored(PROCESS, false);
            return;
        };
        let stored = port.store(to.node, region, at);
        let source = match self.capture.is_some() {
            true => port.source_of(region.offset, region.bytes),
            false => None,
        };
        match stored {
            Ok(Stored::ByNic(..)) if self.is_confined => {
                self.left_store = Some((handler, to, *region, at));
                self.node.leave_for_later();
                return;
            }
            Ok(Stored::ByNic(import, address)) => self.store_by_nic(import, address),
            Ok(Stored::InPlace) => {
                self.stored_in_place.add(region.bytes);
                self.node.handle_stored(PROCESS, true);
            }
            Err(broken) => {
                port.broken.get_or_insert(broken);
                self.node.handle_stored(PROCESS, false);
            }
        }
        if let Some((address, bytes)) = source {
            self.trace(TraceOp::Send, TRACE_FLAG_DIRECT, address, bytes);
        }
    }

    /// Whether a minipage is under way into the memory of a peer on another host.
    pub(crate) fn is_storing(&self) -> bool {
        self.node.is_storing(PROCESS)
    }

    /// Has the NIC store what it was asked for.
    pub(crate) fn store_by_nic(&mut self, import: ImportId, address: u64) {
        let (node, pins) = (&mut self.node, &mut self.pins);
        if let Err(error) = node.store_by_import(PROCESS, pins, import, address) {
            // The service has been told that the store is lost.
            let error = self.pins.explain(error);
            self.log.push(Line::NotServed(error.to_string()));
        }
    }

    /// Carries out the store that the page-fault handler has left. Whether there was one.
    #[inline]
    pub(crate) fn make_up_store(&mut self) -> bool {
        let Some((handler, to, region, at)) = self.left_store.take() else {
            return false;
        };
        self.store_region(handler, to, &region, at);
        true
    }
}
