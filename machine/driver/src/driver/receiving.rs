//! What comes in: packets of the peers, and what is told of them.

use mapwire_nic::{BufferId, Verdict};
use mapwire_node::{NoPayload, Payload};
use mapwire_transport::fabric::Fabric;
use mapwire_transport::payload::Received;
use mapwire_transport::transport::ReceiveError;
use mapwire_wire::{TRACE_FLAG_DIRECT, TraceOp};

use super::{Driver, now_ns};
use crate::mover;

/// Packets taken in one turn, so that a busy peer does not keep a thread from its own work.
const RECEIVE_BUDGET: usize = 64;

/// A payload of the transport, for the node.
pub(super) struct Taken<'a>(pub(super) Received<'a>);

impl Payload for Taken<'_> {
    #[inline(always)]
    fn len_bytes(&self) -> usize {
        self.0.len_bytes()
    }

    #[inline(always)]
    fn private(&self) -> &[u8] {
        match self.0 {
            Received::Inline(bytes) => bytes,
            Received::Bulk(_) => &[],
        }
    }

    #[inline]
    fn copy_to_slice(&self, offset: usize, into: &mut [u8]) {
        self.0.copy_to_slice(offset, into);
    }
}

impl<F: Fabric> Driver<F> {
    #[inline]
    pub(super) fn receive(&mut self) -> bool {
        let mut received = false;
        self.rings_empty = false;
        for _ in 0..RECEIVE_BUDGET {
            let packet = match self.fabric.poll_receive() {
                Ok(None) => {
                    self.rings_empty = true;
                    break;
                }
                Ok(Some(packet)) => packet,
                Err(ReceiveError::PeerGone(peer)) => {
                    self.node.leave_for_later();
                    self.handle_peer_gone(peer);
                    received = true;
                    continue;
                }
                Err(ReceiveError::PeerCorrupt { peer, corrupt }) => {
                    self.node.leave_for_later();
                    self.handle_breach(peer, corrupt.into());
                    received = true;
                    continue;
                }
            };
            let from = packet.from;
            let payload = Taken(packet.payload);
            if self.is_confined && (!self.node.may_take(packet.header) || self.teller.is_full()) {
                self.node.leave_for_later();
                break;
            }
            let received_before = core::mem::replace(&mut received, true);
            let verdict = self.node.handle_packet(from, packet.header, &payload, BufferId(0));
            if verdict == Verdict::Wait {
                // It stays at the head of its ring: the next turn finds it there, when the host has acted.
                if self.is_confined {
                    self.node.leave_for_later();
                    return received_before;
                }
                self.serve_misses();
                return true;
            }
            while let Some(dma) = self.node.poll_move() {
                let old = mover::deliver(&self.pins, &mut self.garbage, &dma, &payload.0);
                self.node.handle_moved(&dma, old);
            }
            let mut arrived = None;
            if self.capture.is_some()
                && let Some(port) = &self.shared
            {
                arrived = port.arrived(packet.header, payload.private());
            }
            while let Some(told) = self.node.poll_told(&payload, now_ns) {
                self.teller.tell(told, &self.exports, &mut self.log);
            }
            self.fabric.release(from);
            if self.fabric.is_far(from) {
                self.note_far_talk();
            }
            if let Some((address, bytes)) = arrived {
                self.trace(TraceOp::Receive, TRACE_FLAG_DIRECT, address, bytes);
            }
            if self.node.end_packet(from) {
                self.tell();
            } else if !self.fabric.has_next(from) {
                // What others have sent is for the next turn: the program may wait for what has come.
                break;
            }
        }
        received
    }

    /// Tells what does not come with a packet. Whether there was anything.
    #[inline]
    pub(crate) fn tell(&mut self) -> bool {
        self.node.has_told() && self.tell_all()
    }

    fn tell_all(&mut self) -> bool {
        let mut told = false;
        while let Some(next) = self.node.poll_told(&NoPayload, now_ns) {
            self.teller.tell(next, &self.exports, &mut self.log);
            told = true;
        }
        told | self.take_gone()
    }
}
