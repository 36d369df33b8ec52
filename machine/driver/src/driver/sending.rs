//! What goes out: commands to the NIC, packets from it to the peers, and the bells rung for them.

use mapwire_transport::fabric::{Doorbells, Fabric};
use mapwire_transport::transport::SendError;
use mapwire_wire::{CommandRepr, NodeId};

use super::{Driver, PROCESS};
use crate::engine::Place;
use crate::error::DriverError;
use crate::log::Line;
use crate::mover;

impl<F: Fabric> Driver<F> {
    /// Writes a command to the queue and serves it at once, unless others wait before it.
    ///
    /// # Errors
    /// A command that cannot be written.
    #[inline]
    pub fn submit(&mut self, command: &CommandRepr, data: &[u8]) -> Result<bool, DriverError> {
        let submitted = self.queue.submit_to(&mut self.node, PROCESS, command, data)?;
        self.transmit();
        self.transmit_datagrams();
        if self.node.has_misses() {
            self.handle_misses();
        }
        if submitted {
            // The caller goes on with its own work, and may not come back.
            self.ask_for_attention();
        }
        self.ring_due();
        if self.tell() {
            // Requests of other threads may have ended.
            self.fire_events();
        }
        if self.capture.is_some() {
            self.take_traced();
        }
        Ok(submitted)
    }

    /// Writes a command to the queue, for the driver's own thread to serve.
    pub(crate) fn enqueue(&mut self, command: &CommandRepr, data: &[u8]) -> Result<bool, DriverError> {
        Ok(self.queue.submit(command, data)?)
    }

    /// Sends all that can be sent. The bells of the peers that it went to are due: [`ring_due`](Self::ring_due).
    #[inline]
    pub(crate) fn transmit(&mut self) -> bool {
        self.node.retry_blocked();
        let mut sent = false;
        while let Some(packet) = self.node.poll_transmit() {
            let to = packet.to;
            match mover::transmit(&self.pins, &self.garbage, &mut self.fabric, packet) {
                Ok(()) => {
                    self.node.handle_transmitted(to);
                    sent = true;
                    self.owe_ring(to);
                }
                Err(SendError::WouldBlock(_)) if self.is_confined && self.fabric.is_far(to) => {
                    self.node.leave_for_later();
                    self.block(to);
                }
                Err(SendError::WouldBlock(_)) => self.block(to),
                Err(SendError::NotConnected(_)) if self.is_confined => {
                    self.node.leave_for_later();
                    self.block(to);
                }
                Err(SendError::NotConnected(_)) => {
                    if let Err(error) = self.fabric.request_connection(to) {
                        self.log.push(Line::NotConnected { to, error });
                    }
                    self.block(to);
                }
                Err(error) => {
                    match error {
                        SendError::PeerCorrupt { corrupt, .. } => {
                            self.handle_breach(to, corrupt.into());
                        }
                        _ => self.handle_peer_gone(to),
                    }
                    if self.is_confined {
                        // The NIC has not been told, and would offer the packet for ever.
                        self.block(to);
                    }
                }
            }
        }
        sent
    }

    /// Makes the bell of a peer due, where it has one that this process can ring.
    #[inline]
    fn owe_ring(&mut self, peer: NodeId) {
        if self.fabric.is_far(peer) {
            self.note_far_talk();
        } else if peer != self.me && !self.to_ring.contains(&peer) {
            self.to_ring.push(peer);
        }
    }

    /// Rings the bells that are due.
    #[inline]
    pub(crate) fn ring_due(&mut self) {
        while let Some(node) = self.to_ring.pop() {
            self.bells.ring(node);
        }
    }

    #[cold]
    fn block(&mut self, node: NodeId) {
        self.node.handle_transmit_blocked(node);
        // Whoever is asleep with a full queue must be woken to empty it.
        self.owe_ring(node);
    }

    /// As [`ring_due`](Self::ring_due), for a caller that has made a full fence since the packets left.
    #[inline]
    pub(crate) fn ring_due_fenced(&mut self) {
        while let Some(node) = self.to_ring.pop() {
            self.bells.hint(node);
        }
    }

    /// Whether all that was sent towards a peer has been delivered there.
    pub(crate) fn settled(&mut self, node: NodeId) -> bool {
        !self.queue.has_commands() && self.node.idle_towards(node) && !matches!(self.fabric.drained(node), Ok(false))
    }

    /// Whether nothing waits that is to go to a peer that lives.
    pub(crate) fn has_sent_all(&mut self) -> bool {
        !self.queue.has_commands() && self.others().all(|peer| self.is_gone(peer) || self.has_given(peer))
    }

    /// Whether nothing waits that is to go to a peer, here or in a library that might drop it with this process.
    pub(super) fn has_given(&mut self, peer: NodeId) -> bool {
        self.node.idle_towards(peer) && !self.library_holds(peer)
    }

    fn library_holds(&mut self, peer: NodeId) -> bool {
        self.fabric.is_far(peer) && matches!(self.fabric.drained(peer), Ok(false))
    }

    /// The ranks that stores have not reached, without the program's knowing. Once all was `sent`, no library holds any.
    pub(crate) fn owed(&mut self, sent: bool) -> Vec<NodeId> {
        let others = self.others();
        let owes =
            |&peer: &NodeId| self.node.owes_stores(peer) || !sent && !self.is_gone(peer) && self.library_holds(peer);
        others.filter(owes).collect()
    }

    fn others(&self) -> impl Iterator<Item = NodeId> + use<F> {
        let me = self.me;
        let peers = (0..self.node.nic().nodes()).map(|node| NodeId(node as u16));
        peers.filter(move |&peer| peer != me)
    }

    /// Whether packets wait for room at a peer: a sleeper must look again soon, since nobody is sure to ring. That a connection is there is
    /// news, which rings.
    pub(crate) fn is_blocked(&self) -> bool {
        let mut blocked = self.node.blocked().iter();
        blocked.any(|peer| self.fabric.is_far(*peer) || self.fabric.peers().contains(peer))
    }

    /// Lets peers know how much of their rings is free.
    pub(crate) fn flush(&mut self, place: Place) {
        self.at(place, |driver| driver.fabric.flush());
        if place == Place::Program {
            self.flush_trace();
        }
    }
}
