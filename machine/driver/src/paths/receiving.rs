//! What comes in: packets of the peers, and what is told of them.

use mapwire_nic::{BufferId, Verdict};
use mapwire_node::{Node, Payload};
use mapwire_translation::AnyDesign;
use mapwire_transport::fabric::Fabric;
use mapwire_transport::transport::ReceiveError;
use mapwire_wire::{NodeId, TRACE_FLAG_DIRECT, TraceOp};

use super::Paths;
use crate::ids::SHARED_HANDLER;
use crate::memories::Memories;
use crate::mover::Taken;
use crate::outcomes::Outcomes;
use crate::shared;

/// Packets taken in one turn, so that a busy peer does not keep a thread from its own work.
const RECEIVE_BUDGET: usize = 64;

impl<F: Fabric> Paths<F> {
    /// Takes what has come. Whether there was anything.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        node: &mut Node<AnyDesign>,
        memories: &mut Memories,
        outcomes: &mut Outcomes,
    ) -> bool {
        let received = self.receive_packets(node, memories, outcomes);
        received | (self.has_datagrams() && self.receive_datagrams(node, memories, outcomes))
    }

    #[inline]
    pub(super) fn receive_packets(
        &mut self,
        node: &mut Node<AnyDesign>,
        memories: &mut Memories,
        outcomes: &mut Outcomes,
    ) -> bool {
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
                    node.leave_for_later();
                    match end {
                        ReceiveError::PeerGone(peer) => self.handle_gone(node, memories, peer),
                        ReceiveError::PeerCorrupt { peer, corrupt } => {
                            self.handle_breach(node, memories, outcomes, (peer, corrupt.into()));
                        }
                    }
                    received = true;
                    continue;
                }
            };
            let from = packet.from;
            let payload = Taken::from(packet.payload);
            if node.is_confined() && (!node.may_take(packet.header) || outcomes.is_full()) {
                node.leave_for_later();
                break;
            }
            let verdict = node.handle_packet(from, packet.header, &payload, BufferId(0));
            if verdict == Verdict::Wait {
                // It stays at the head of its ring: the next turn finds it there, when the host has acted.
                if node.is_confined() {
                    node.leave_for_later();
                    return received;
                }
                memories.serve_misses(node, outcomes);
                return true;
            }
            received = true;
            memories.deliver(node, outcomes, &payload);
            if outcomes.is_traced()
                && let Some((offset, bytes)) = shared::stored_before(packet.header, payload.private())
                && let Some(stored) = memories.traced(SHARED_HANDLER, offset, bytes)
            {
                outcomes.trace(node, TraceOp::Receive, TRACE_FLAG_DIRECT, stored);
            }
            self.fabric.release(from);
            if !self.fabric.abilities(from).rings {
                self.attention.note_far_talk();
            }
            if node.end_packet(from) {
                self.tell(node, memories, outcomes);
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
        self.look(peer);
        self.has_next(peer) || node.has_left()
    }

    /// Whether another packet of a peer waits.
    #[inline]
    pub(crate) fn has_next(&mut self, peer: NodeId) -> bool {
        self.fabric.has_next(peer)
    }
}
