//! A node over a transport that may lose, repeat, reorder and delay datagrams.

use mapwire_nic::link::LinkEvent;
use mapwire_nic::{BufferId, Datagram, Verdict};
use mapwire_translation::TranslationDesign;
use mapwire_wire::NodeId;

use super::Node;
use crate::told::Told;

impl<D: TranslationDesign> Node<D> {
    /// The next datagram to transmit: see [`mapwire_nic::Nic::poll_datagram`]. It takes the place of
    /// [`poll_transmit`](Self::poll_transmit).
    ///
    /// While the node is confined, what needs memory stays.
    pub fn poll_datagram(&mut self, now_ns: u64) -> Option<Datagram<'_>> {
        if self.confinement.is_on() && (self.trace.is_on() || !self.nic.has_link_room()) {
            if self.nic.has_datagrams() {
                self.confinement.leave();
            }
            return None;
        }
        self.nic.poll_datagram(now_ns)
    }

    /// Whether a confined node may take a datagram.
    #[must_use]
    pub fn may_take_datagram(&self, from: NodeId, datagram: &[u8]) -> bool {
        match self.nic.steady_datagram(from, datagram) {
            None => false,
            Some(packet) => packet.is_none_or(|header| self.may_take(header)),
        }
    }

    /// Takes a datagram from the address of `from`: see [`mapwire_nic::Nic::handle_datagram`]. Then drain as after
    /// [`handle_packet`](Self::handle_packet), and take what [`poll_early`](Self::poll_early) gives.
    pub fn handle_datagram(&mut self, now_ns: u64, from: NodeId, datagram: &[u8], buffer: BufferId) -> Verdict {
        let verdict = self.nic.handle_datagram(now_ns, from, datagram, buffer);
        self.take_link_events(now_ns);
        verdict
    }

    /// Passes on what links have come to know.
    pub(super) fn take_link_events(&mut self, now_ns: u64) {
        while let Some((node, event)) = self.nic.poll_link_event() {
            match event {
                LinkEvent::Up | LinkEvent::Restarted if self.peers.is_broken(node) => {
                    // It would break the rules again.
                    self.nic.handle_peer_gone(node);
                }
                LinkEvent::Up => {
                    if self.peers.note_back(node) {
                        self.told.push_back(Told::PeerRestarted { node });
                    }
                }
                LinkEvent::Restarted => {
                    if self.peers.note_gone(node) {
                        self.tell_gone(now_ns, node);
                        self.forget_peer(now_ns, node);
                    }
                    self.peers.note_back(node);
                    self.told.push_back(Told::PeerRestarted { node });
                }
                LinkEvent::PathChanged(path) => {
                    self.told.push_back(Told::PathChanged { node, path });
                }
                LinkEvent::Dead => {
                    self.told.push_back(Told::PeerSilent { node });
                    self.handle_peer_gone(now_ns, node);
                }
            }
        }
    }
}
