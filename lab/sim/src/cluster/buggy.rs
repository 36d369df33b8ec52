//! Bugs of a node that are put in on purpose: what it must refuse is applied.

use mapwire_node::Told;
use mapwire_wire::{Endpoint, ExportId, NodeId, Refusal};

use super::{Cluster, Moved, Observer};
use crate::canary::Canary;
use crate::hardware::packets::Packet;

/// Early packets that are kept by a bug, at most.
const MOST_KEPT: usize = 64;

impl Cluster {
    /// What a node tells at once, as a bug of it has that.
    #[cold]
    pub(super) fn tell_badly(&self, told: &mut Vec<Told>) {
        let mut notified =
            told.iter().enumerate().filter(|(_, told)| matches!(told, Told::Notified { .. })).map(|(at, _)| at);
        let (Some(first), Some(second)) = (notified.next(), notified.next()) else { return };
        match self.canary {
            Some(Canary::LostSecond) => _ = told.remove(second),
            Some(Canary::SwappedNotifications) => told.swap(first, second),
            _ => {}
        }
    }

    /// A packet has been taken, and this was told of it: a bug of the node applies what must not be.
    #[cold]
    pub(super) fn apply_badly(
        &mut self,
        number: NodeId,
        packet: &Packet,
        told: &[Told],
        is_early: bool,
        observer: &mut impl Observer,
    ) {
        let is_refused = |told: &Told, why: Refusal| {
            let reason = mapwire_nic::Rejection::Refused(why);
            matches!(told, Told::Rejected { reason: found, .. } if *found == reason)
        };
        let is_stranger = |told: &Told| is_refused(told, Refusal::NotPermitted);
        let has_wrong_key = |told: &Told| is_refused(told, Refusal::WrongKey);
        let has_restarted = |told: &Told| matches!(told, Told::PeerRestarted { .. });
        match self.canary {
            Some(Canary::UnboundGrant) if told.iter().any(is_stranger) => {
                self.store_unchecked(number, packet, observer);
            }
            Some(Canary::AppliedRest) if told.iter().any(has_wrong_key) => {
                self.kept.push((number, packet.clone()));
            }
            Some(Canary::AppliedRest) => {
                let message = |packet: &Packet| packet.store_header().map(|header| header.message);
                let is_rest = |(at, first): &(NodeId, Packet)| {
                    (*at, first.from) == (number, packet.from) && message(first) == message(packet)
                };
                if self.kept.iter().any(is_rest) {
                    self.store_unchecked(number, packet, observer);
                }
            }
            Some(Canary::FormerEarly) if is_early && self.kept.len() < MOST_KEPT => {
                self.kept.push((number, packet.clone()));
            }
            Some(Canary::FormerEarly) if told.iter().any(has_restarted) => {
                for (at, packet) in core::mem::take(&mut self.kept) {
                    if (at, packet.from) == (number, packet.from) {
                        self.store_unchecked(number, &packet, observer)
                    } else {
                        self.kept.push((at, packet))
                    }
                }
            }
            _ => {}
        }
    }

    /// Stores what a packet carries where it says, whoever may.
    fn store_unchecked(&mut self, number: NodeId, packet: &Packet, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        let Some(header) = packet.store_header() else { return };
        let Some(export) = host.node.nic().exported(ExportId(header.export.get())) else { return };
        let process = export.process;
        let address = export.address.wrapping_add(header.offset.get());
        let moved = Moved {
            at: Endpoint { node: number, process },
            from: packet.from,
            address: Some(address),
            bytes: packet.body(),
            signal: None,
            update: None,
        };
        host.memory.write(process.0, address, packet.body());
        observer.moved(self.now_ns, moved);
    }
}
