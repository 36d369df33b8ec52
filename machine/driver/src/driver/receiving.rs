//! What comes in: packets of the peers, and the completions that follow from them and from commands.

use mapwire_nic::{BufferId, Completion, Rejection, Verdict};
use mapwire_translation::{Pinning, TranslationDesign};
use mapwire_transport::payload::Received;
use mapwire_transport::transport::{ReceiveError, Transport};
use mapwire_wire::{
    HandlerId, MAX_CONTROL_BYTES, Repr, SIGNAL_TRAILER_BYTES, TRACE_FLAG_DIRECT, TraceOp,
};

use super::peers::is_gone;
use super::{Driver, NOTICE_HANDLER, PROCESS, SHARED_HANDLER};
use crate::breach::Breach;
use crate::mover;

/// Packets taken in one turn, so that a busy peer does not keep a thread from its own work.
const RECEIVE_BUDGET: usize = 64;

impl Driver {
    #[inline]
    pub(super) fn receive(&mut self) -> bool {
        let mut received = false;
        self.rings_empty = false;
        for _ in 0..RECEIVE_BUDGET {
            let packet = match self.transport.poll_receive() {
                Ok(None) => {
                    self.rings_empty = true;
                    break;
                }
                Ok(Some(packet)) => packet,
                Err(ReceiveError::PeerGone(peer)) => {
                    self.deferred.leave();
                    self.handle_peer_gone(peer);
                    received = true;
                    continue;
                }
                Err(ReceiveError::PeerCorrupt { peer, corrupt }) => {
                    self.deferred.leave();
                    self.handle_breach(peer, corrupt.into());
                    received = true;
                    continue;
                }
            };
            let from = packet.from;
            let payload = packet.payload;
            let inline = match payload {
                Received::Inline(bytes) => bytes,
                Received::Bulk(_) => &[],
            };
            if self.deferred.active {
                // Traces, notifications and misses may make what keeps them grow.
                let only_shared = self.capture.is_some()
                    || self.teller.is_full()
                    || self.nic.translation().pinning_receive() == Pinning::OnMiss;
                let takes = if only_shared {
                    let parsed = Repr::parse(packet.header, inline);
                    matches!(
                        parsed,
                        Ok(Repr::Handler {
                            handler: SHARED_HANDLER,
                            ..
                        })
                    )
                } else {
                    self.deferred.takes(packet.header)
                };
                if !takes {
                    self.deferred.leave();
                    break;
                }
            }
            let received_before = core::mem::replace(&mut received, true);
            if self.breaches.of(from).is_some() {
                self.transport.release(from);
                continue;
            }
            let mut breach = None;
            let mut arrived = None;
            let trailer = || {
                let mut bytes = [0; SIGNAL_TRAILER_BYTES];
                if let Some(offset) = payload.len_bytes().checked_sub(SIGNAL_TRAILER_BYTES) {
                    payload.copy_to_slice(offset, &mut bytes);
                }
                bytes
            };
            let verdict = self
                .nic
                .handle_packet(from, packet.header, inline, trailer, BufferId(0));
            if verdict == Verdict::Wait {
                // It stays at the head of its ring: the next turn finds it there, when the host has acted.
                if self.deferred.active {
                    self.deferred.leave();
                    return received_before;
                }
                self.serve_misses();
                return true;
            }
            while let Some(dma) = self.nic.poll_dma() {
                let old = mover::deliver(&self.pages, &mut self.garbage, &dma, &payload);
                self.nic.handle_dma_done(&dma, old);
            }
            while let Some(completion) = self.nic.poll_completion() {
                match completion {
                    // For a process that is not there.
                    Completion::Message { to, .. } if to != PROCESS => {}
                    Completion::Message {
                        handler: SHARED_HANDLER,
                        ..
                    } => {
                        if let Some(shared) = &mut self.shared {
                            if self.capture.is_some() {
                                arrived = arrived.or_else(|| shared.arrived(&payload));
                            }
                            shared.handle_packet(from, &payload);
                        }
                    }
                    Completion::Message {
                        handler: HandlerId::CONTROL,
                        ..
                    } => {
                        if payload.len_bytes() <= MAX_CONTROL_BYTES {
                            self.deferred.keep(from, &payload);
                        } else {
                            breach = breach.or(Some(Breach::Control));
                        }
                    }
                    Completion::Message { handler, .. } => {
                        if handler == NOTICE_HANDLER {
                            crate::exports::handle_direct_notice(
                                &self.exports,
                                &mut self.teller.notices,
                                &mut self.log,
                                from,
                                inline,
                            );
                        }
                    }
                    // What a peer sent before it left, and nobody waits for.
                    Completion::Rejected {
                        reason: Rejection::UnknownNode,
                        ..
                    } if is_gone(&self.peers, from) => {}
                    other => {
                        if let Completion::Rejected { reason, .. } = &other {
                            breach = breach.or(Breach::of(reason));
                        }
                        self.teller
                            .tell(other, &mut self.pages, &self.exports, &mut self.log);
                    }
                }
            }
            self.transport.release(from);
            if let Some((address, bytes)) = arrived {
                self.trace(TraceOp::Receive, TRACE_FLAG_DIRECT, address, bytes);
            }
            if !self.deferred.active {
                self.serve_deferred();
            }
            if let Some(breach) = breach {
                self.handle_breach(from, breach);
            } else if !self.transport.has_next(from) {
                // What others have sent is for the next turn: the program may wait for what has come.
                break;
            }
        }
        received
    }

    /// Tells the completions that do not come with a packet. Whether there were any.
    pub(crate) fn tell(&mut self) -> bool {
        let mut told = false;
        while let Some(completion) = self.nic.poll_completion() {
            self.teller
                .tell(completion, &mut self.pages, &self.exports, &mut self.log);
            told = true;
        }
        told
    }
}
