//! What comes in: packets of the peers, and what is told of them.

use mapwire_nic::{BufferId, Verdict};
use mapwire_node::{Node, Payload};
use mapwire_translation::AnyDesign;
use mapwire_transport::fabric::Fabric;
use mapwire_transport::transport::ReceiveError;
use mapwire_wire::NodeId;

use super::Paths;
use crate::local::Local;
use crate::mover::Taken;

/// Packets taken in one turn, so that a busy peer does not keep a thread from its own work.
const RECEIVE_BUDGET: usize = 64;

impl<F: Fabric> Paths<F> {
    /// Takes what has come. Whether there was anything.
    #[inline]
    pub(crate) fn receive(&mut self, local: &mut Local) -> bool {
        let received = self.receive_packets(local);
        received | (self.has_datagrams() && self.receive_datagrams(local))
    }

    #[inline]
    pub(super) fn receive_packets(&mut self, local: &mut Local) -> bool {
        let mut received = false;
        self.rings_empty = false;
        for _ in 0..RECEIVE_BUDGET {
            let packet = match self.fabric.poll_receive() {
                Ok(None) => {
                    self.rings_empty = true;
                    break;
                }
                Ok(Some(packet)) => packet,
                Err(end) => {
                    local.node.leave_for_later();
                    match end {
                        ReceiveError::PeerGone(peer) => self.handle_gone(local, peer),
                        ReceiveError::PeerCorrupt { peer, corrupt } => {
                            self.handle_breach(local, (peer, corrupt.into()));
                        }
                    }
                    received = true;
                    continue;
                }
            };
            let from = packet.from;
            let payload = Taken::from(packet.payload);
            if local.node.is_confined() && (!local.node.may_take(packet.header) || local.outcomes.is_full()) {
                local.node.leave_for_later();
                break;
            }
            let verdict = local.node.handle_packet(from, packet.header, &payload, BufferId(0));
            if verdict == Verdict::Wait {
                // It stays at the head of its ring: the next turn finds it there, when the host has acted.
                if local.node.is_confined() {
                    local.node.leave_for_later();
                    return received;
                }
                local.serve_misses();
                return true;
            }
            received = true;
            local.deliver(&payload);
            if local.outcomes.is_traced() {
                local.trace_stored(packet.header, payload.private());
            }
            self.fabric.release(from);
            if !self.fabric.abilities(from).rings {
                self.attention.note_far_talk();
            }
            if local.node.end_packet(from) {
                self.tell(local);
            } else if !self.fabric.has_next(from) {
                // What others have sent is for the next turn: the program may wait for what has come.
                break;
            }
        }
        received
    }

    /// Takes what `peer` has sent. Whether anything had come.
    #[inline]
    pub(crate) fn has_news_of(&mut self, node: &Node<AnyDesign>, peer: NodeId) -> bool {
        if !self.fabric.abilities(peer).rings && self.attention.begin_far_look() {
            self.fabric.look();
        }
        self.has_next(peer) || node.has_left()
    }

    /// Whether another packet of a peer waits.
    #[inline]
    pub(crate) fn has_next(&mut self, peer: NodeId) -> bool {
        self.fabric.has_next(peer)
    }
}
