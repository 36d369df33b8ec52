//! Links to the peers over a transport that may lose packets, made on first use, with their timers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_wire::link::LINK_HEADER_BYTES;
use mapwire_wire::{HEADER_BYTES, Header, NodeId};

use crate::link::{Link, LinkConfig, LinkEvent, MOST_EVENTS};

/// Header and payload of an early packet.
pub(crate) type Early = Box<[u8]>;

#[derive(Debug)]
struct Peer {
    link: Link<Early>,
    /// Time for which its timer is set.
    armed_ns: Option<u64>,
    /// Bytes of its early packets.
    early_bytes: usize,
    /// Whether it has dropped a packet that waits for the host.
    dropped: bool,
}

#[derive(Debug)]
pub(crate) struct Lossy {
    config: LinkConfig,
    peers: Vec<Option<Box<Peer>>>,
    /// When links have something to do. A timer whose deadline has moved later fires early once; that is harmless. The next one
    /// last. Each link has one at most, and room for it from the start.
    timers: Vec<(u64, NodeId)>,
    made: usize,
    early_bytes: usize,
    /// Links that have dropped a packet, and have not asked for it again.
    dropped: Vec<NodeId>,
    events: VecDeque<(NodeId, LinkEvent)>,
}

impl Lossy {
    pub(crate) fn new(config: LinkConfig, nodes: usize) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(nodes, || None);
        Self {
            config,
            peers,
            timers: Vec::new(),
            made: 0,
            early_bytes: 0,
            dropped: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Bytes of the datagram that carries a packet.
    pub(crate) const fn datagram_bytes(header: &Header) -> u32 {
        (LINK_HEADER_BYTES + HEADER_BYTES) as u32 + header.payload_bytes()
    }

    /// The link to `node`, which must exist, and what waits for it.
    fn peer_mut(&mut self, node: NodeId) -> &mut Peer {
        let config = self.config;
        let (made, timers) = (&mut self.made, &mut self.timers);
        self.peers[usize::from(node.0)].get_or_insert_with(|| {
            *made += 1;
            timers.reserve(made.saturating_sub(timers.len()));
            Box::new(Peer { link: Link::new(config), armed_ns: None, early_bytes: 0, dropped: false })
        })
    }

    /// Allocates all memory that a link to `node` needs as long as nothing is lost.
    pub(crate) fn reserve(&mut self, node: NodeId) {
        self.events.reserve(2 * MOST_EVENTS);
        self.link_mut(node).reserve();
    }

    /// The link to `node`, if there is one.
    pub(crate) fn link(&self, node: NodeId) -> Option<&Link<Early>> {
        let peer = self.peers.get(usize::from(node.0))?.as_ref()?;
        Some(&peer.link)
    }

    /// Whether the next timer that is due at `now_ns` ends its link, which frees memory.
    pub(crate) fn is_ending(&self, now_ns: u64) -> bool {
        let due = self.timers.last().filter(|timer| timer.0 <= now_ns);
        due.and_then(|timer| self.link(timer.1)).is_some_and(|link| link.is_ending(now_ns))
    }

    /// The link to `node`, which must exist.
    pub(crate) fn link_mut(&mut self, node: NodeId) -> &mut Link<Early> {
        &mut self.peer_mut(node).link
    }

    /// Whether an early packet of `bytes` may be kept for `node`; if so, counts its memory.
    pub(crate) fn may_keep(&mut self, node: NodeId, bytes: usize) -> bool {
        let together = self.early_bytes + bytes;
        let of_it = self.peer_mut(node).early_bytes + bytes;
        let fits = together + of_it <= self.config.max_early_bytes();
        if fits {
            self.early_bytes = together;
            self.peer_mut(node).early_bytes = of_it;
        }
        fits
    }

    /// The next packet of `node` in order, if it arrived early.
    pub(crate) fn take_early(&mut self, node: NodeId) -> Option<Early> {
        let peer = self.peers.get_mut(usize::from(node.0))?.as_mut()?;
        let packet = peer.link.poll_kept()?;
        peer.early_bytes -= packet.len();
        self.early_bytes -= packet.len();
        Some(packet)
    }

    /// The next event of the link to `node`. One that ends an incarnation has dropped its early packets.
    pub(crate) fn take_event(&mut self, node: NodeId) -> Option<LinkEvent> {
        let event = self.link_mut(node).poll_event()?;
        if matches!(event, LinkEvent::Restarted | LinkEvent::Dead) {
            self.forget_early(node);
        }
        self.events.push_back((node, event));
        Some(event)
    }

    fn forget_early(&mut self, node: NodeId) {
        let peer = self.peer_mut(node);
        let bytes = core::mem::take(&mut peer.early_bytes);
        peer.dropped = false;
        self.early_bytes -= bytes;
    }

    /// The next event for the host.
    pub(crate) fn poll_event(&mut self) -> Option<(NodeId, LinkEvent)> {
        self.events.pop_front()
    }

    /// Closes the link to a peer that is gone.
    pub(crate) fn close(&mut self, node: NodeId) {
        // Even one that was never used: otherwise the former incarnation could introduce itself.
        self.link_mut(node).close();
        self.forget_early(node);
    }

    /// Sets the timer of `node`, unless it is set for an earlier time.
    pub(crate) fn arm(&mut self, node: NodeId) {
        let peer = self.peer_mut(node);
        let Some(at_ns) = peer.link.poll_at() else {
            return;
        };
        if peer.armed_ns.is_some_and(|armed| armed <= at_ns) {
            return;
        }
        let before = peer.armed_ns.replace(at_ns);
        if let Some(before) = before {
            let set = (self.timers).binary_search_by(|timer| (before, node).cmp(timer));
            if let Ok(at) = set {
                self.timers.remove(at);
            }
        }
        let at = self.timers.partition_point(|timer| *timer > (at_ns, node));
        self.timers.insert(at, (at_ns, node));
    }

    /// Makes all acks that links owe due now, and passes the peers to `owed`. Returns whether there are any. A link that owes one
    /// has its timer set.
    pub(crate) fn hasten_acks(&mut self, mut owed: impl FnMut(NodeId)) -> bool {
        let mut any = false;
        for &(_, node) in &self.timers {
            let peer = self.peers.get_mut(usize::from(node.0));
            if let Some(Some(peer)) = peer
                && peer.link.hasten_ack()
            {
                owed(node);
                any = true;
            }
        }
        any
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.timers.last().map(|timer| timer.0)
    }

    /// The next link whose timer is due at `now_ns`, with its timers handled.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Option<NodeId> {
        let &(at_ns, node) = self.timers.last()?;
        if at_ns > now_ns {
            return None;
        }
        self.timers.pop();
        let peer = self.peer_mut(node);
        peer.armed_ns = None;
        peer.link.handle_time(now_ns);
        Some(node)
    }

    /// The due packet of `node` was dropped until the host has acted.
    pub(crate) fn note_dropped(&mut self, node: NodeId) {
        if !core::mem::replace(&mut self.peer_mut(node).dropped, true) {
            self.dropped.push(node);
        }
    }

    /// The host has acted: returns the next link that asks for what it dropped.
    pub(crate) fn ask_again(&mut self) -> Option<NodeId> {
        while let Some(node) = self.dropped.pop() {
            let peer = self.peer_mut(node);
            if core::mem::take(&mut peer.dropped) {
                peer.link.ask_again();
                return Some(node);
            }
        }
        None
    }

    /// Bytes of early packets of `node`.
    pub(crate) fn early_bytes_of(&self, node: NodeId) -> usize {
        let peer = self.peers.get(usize::from(node.0));
        peer.and_then(Option::as_ref).map_or(0, |peer| peer.early_bytes)
    }

    /// Bytes of early packets of all peers.
    pub(crate) fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Bytes of NIC memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let peers = self.peers.iter().flatten();
        let links: usize = peers.map(|peer| size_of::<Peer>() + peer.link.bytes()).sum();
        links
            + self.peers.capacity() * size_of::<Option<Box<Peer>>>()
            + self.timers.capacity() * size_of::<(u64, NodeId)>()
            + self.dropped.capacity() * size_of::<NodeId>()
            + self.events.capacity() * size_of::<(NodeId, LinkEvent)>()
            + self.early_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_never_send_what_is_due_leave_room_for_the_early_packets_of_others() {
        const BYTES: usize = 60_000;
        let mut lossy = Lossy::new(LinkConfig::new(1, 1 << 16), 5);
        for hostile in 0..4 {
            while lossy.may_keep(NodeId(hostile), BYTES) {}
        }
        assert!(lossy.early_bytes() <= lossy.config.max_early_bytes());
        assert!(lossy.may_keep(NodeId(4), BYTES));
    }
}
