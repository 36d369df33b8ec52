//! Carries packets to the peers and from them: rings, libfabric, and datagrams with their links; and rings the peers' bells. No packet goes
//! past this module.

mod attention;
mod datagrams;
mod gone;
mod links;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use mapwire_nic::Delivery;
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_transport::bells::Wake;
use mapwire_transport::fabric::{Doorbells, Fabric};
use mapwire_wire::NodeId;

pub(crate) use self::attention::ATTENTIVE_NAP;
use self::attention::{Attention, waiting_nap};
use self::links::{LeftDatagram, link_config, silence};
use crate::breach::Breach;
use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::peer_words::PeerWords;

/// Looks of a waiting thread that may follow a turn without another one.
pub(crate) const MOST_GLANCES: u32 = 15;

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Paths<F: Fabric> {
    me: NodeId,
    fabric: F,
    bells: Arc<F::Bells>,
    peers: PeerWords,
    /// The first breach of each peer that committed one.
    breaches: Vec<(NodeId, Breach)>,
    /// For how long a peer may be silent that is awaited.
    silence: Duration,
    /// Peers that were sent something and whose bell has not been rung since.
    to_ring: Vec<NodeId>,
    /// The last turn has seen the rings of all peers empty; it may end before, to turn to its program.
    rings_empty: bool,
    /// Looks that may be mere glances at the rings: the last turn has found nothing to do.
    glances: u32,
    left_datagram: LeftDatagram,
    attention: Attention,
}

impl<F: Fabric> Paths<F> {
    /// Over a fabric, and how that delivers packets.
    pub(crate) fn new(config: &DriverConfig, mut fabric: F, peers: PeerWords) -> Result<(Self, Delivery), DriverError> {
        let nodes = fabric.size();
        let (delivery, left_datagram) = match fabric.datagrams() {
            None => (Delivery::Lossless, LeftDatagram::default()),
            Some(net) => (Delivery::Lossy(link_config(net, config)?), LeftDatagram::new()),
        };
        let paths = Self {
            me: fabric.me(),
            bells: Arc::clone(fabric.bells()),
            fabric,
            peers,
            breaches: Vec::with_capacity(nodes),
            silence: silence(config.timeout),
            to_ring: Vec::with_capacity(nodes),
            rings_empty: false,
            glances: 0,
            left_datagram,
            attention: Attention::default(),
        };
        Ok((paths, delivery))
    }

    /// Tells the node how its peers are reached.
    pub(crate) fn introduce(&self, node: &mut Node<AnyDesign>) {
        for peer in self.all() {
            let way = self.fabric.abilities(peer);
            if !way.passes_memory {
                node.set_apart(peer);
            }
            if way.lossless {
                node.set_lossless(peer);
            }
        }
    }

    /// What the job does besides packets: its news, and descriptors that it passes.
    #[inline]
    pub(crate) fn fabric(&self) -> &F {
        &self.fabric
    }

    /// As [`fabric`](Self::fabric).
    #[inline]
    pub(crate) fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    #[inline]
    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    /// All nodes, this one included.
    pub(crate) fn all(&self) -> impl Iterator<Item = NodeId> + Clone + use<F> {
        (0..self.fabric.size()).map(|node| NodeId(node as u16))
    }

    /// All nodes but this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = NodeId> + use<F> {
        let me = self.me;
        self.all().filter(move |&peer| peer != me)
    }

    /// Whether a rank is on another host, and reached by datagrams.
    pub(crate) fn is_remote(&self, peer: NodeId) -> bool {
        !self.fabric.abilities(peer).lossless
    }

    /// Whether libfabric may reach the memory of a rank.
    pub(crate) fn has_remote_access(&self, peer: NodeId) -> bool {
        self.fabric.abilities(peer).remote_access
    }

    /// Whether anybody can map what this process exports.
    pub(crate) fn passes_memory(&self) -> bool {
        self.all().any(|peer| self.fabric.abilities(peer).passes_memory)
    }

    /// Whether any rank is reached by datagrams.
    #[inline]
    pub(crate) fn has_datagrams(&mut self) -> bool {
        self.fabric.datagrams().is_some()
    }

    /// Datagrams that came and were rejected, by cause; `None` where no rank is reached by any.
    pub(crate) fn rejections(&mut self) -> Option<mapwire_seal::Counters> {
        self.fabric.datagrams().map(|net| *net.counters())
    }

    /// Whether the last turn has seen the rings of all peers empty.
    #[inline]
    pub(crate) fn has_seen_all(&self) -> bool {
        self.rings_empty
    }

    /// Whether a thread that looks again and again may leave a turn out: the last one has found nothing, and nothing waits in the rings.
    #[inline]
    pub(crate) fn may_only_glance(&mut self) -> bool {
        let may = self.glances > 0 && !self.fabric.has_packet();
        self.glances = self.glances.saturating_sub(1);
        may
    }

    /// Notes whether a turn has found anything to do.
    #[inline]
    pub(crate) fn end_turn(&mut self, worked: bool) {
        // Datagrams come by a socket, which has no ring to glance at.
        self.glances = match worked || self.has_datagrams() {
            true => 0,
            false => MOST_GLANCES,
        };
    }

    /// Makes the bell of a peer due, where it has one that this process can ring.
    #[inline]
    fn owe_ring(&mut self, peer: NodeId) {
        if peer != self.me && !self.to_ring.contains(&peer) {
            match self.fabric.abilities(peer).rings {
                true => self.to_ring.push(peer),
                false => self.attention.note_far_talk(),
            }
        }
    }

    /// Rings the bells that are due.
    #[inline]
    pub(crate) fn ring_due(&mut self) {
        while let Some(node) = self.to_ring.pop() {
            self.bells.ring(node);
        }
    }

    /// As [`ring_due`](Self::ring_due), for a caller that has made a full fence since the packets left.
    #[inline]
    pub(crate) fn ring_due_fenced(&mut self) {
        while let Some(node) = self.to_ring.pop() {
            self.bells.hint(node);
        }
    }

    /// Wakes the service thread of this process.
    pub(crate) fn wake_service(&self) {
        self.bells.wake(self.me, Wake::Service);
    }

    /// How long a thread that waits sleeps at most, where some peers ring nobody.
    pub(crate) fn far_nap(&self) -> Option<Duration> {
        self.fabric.unrung().map(waiting_nap)
    }

    pub(crate) fn begin_service_nap(&mut self, nap: Duration, is_awaited: bool) -> Duration {
        self.attention.begin_service_nap(nap, self.fabric.unrung(), is_awaited)
    }

    /// Whether something must be done long before the service thread looks again.
    #[inline]
    pub(crate) fn needs_attention(&self, node: &Node<AnyDesign>) -> bool {
        node.nic().poll_at().is_some_and(|due_ns| self.attention.is_late(due_ns))
    }

    /// Lets the service thread see to what a thread leaves behind that goes on with its own work.
    pub(crate) fn ask_for_attention(&mut self, node: &Node<AnyDesign>) {
        if (self.is_blocked(node) || self.needs_attention(node)) && !self.to_ring.contains(&self.me) {
            self.to_ring.push(self.me);
        }
    }

    /// Whether a peer has left or died.
    #[inline]
    pub(crate) fn is_gone(&self, peer: NodeId) -> bool {
        self.peers.is_gone(peer)
    }

    /// Why a peer counts as gone that this process found at fault.
    #[inline]
    pub(crate) fn breach_of(&self, peer: NodeId) -> Option<Breach> {
        self.breaches.iter().find(|(of, _)| *of == peer).map(|(_, breach)| *breach)
    }
}
