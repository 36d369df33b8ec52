//! Memory that a service of the program shares between ranks: where its regions lie here, and in each peer's memory.

use std::sync::{Arc, Mutex};

use mapwire_host::memory::SharedBuffer;
use mapwire_service::Region;
use mapwire_transport::fabric::Fabric;
use mapwire_wire::{Endpoint, HandlerId, ImportId, NodeId};

use crate::driver::{Driver, PROCESS};
use crate::mover::BufferBytes;
use crate::shared::Segment;

/// The memory of a service, and that of its peers.
#[derive(Debug)]
pub struct ServiceMemory {
    /// Offset 0 of a region is its first byte.
    own: Option<BufferBytes>,
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
    own: BufferBytes,
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
        if let Some(slot) = self.0.get_mut(usize::from(peer.0)) {
            *slot = Some(segment);
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
#[derive(Clone, Copy, Debug)]
enum Stored {
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
        Self { own: Some(BufferBytes::new(own)), peers, pairs: Vec::new(), retired: Vec::new() }
    }

    /// Memory of pairs alone: see [`Driver::set_pair_memory`].
    fn of_pairs() -> Self {
        Self { own: None, peers: Arc::new(PeerMemory::new(0)), pairs: Vec::new(), retired: Vec::new() }
    }

    /// Stores a region at the offset `at` of a peer's memory, where that is mapped. The message that follows it through the ring is
    /// published after it.
    fn store(&self, to: NodeId, region: &Region, at: u64) -> Stored {
        let (offset, bytes) = (region.offset as usize, region.bytes as usize);
        if let Some(pair) = self.pairs.iter().find(|pair| pair.peer == to) {
            return match pair.own.part(offset, bytes) {
                Some(source) => Stored::ByNic(pair.import, source.as_ptr().addr() as u64),
                None => Stored::Never,
            };
        }
        let own = self.own.as_ref();
        let Some(source) = own.and_then(|own| own.part(offset, bytes)) else {
            return Stored::Never;
        };
        match self.peers.of(to) {
            Some(Segment::Mapped(peer)) if peer.put(at as usize, source) => Stored::InPlace,
            Some(&Segment::Imported(import)) => Stored::ByNic(import, source.as_ptr().addr() as u64),
            _ => Stored::Never,
        }
    }
}

impl<F: Fabric> Driver<F> {
    /// Gives a service of the program its memory, which it keeps until it is [taken away](Self::deregister_service).
    pub fn set_service_memory(&mut self, handler: HandlerId, memory: ServiceMemory) {
        self.service_memories.retain(|(id, _)| *id != handler);
        self.service_memories.push((handler, memory));
    }

    /// Gives a service memory for one peer, or takes it away: what lies in it is stored into the peer's memory `import` by the NIC. Memory
    /// that is taken away is kept until the NIC is done with it.
    pub fn set_pair_memory(
        &mut self,
        handler: HandlerId,
        peer: NodeId,
        memory: Option<(Arc<Mutex<SharedBuffer>>, ImportId)>,
    ) {
        let is_storing = self.node.is_storing(PROCESS);
        let found = self.service_memories.iter().position(|(id, _)| *id == handler);
        let at = match found {
            Some(at) => at,
            None if memory.is_none() => return,
            None => {
                self.service_memories.push((handler, ServiceMemory::of_pairs()));
                self.service_memories.len() - 1
            }
        };
        let (_, of_service) = &mut self.service_memories[at];
        if !is_storing {
            of_service.retired.clear();
        }
        let old = of_service.pairs.iter().position(|pair| pair.peer == peer);
        if let Some(old) = old {
            let old = of_service.pairs.swap_remove(old);
            if is_storing {
                of_service.retired.push(old);
            }
        }
        if let Some((own, import)) = memory {
            let own = BufferBytes::new(own);
            of_service.pairs.push(Pair { peer, own, import });
        }
    }

    /// Whether the NIC may still read memory of services.
    #[must_use]
    pub fn is_storing_for_services(&self) -> bool {
        self.node.is_storing(PROCESS)
    }

    /// Stores a region of a program's service into a peer's memory. Without memory the service is told that the store is lost.
    pub(crate) fn store_of_service(&mut self, handler: HandlerId, to: Endpoint, region: &Region, at: u64) {
        let mut memories = self.service_memories.iter();
        let memory = memories.find(|(id, _)| *id == handler);
        let stored = memory.map_or(Stored::Never, |(_, memory)| memory.store(to.node, region, at));
        match stored {
            Stored::InPlace => self.node.handle_stored(PROCESS, true),
            Stored::Never => self.node.handle_stored(PROCESS, false),
            Stored::ByNic(import, address) => self.store_by_nic(import, address),
        }
    }
}
