//! Memory that a service shares between ranks: where its regions lie here, and in each peer's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mapwire_host::faults::{Access, PageProtection, ProtectionError};
use mapwire_host::memory::changes::{changes, merge};
use mapwire_host::memory::{MappedBuffer, SharedBuffer};
use mapwire_host::views::MultiView;
use mapwire_translation::PAGE_BYTES;
use mapwire_vmmc::service::{Change, Region};
use mapwire_vmmc::{Grant, RequestId};
use mapwire_wire::{ExportId, ImportId, NodeId};

use crate::error::DriverError;
use crate::imports::LocalImport;
use crate::mover::OwnBytes;
use crate::views::ViewPages;

/// The memory of a service, and that of its peers.
#[derive(Debug)]
pub struct ServiceMemory {
    /// Offset 0 of a region is its first byte.
    own: Option<OwnBytes>,
    /// The pages of it that the program sees, where the service protects them.
    pages: Option<ViewPages>,
    peers: Arc<PeerMemory>,
    /// The name under which each rank exports it, where peers are [met](mapwire_vmmc::service::Service::poll_meeting) one by one.
    name: String,
    /// Imports of peers' memory that are under way.
    meetings: BTreeMap<RequestId, NodeId>,
    fault: Option<MemoryFault>,
    /// Memory for one peer alone each.
    pairs: Vec<Pair>,
    /// Such that are over, and that the NIC may still read.
    retired: Vec<Pair>,
}

/// Why the memory of a service is of no more use.
#[derive(Clone, Debug)]
pub enum MemoryFault {
    /// A peer has taken its memory back.
    Closed(NodeId),
    /// A peer asked for a store before its memory was known.
    Unmet(NodeId),
    /// The memory of a peer cannot be imported.
    Unreachable(NodeId, Arc<DriverError>),
    /// Pages cannot be protected as the service wants.
    Protection(ProtectionError),
    /// The service named bytes that are not there.
    Outside,
}

/// Memory of a service that is stored into a peer's at the same places.
#[derive(Debug)]
struct Pair {
    peer: NodeId,
    own: OwnBytes,
    import: ImportId,
}

/// The memory that the peers of a service share with it, by rank.
#[derive(Debug)]
pub struct PeerMemory(Vec<Option<LocalImport>>);

impl PeerMemory {
    /// That of a job of `ranks`. None is known yet.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self((0..ranks).map(|_| None).collect())
    }

    /// Says where the memory of a peer is.
    pub fn set(&mut self, peer: NodeId, import: LocalImport) {
        if let Some(entry) = self.0.get_mut(usize::from(peer.0)) {
            *entry = Some(import);
        }
    }

    #[inline]
    fn of(&self, peer: NodeId) -> Option<&LocalImport> {
        self.0.get(usize::from(peer.0))?.as_ref()
    }

    /// The imports, to be released.
    pub fn imports(&self) -> impl Iterator<Item = (ImportId, Grant)> {
        self.0.iter().flatten().map(|import| (import.id, import.grant))
    }

    /// Copies bytes of a peer's memory from offset `at`, without a word to the peer, which may change them meanwhile. False where they
    /// are not mapped here.
    #[must_use]
    pub fn load(&self, from: NodeId, at: usize, to: &mut [u8]) -> bool {
        self.of(from).and_then(whole).is_some_and(|memory| memory.read(at, to).is_ok())
    }
}

/// The memory of an import, if it is mapped from its first byte on.
#[inline]
fn whole(import: &LocalImport) -> Option<&MappedBuffer> {
    import.mapped.as_ref().filter(|memory| memory.part().start == 0)
}

/// How a region gets into a peer's memory, or from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    InPlace,
    /// The NIC stores it: which import, and the address of the bytes here.
    ByNic(ImportId, u64),
    /// Never: there is no such memory, here or there.
    Never,
}

impl ServiceMemory {
    /// The memory `own` of this rank, and that of its peers.
    #[must_use]
    pub fn new(own: Arc<Mutex<SharedBuffer>>, peers: Arc<PeerMemory>) -> Self {
        Self::of(Some(OwnBytes::of_buffer(own)), None, peers)
    }

    /// The views of memory that `ranks` ranks share, whose pages the service protects. All export theirs under `name`.
    #[must_use]
    pub fn of_views(ranks: u16, name: String, views: Arc<MultiView>, protection: PageProtection) -> Self {
        let own = OwnBytes::Views(Arc::clone(&views));
        let peers = Arc::new(PeerMemory::new(ranks.into()));
        Self { name, ..Self::of(Some(own), Some(ViewPages::new(views, protection)), peers) }
    }

    pub(crate) fn of_pairs() -> Self {
        Self::of(None, None, Arc::new(PeerMemory::new(0)))
    }

    fn of(own: Option<OwnBytes>, pages: Option<ViewPages>, peers: Arc<PeerMemory>) -> Self {
        Self {
            own,
            pages,
            peers,
            name: String::new(),
            meetings: BTreeMap::new(),
            fault: None,
            pairs: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// The pages that the service protects, if it does.
    #[inline]
    pub(crate) fn pages(&mut self) -> Option<&mut ViewPages> {
        self.pages.as_mut()
    }

    /// Sets the protection of a page that the program sees to what it is.
    pub fn reopen(&mut self, view: u16, page: u64, access: Access) {
        if let Some(Err(error)) = self.pages.as_mut().map(|pages| pages.reopen(view, page, access)) {
            self.fail(MemoryFault::Protection(error));
        }
    }

    /// What went wrong with it first.
    #[inline]
    #[must_use]
    pub fn fault(&self) -> Option<&MemoryFault> {
        self.fault.as_ref()
    }

    pub(crate) fn fail(&mut self, fault: MemoryFault) {
        self.fault.get_or_insert(fault);
    }

    #[must_use]
    pub fn peers(&self) -> &PeerMemory {
        &self.peers
    }

    /// The name under which the memory of a peer is to be imported, unless that is done or under way.
    pub(crate) fn name_to_meet(&self, peer: NodeId) -> Option<&str> {
        let is_met = self.has_peer(peer) || self.meetings.values().any(|other| *other == peer);
        (!is_met && !self.name.is_empty()).then_some(&self.name)
    }

    /// The import of a peer's memory is under way, or cannot be.
    pub(crate) fn begin_meeting(&mut self, peer: NodeId, asked: Result<RequestId, DriverError>) {
        match asked {
            Ok(request) => {
                self.meetings.insert(request, peer);
            }
            Err(error) => self.fail(MemoryFault::Unreachable(peer, Arc::new(error))),
        }
    }

    /// Whose memory an import under way is of.
    pub(crate) fn meeting(&self, request: RequestId) -> Option<NodeId> {
        self.meetings.get(&request).copied()
    }

    /// The import of a peer's memory is over. `is_gone`: so is the peer, of which the service is told.
    pub(crate) fn end_meeting(
        &mut self,
        request: RequestId,
        peer: NodeId,
        outcome: Result<LocalImport, DriverError>,
        is_gone: bool,
    ) {
        self.meetings.remove(&request);
        match (outcome, Arc::get_mut(&mut self.peers)) {
            (Ok(import), Some(peers)) => peers.set(peer, import),
            (Err(error), _) if !is_gone => self.fail(MemoryFault::Unreachable(peer, Arc::new(error))),
            _ => {}
        }
    }

    /// Gives up the imports that are under way.
    pub(crate) fn take_meetings(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        core::mem::take(&mut self.meetings).into_keys()
    }

    /// A peer has taken an export back: its memory, perhaps.
    pub(crate) fn handle_revoked(&mut self, peer: NodeId, export: ExportId) {
        if self.peers.of(peer).is_some_and(|import| import.grant.export == export) {
            self.fail(MemoryFault::Closed(peer));
        }
    }

    /// Whether it is known where the memory of a peer is.
    #[must_use]
    pub fn has_peer(&self, peer: NodeId) -> bool {
        self.peers.of(peer).is_some()
    }

    /// Address and length of bytes that the program sees in views, for a trace.
    pub(crate) fn traced(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let views = self.pages.as_ref()?.views();
        let first = views.privileged(offset as usize, bytes as usize).ok()?;
        Some((first as u64, bytes))
    }

    /// Gives the service memory for one peer, or takes it away. What is taken away is kept while the NIC may read it (`is_storing`).
    pub(crate) fn set_pair(
        &mut self,
        peer: NodeId,
        memory: Option<(Arc<Mutex<SharedBuffer>>, ImportId)>,
        is_storing: bool,
    ) {
        if !is_storing {
            self.retired.clear();
        }
        if let Some(old) = self.pairs.iter().position(|pair| pair.peer == peer) {
            let old = self.pairs.swap_remove(old);
            self.retired.extend(is_storing.then_some(old));
        }
        let pair = memory.map(|(own, import)| Pair { peer, own: OwnBytes::of_buffer(own), import });
        self.pairs.extend(pair);
    }

    /// Stores the bytes of a page that differ from its copy at offset `copy` at their places in a peer's memory, as [`store`](Self::store)
    /// does. Which they are goes to `parts`: offset in the page and length.
    pub(crate) fn store_changes(&self, to: NodeId, region: &Region, copy: u64, parts: &mut Vec<(u64, u64)>) -> Stored {
        parts.clear();
        let Some((own, import)) = self.own.as_ref().zip(self.peers.of(to)) else { return Stored::Never };
        let (Some(page), Some(before)) = (own.page(region.offset), own.page(copy)) else { return Stored::Never };
        changes(&page, &before, |start, length| parts.push((start as u64, length as u64)));
        let Some(memory) = whole(import) else {
            let address = own.part(region.offset as usize, PAGE_BYTES).map(|page| page.as_ptr().addr() as u64);
            return address.map_or(Stored::Never, |address| Stored::ByNic(import.id, address));
        };
        let is_stored = parts.iter().all(|&(start, length)| {
            let (start, length) = (start as usize, length as usize);
            memory.put(region.offset as usize + start, &page[start..start + length])
        });
        if is_stored { Stored::InPlace } else { Stored::Never }
    }

    /// Fetches pages of a peer's memory to the offset `at` of this one.
    pub(crate) fn fetch(&self, from: NodeId, region: &Region, at: u64) -> Stored {
        let Some((own, import)) = self.own.as_ref().zip(self.peers.of(from)) else { return Stored::Never };
        let Some(memory) = whole(import) else {
            let place = own.part(at as usize, region.bytes as usize).map(|pages| pages.as_ptr().addr() as u64);
            return place.map_or(Stored::Never, |address| Stored::ByNic(import.id, address));
        };
        let mut page = [0; PAGE_BYTES];
        let is_fetched = (0..region.bytes).step_by(PAGE_BYTES).all(|done| {
            memory.read((region.offset + done) as usize, &mut page).is_ok() && own.set_page(at + done, &page)
        });
        if is_fetched { Stored::InPlace } else { Stored::Never }
    }

    /// Copies or merges pages of this rank's memory.
    pub(crate) fn change(&mut self, change: Change) {
        let done = self.own.as_ref().is_some_and(|own| match change {
            Change::Copy { from, to } => own.copy_page(from, to),
            Change::Merge { page: at, copy, fetched } => {
                let (Some(mut page), Some(before), Some(now)) = (own.page(at), own.page(copy), own.page(fetched))
                else {
                    return false;
                };
                merge(&mut page, &before, &now);
                own.set_page(at, &page) && own.set_page(copy, &now)
            }
        });
        if !done {
            self.fail(MemoryFault::Outside);
        }
    }

    /// Stores a region at the offset `at` of a peer's memory, where that is mapped: the message that follows it through the ring is
    /// published after it (x86 keeps stores in order; the ring's release store does so everywhere).
    #[inline]
    pub(crate) fn store(&self, to: NodeId, region: &Region, at: u64) -> Stored {
        let (offset, bytes) = (region.offset as usize, region.bytes as usize);
        let pair = self.pairs.iter().find(|pair| pair.peer == to);
        let own = pair.map(|pair| &pair.own).or(self.own.as_ref());
        let Some(source) = own.and_then(|own| own.part(offset, bytes)) else {
            return Stored::Never;
        };
        let address = source.as_ptr().addr() as u64;
        match (pair, self.peers.of(to)) {
            (Some(pair), _) => Stored::ByNic(pair.import, address),
            (None, Some(import)) => match whole(import) {
                None => Stored::ByNic(import.id, address),
                Some(memory) if memory.put(at as usize, source) => Stored::InPlace,
                Some(_) => Stored::Never,
            },
            (None, None) => Stored::Never,
        }
    }
}
