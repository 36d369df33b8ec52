//! Memory that a service shares between ranks: where its regions lie here, and in each peer's memory.

use std::sync::{Arc, Mutex};

use mapwire_host::faults::PageProtection;
use mapwire_host::memory::SharedBuffer;
use mapwire_host::views::MultiView;
use mapwire_vmmc::service::Region;
use mapwire_wire::{ImportId, NodeId};

use crate::imports::Segment;
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
    /// Memory for one peer alone each.
    pairs: Vec<Pair>,
    /// Such that are over, and that the NIC may still read.
    retired: Vec<Pair>,
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
pub struct PeerMemory(Vec<Option<Segment>>);

impl PeerMemory {
    /// That of a job of `ranks`. None is known yet.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self((0..ranks).map(|_| None).collect())
    }

    /// Says where the memory of a peer is.
    pub fn set(&mut self, peer: NodeId, segment: Segment) {
        if let Some(entry) = self.0.get_mut(usize::from(peer.0)) {
            *entry = Some(segment);
        }
    }

    fn of(&self, peer: NodeId) -> Option<&Segment> {
        self.0.get(usize::from(peer.0))?.as_ref()
    }

    /// Copies bytes of a peer's memory from offset `at`, without a word to the peer, which may change them meanwhile. False where they
    /// are not mapped here.
    #[must_use]
    pub fn load(&self, from: NodeId, at: usize, to: &mut [u8]) -> bool {
        match self.of(from) {
            Some(Segment::Mapped(memory)) => memory.read(at, to).is_ok(),
            _ => false,
        }
    }
}

/// How a region gets into a peer's memory.
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

    /// The views of memory that `ranks` ranks share, whose pages the service protects.
    pub(crate) fn of_views(ranks: u16, views: Arc<MultiView>, protection: PageProtection) -> Self {
        let own = OwnBytes::Views(Arc::clone(&views));
        let peers = Arc::new(PeerMemory::new(ranks.into()));
        Self::of(Some(own), Some(ViewPages::new(views, protection)), peers)
    }

    pub(crate) fn of_pairs() -> Self {
        Self::of(None, None, Arc::new(PeerMemory::new(0)))
    }

    fn of(own: Option<OwnBytes>, pages: Option<ViewPages>, peers: Arc<PeerMemory>) -> Self {
        Self { own, pages, peers, pairs: Vec::new(), retired: Vec::new() }
    }

    /// The pages that the service protects, if it does.
    #[inline]
    pub(crate) fn pages(&mut self) -> Option<&mut ViewPages> {
        self.pages.as_mut()
    }

    /// Says where the memory of a peer is, if nobody else shares the list of peers.
    pub(crate) fn set_peer(&mut self, peer: NodeId, segment: Segment) {
        if let Some(peers) = Arc::get_mut(&mut self.peers) {
            peers.set(peer, segment);
        }
    }

    /// Whether it is known where the memory of a peer is.
    pub(crate) fn has_peer(&self, peer: NodeId) -> bool {
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

    /// Stores a region at the offset `at` of a peer's memory, where that is mapped: the message that follows it through the ring is
    /// published after it (x86 keeps stores in order; the ring's release store does so everywhere).
    #[inline]
    pub(crate) fn store(&self, to: NodeId, region: &Region, at: u64) -> Stored {
        let (offset, bytes) = (region.offset as usize, region.bytes as usize);
        let (own, import) = match self.pairs.iter().find(|pair| pair.peer == to) {
            Some(pair) => (Some(&pair.own), Some(pair.import)),
            None => (self.own.as_ref(), None),
        };
        let Some(source) = own.and_then(|own| own.part(offset, bytes)) else {
            return Stored::Never;
        };
        match (import, self.peers.of(to)) {
            (Some(import), _) | (None, Some(&Segment::Imported(import))) => {
                Stored::ByNic(import, source.as_ptr().addr() as u64)
            }
            (None, Some(Segment::Mapped(peer))) if peer.put(at as usize, source) => Stored::InPlace,
            _ => Stored::Never,
        }
    }
}
