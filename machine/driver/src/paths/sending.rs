//! What goes out: packets from the NIC to the peers.

use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_transport::fabric::Fabric;
use mapwire_transport::transport::SendError;
use mapwire_wire::NodeId;

use super::Paths;
use crate::local::Local;
use crate::log::Line;
use crate::outcomes::Outcomes;

impl<F: Fabric> Paths<F> {
    /// Sends all that can be sent. Whether there was anything. The bells of the peers that it went to are due:
    /// [`ring_due`](Self::ring_due).
    #[inline]
    pub(crate) fn transmit(&mut self, local: &mut Local) -> bool {
        local.node.retry_blocked();
        let mut sent = false;
        while let Some(packet) = local.node.poll_transmit() {
            let to = packet.to;
            match self.fabric.send(to, &packet.header, local.memories.frames().payload_of(packet)) {
                Ok(()) => {
                    local.node.handle_transmitted(to);
                    sent = true;
                    self.owe_ring(to);
                }
                Err(error) => self.handle_unsent(local, (to, error)),
            }
        }
        sent | (self.has_datagrams() && self.transmit_datagrams(local))
    }

    #[cold]
    fn handle_unsent(&mut self, local: &mut Local, (to, error): (NodeId, SendError)) {
        let is_confined = local.node.is_confined();
        match error {
            // The page-fault handler may not call the library that has no room.
            SendError::WouldBlock(_) if is_confined && !self.fabric.abilities(to).rings => local.node.leave_for_later(),
            SendError::WouldBlock(_) => {}
            SendError::NotConnected(_) if is_confined => local.node.leave_for_later(),
            SendError::NotConnected(_) => self.connect(&mut local.outcomes, to),
            error => {
                match error {
                    SendError::PeerCorrupt { corrupt, .. } => {
                        self.handle_breach(local, (to, corrupt.into()));
                    }
                    _ => self.handle_gone(local, to),
                }
                if !is_confined {
                    return;
                }
                // The NIC has not been told, and would offer the packet for ever.
            }
        }
        local.node.handle_transmit_blocked(to);
        // Whoever is asleep with a full queue must be woken to empty it.
        self.owe_ring(to);
    }

    /// Asks for a connection to a peer, once.
    #[cold]
    pub(super) fn connect(&mut self, outcomes: &mut Outcomes, to: NodeId) {
        if let Err(error) = self.fabric.request_connection(to) {
            outcomes.log(Line::NotConnected { to, error });
        }
    }

    /// Whether all that was sent towards a peer has been delivered there.
    pub(crate) fn has_delivered(&mut self, node: &Node<AnyDesign>, peer: NodeId) -> bool {
        node.idle_towards(peer) && !matches!(self.fabric.drained(peer), Ok(false))
    }

    /// Whether nothing waits that is to go to a peer, here or in a library that might drop it with this process.
    pub(crate) fn has_given(&mut self, node: &Node<AnyDesign>, peer: NodeId) -> bool {
        node.idle_towards(peer) && !self.library_holds(peer)
    }

    fn library_holds(&mut self, peer: NodeId) -> bool {
        !self.fabric.abilities(peer).rings && matches!(self.fabric.drained(peer), Ok(false))
    }

    /// The ranks that stores have not reached, without the program's knowing. Once all was `sent`, no library holds any.
    pub(crate) fn owed(&mut self, node: &Node<AnyDesign>, sent: bool) -> Vec<NodeId> {
        let others = self.others();
        let owes = |&peer: &NodeId| node.owes_stores(peer) || !sent && !self.is_gone(peer) && self.library_holds(peer);
        others.filter(owes).collect()
    }

    /// Whether packets wait for room at a peer: a sleeper must look again soon, since nobody is sure to ring. That a connection is there is
    /// news, which rings.
    pub(crate) fn is_blocked(&self, node: &Node<AnyDesign>) -> bool {
        let mut blocked = node.blocked().iter();
        blocked.any(|peer| !self.fabric.abilities(*peer).rings || self.fabric.peers().contains(peer))
    }
}
