//! What a process knows of its shared memory besides the model, which is a service of its node: the views, and the import of each peer's
//! privileged view, into which minipages are stored in place (Millipage §2.1: no buffer between, and no thread suspended while data
//! arrives).

use std::collections::BTreeMap;
use std::sync::Arc;

use mapwire_dsm::{Access as Wanted, Dsm, Message, Protection as Granted};
use mapwire_host::faults::{FaultKind, PageProtection, ProtectionError};
use mapwire_host::views::MultiView;
use mapwire_vmmc::{Grant, RequestId};
use mapwire_wire::{ExportId, Header, ImportId, Kind, NodeId};

use crate::error::DriverError;
pub use crate::error::SharedError;
use crate::ids::SHARED_HANDLER;
use crate::imports::LocalImport;
use crate::service_memory::ServiceMemory;
pub use crate::threads::MAX_THREADS;

/// The shared memory of this process, as far as it is this computer's.
#[derive(Debug)]
pub struct SharedPort {
    views: Arc<MultiView>,
    /// While it is not open.
    memory: Option<ServiceMemory>,
    /// What each peer exports its privileged view as.
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
        Self {
            memory: Some(ServiceMemory::of_views(ranks, Arc::clone(&views), protection)),
            views,
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

    /// The name under which each rank exports its privileged view.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Takes the memory of the service, which is open from here on.
    pub(crate) fn take_memory(&mut self) -> Option<ServiceMemory> {
        self.memory.take()
    }

    pub(crate) fn put_memory(&mut self, memory: Option<ServiceMemory>) {
        self.memory = memory;
    }

    /// Whether the import of a peer's view is done or under way.
    pub(crate) fn knows(&self, peer: NodeId) -> bool {
        self.has_met(peer) || self.meetings.values().any(|other| *other == peer)
    }

    /// Whether the privileged view of a peer is imported.
    pub(crate) fn has_met(&self, peer: NodeId) -> bool {
        matches!(self.segments.get(usize::from(peer.0)), Some(Some(_)))
    }

    /// The import of a peer's view is under way.
    pub(crate) fn begin_meeting(&mut self, request: RequestId, peer: NodeId) {
        self.meetings.insert(request, peer);
    }

    /// Whose view an import under way is of.
    pub(crate) fn meeting(&self, request: RequestId) -> Option<NodeId> {
        self.meetings.get(&request).copied()
    }

    /// The privileged view of a peer is imported.
    pub(crate) fn end_meeting(&mut self, request: RequestId, local: Option<&LocalImport>) {
        let Some(peer) = self.meetings.remove(&request) else {
            return;
        };
        if let (Some(segment), Some(local)) = (self.segments.get_mut(usize::from(peer.0)), local) {
            *segment = Some(local.grant.export);
            self.imports.push((local.id, local.grant));
        }
    }

    /// Gives up the imports that are under way.
    pub(crate) fn take_meetings(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        core::mem::take(&mut self.meetings).into_keys()
    }

    /// The imports of peers' views, to be released.
    pub fn take_imports(&mut self) -> Vec<(ImportId, Grant)> {
        core::mem::take(&mut self.imports)
    }

    fn end(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    /// The view of a peer cannot be imported.
    pub(crate) fn lose(&mut self, peer: NodeId, error: DriverError) {
        self.end(Broken::Segment(peer, Arc::new(error)));
    }

    /// A peer has taken an export back: its segment, perhaps.
    pub(crate) fn handle_revoked(&mut self, peer: NodeId, export: ExportId) {
        if self.segments.get(usize::from(peer.0)) == Some(&Some(export)) {
            self.end(Broken::Closed(peer));
        }
    }

    /// Pages could not be protected as the model says.
    pub(crate) fn handle_unprotected(&mut self, error: ProtectionError) {
        self.end(Broken::Protection(error));
    }

    /// A minipage could not be stored into a peer's view. Ranks meet before any of them uses the memory, and know each other's views then;
    /// and the model names only minipages inside the segment, which every rank maps at the same length.
    pub(crate) fn handle_unstored(&mut self, peer: NodeId, has_view: bool) {
        self.end(if has_view { Broken::Model } else { Broken::NoView(peer) });
    }

    /// Whether this computer has found the shared memory at its end.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SharedError> {
        match &self.broken {
            None => Ok(()),
            Some(broken) => Err(broken.clone().error()),
        }
    }

    /// The view and the page that an address of the application lies in.
    pub(crate) fn locate(&self, address: usize) -> Option<(u16, u64)> {
        let (view, offset) = self.views.locate(address)?;
        // A layout has at most 512 views.
        let page = (offset / mapwire_translation::PAGE_BYTES) as u64;
        Some((view as u16, page))
    }
}

/// The bytes of the privileged view that the sender of a packet has stored before it: offset and length.
#[cold]
pub(crate) fn stored_before(header: &Header, message: &[u8]) -> Option<(u64, u64)> {
    let is_ours = header.kind == Kind::Handler as u8 && header.message.get() == SHARED_HANDLER.0;
    match is_ours.then(|| Message::parse(message)) {
        Some(Ok((Message::Grant { minipage, data: true, .. }, _))) => {
            Some((minipage.offset_bytes, minipage.length_bytes))
        }
        _ => None,
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
