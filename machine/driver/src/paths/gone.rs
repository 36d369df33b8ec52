//! Peers that are gone, and this rank's own leave.

use mapwire_host::waiting::now_ns;
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_transport::fabric::Fabric;
use mapwire_wire::NodeId;

use super::Paths;
use crate::breach::Breach;
use crate::local::Local;
use crate::log::Line;
use crate::memories::Memories;
use crate::outcomes::{Gone, Outcomes};

impl<F: Fabric> Paths<F> {
    /// Tells what does not come with a packet. Whether there was anything.
    #[inline]
    pub(crate) fn tell(&mut self, local: &mut Local) -> bool {
        local.node.has_told() && self.tell_all(local)
    }

    fn tell_all(&mut self, local: &mut Local) -> bool {
        let told = local.outcomes.tell_all(&mut local.node);
        let mut has_gone = false;
        while let Some((peer, why)) = local.outcomes.take_gone() {
            has_gone = true;
            let breach = match why {
                Gone::Left => {
                    self.handle_gone(local, peer);
                    continue;
                }
                Gone::Broken(breach) => breach.into(),
                Gone::Silent => {
                    let at = self.fabric.datagrams().and_then(|net| net.address_of(peer));
                    Breach::Silent { at, after: self.silence }
                }
            };
            self.handle_breach(local, (peer, breach));
        }
        told | has_gone
    }

    /// A peer broke the rules: it counts as gone.
    #[cold]
    pub(crate) fn handle_breach(&mut self, local: &mut Local, (peer, breach): (NodeId, Breach)) {
        local.outcomes.log(Line::PeerBroken { node: peer, breach });
        if peer != self.me {
            self.note_unreachable(peer, breach);
            self.handle_gone(local, peer);
        }
    }

    /// A peer cannot be reached, and counts as gone.
    pub(crate) fn note_unreachable(&mut self, peer: NodeId, breach: Breach) {
        if self.breach_of(peer).is_none() {
            self.breaches.push((peer, breach));
        }
    }

    /// A peer is gone, and so is what it had sent.
    pub(crate) fn handle_gone(&mut self, local: &mut Local, peer: NodeId) {
        if peer == self.me || self.is_gone(peer) {
            return;
        }
        self.peers.set_gone(peer);
        self.fabric.disconnect(peer);
        local.node.handle_peer_gone(now_ns(), peer);
        if !local.node.is_confined() {
            self.forget_gone(&mut local.memories);
        }
    }

    /// Closes what peers have passed that are gone.
    pub(crate) fn forget_gone(&self, memories: &mut Memories) {
        memories.drop_passed_of(|peer| self.is_gone(peer));
    }

    /// A rank has left or died. What it sent before may still be in its ring: that is received first.
    pub(crate) fn handle_lost(&mut self, local: &mut Local, peer: NodeId) {
        if self.is_gone(peer) {
            return;
        }
        // Other peers are served in turn, and may send without end: its own ring holds so many packets and no more.
        let most = self.fabric.most_waiting() * (self.fabric.peers().len() + 1);
        if !self.fabric.abilities(peer).rings {
            // What has come through the library has not been seen yet.
            self.receive_packets(local);
        }
        for _ in 0..most {
            if !self.fabric.has_next(peer) || !self.receive_packets(local) {
                break;
            }
        }
        self.handle_gone(local, peer);
    }

    /// Peers that live and that packets have gone to, or come from.
    pub(crate) fn acquaintances(&mut self) -> Vec<NodeId> {
        let mut peers = self.fabric.acquaintances();
        peers.retain(|&peer| peer != self.me && !self.is_gone(peer));
        peers
    }

    /// Whether all peers on other hosts that live have heard that this rank leaves.
    pub(crate) fn has_said_farewell(&mut self, node: &Node<AnyDesign>) -> bool {
        let mut peers = self.acquaintances().into_iter();
        peers.all(|peer| {
            let way = self.fabric.abilities(peer);
            way.rings && way.lossless || self.has_given(node, peer)
        })
    }

    /// Closes the channels, and tells the launcher that this rank has left.
    pub(crate) fn leave(&mut self, outcomes: &mut Outcomes) {
        for peer in self.acquaintances() {
            self.fabric.disconnect(peer);
        }
        if let Err(error) = self.fabric.leave() {
            outcomes.log(Line::LauncherGone(error));
        }
    }
}
