//! Sending and taking datagrams over a transport that may lose, repeat, reorder and delay them.

use alloc::boxed::Box;

use mapwire_translation::TranslationDesign;
use mapwire_wire::link::{LinkAck, LinkHeader, LinkKind};
use mapwire_wire::{HEADER_BYTES, Header, INLINE_BYTES, NodeId, Packet};

use super::Nic;
use crate::actions::{BufferId, Rejection};
use crate::link::{Arrival, Body, LinkEvent, LinkStats, Received};
use crate::nic::receive::Verdict;
use crate::transmit::Transmit;

/// A datagram to transmit on path `header.path`: the header, then what the body says.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Destination.
    pub to: NodeId,
    pub header: LinkHeader,
    pub body: DatagramBody<'a>,
}

/// What follows the header of a datagram.
#[derive(Clone, Copy, Debug)]
pub enum DatagramBody<'a> {
    /// Nothing.
    None,
    Ack(&'a LinkAck),
    /// A packet: its header, then its payload.
    Packet(&'a Transmit),
}

impl<D: TranslationDesign> Nic<D> {
    /// Whether [`poll_datagram`](Self::poll_datagram) may have one.
    #[inline]
    #[must_use]
    pub fn has_datagrams(&self) -> bool {
        self.outbound.has_linked() || self.has_uncut()
    }

    /// The next datagram to transmit. It counts as sent: keep it until the transport takes it, or lose it. Its source is read
    /// before the next call, and may be read again by a later datagram until the peer has acked it.
    ///
    /// Always `None` over a lossless transport; see [`poll_transmit`](Self::poll_transmit).
    pub fn poll_datagram(&mut self, now_ns: u64) -> Option<Datagram<'_>> {
        let (to, datagram) = loop {
            match self.outbound.next_datagram(now_ns) {
                Some(next) => break next,
                None if self.outbound.lossy().is_some() && self.cut_next() => {}
                None => return None,
            }
        };
        let header = datagram.header;
        let body = match datagram.body {
            Body::None => DatagramBody::None,
            Body::Ack => DatagramBody::Ack(self.outbound.lossy()?.link(to)?.ack()),
            Body::Packet { sequence, again } => {
                let transmit = self.outbound.unacked(to, sequence)?;
                if again {
                    self.counters.packets_resent += 1;
                } else {
                    self.counters.packets_sent += 1;
                    self.counters.bytes_sent += u64::from(transmit.header.payload_bytes());
                }
                DatagramBody::Packet(transmit)
            }
        };
        Some(Datagram { to, header, body })
    }

    /// Whether [`poll_datagram`](Self::poll_datagram) returns its next without allocating, once room [was made](Self::make_room).
    #[must_use]
    pub fn has_link_room(&self) -> bool {
        self.outbound.has_link_room()
    }

    /// Whether [taking](Self::handle_datagram) the link part of a datagram neither allocates nor frees, once room [was
    /// made](Self::make_room); if so, the header of the packet in it.
    #[must_use]
    pub fn steady_datagram<'a>(&self, from: NodeId, datagram: &'a [u8]) -> Option<Option<&'a Header>> {
        let (header, rest) = LinkHeader::parse(datagram).ok()?;
        if !self.outbound.is_steady(from, &header) {
            return None;
        }
        match header.kind {
            LinkKind::Data => Some(Some(Packet::new_checked(rest).ok()?.header())),
            _ => Some(None),
        }
    }

    /// As [`handle_time`](Self::handle_time), unless that would end a link; then it does nothing and returns false.
    pub fn handle_time_steadily(&mut self, now_ns: u64) -> bool {
        while !self.outbound.lossy().is_some_and(|lossy| lossy.is_ending(now_ns)) {
            if !self.expire(now_ns) {
                return true;
            }
        }
        false
    }

    /// Handles the next timer of a link that is due, if one is.
    fn expire(&mut self, now_ns: u64) -> bool {
        let expired = self.outbound.lossy().and_then(|lossy| lossy.expire(now_ns));
        if let Some(node) = expired {
            self.handle_link_events(node);
            self.outbound.wake(node);
        }
        expired.is_some()
    }

    /// Takes a datagram from the address of `from`: anybody may have sent it. `buffer` names its packet in the moves that follow;
    /// keep it until [`poll_dma`](Self::poll_dma) and [`poll_completion`](Self::poll_completion) have been drained, then take
    /// what [`poll_early`](Self::poll_early) returns, and ask [`poll_link_event`](Self::poll_link_event).
    ///
    /// With [`Verdict::Wait`] its packet was not taken: serve [`poll_miss`](Self::poll_miss), then hand it in again. A design
    /// that drops what misses never returns it.
    pub fn handle_datagram(&mut self, now_ns: u64, from: NodeId, datagram: &[u8], buffer: BufferId) -> Verdict {
        let taken = self.try_datagram(now_ns, from, datagram, buffer);
        self.outbound.settle(now_ns, from);
        taken.unwrap_or_else(|| {
            self.counters.datagrams_ignored += 1;
            Verdict::Taken
        })
    }

    /// `None` if it had no effect.
    fn try_datagram(&mut self, now_ns: u64, from: NodeId, datagram: &[u8], buffer: BufferId) -> Option<Verdict> {
        if !self.outbound.has(from) {
            self.reject(from, Rejection::UnknownNode);
            return None;
        }
        let (header, rest) = LinkHeader::parse(datagram).ok()?;
        let mut packet = None;
        let ack;
        let received = match header.kind {
            LinkKind::Hello | LinkKind::Welcome | LinkKind::Again => Received::None,
            LinkKind::Ack => {
                ack = LinkAck::parse(rest).ok()?;
                Received::Ack(&ack)
            }
            LinkKind::Data => {
                packet = Some(Packet::new_checked(rest).ok()?);
                Received::Packet
            }
        };
        let link = self.outbound.lossy_to(from)?.link_mut(from);
        let arrival = link.handle_datagram(now_ns, &header, received);
        for _ in 0..link.poll_over() {
            if let Some(work) = self.outbound.pop_acked(from) {
                self.complete(work);
            }
        }
        self.handle_link_events(from);
        let packet = match (arrival.ok()?, packet) {
            (Some(Arrival::Next), Some(packet)) => packet,
            (Some(Arrival::Early), _) => {
                let lossy = self.outbound.lossy()?;
                if lossy.may_keep(from, rest.len()) {
                    lossy.link_mut(from).keep(now_ns, &header, rest.into());
                } else {
                    self.counters.early_dropped += 1;
                }
                return Some(Verdict::Taken);
            }
            _ => return Some(Verdict::Taken),
        };
        let payload = packet.payload();
        let inline = match payload.len() <= INLINE_BYTES {
            true => payload,
            false => &[],
        };
        let trailer = || payload.last_chunk().copied().unwrap_or_default();
        let verdict = self.handle_packet(from, packet.header(), inline, trailer, buffer);
        let lossy = self.outbound.lossy()?;
        match verdict {
            Verdict::Taken => lossy.link_mut(from).handle_taken(now_ns, &header),
            Verdict::Wait if self.drops_on_miss => {
                self.counters.dropped += 1;
                lossy.note_dropped(from);
                return Some(Verdict::Taken);
            }
            Verdict::Wait => {}
        }
        Some(verdict)
    }

    /// Header and payload of the next packet of `from`, if it arrived early and is now due. Give it to
    /// [`handle_packet`](Self::handle_packet), again as long as that returns [`Verdict::Wait`].
    pub fn poll_early(&mut self, from: NodeId) -> Option<Box<[u8]>> {
        let packet = self.outbound.lossy_to(from)?.take_early(from)?;
        debug_assert!(packet.len() >= HEADER_BYTES, "it was checked");
        Some(packet)
    }

    /// Handles the time that [`poll_at`](Self::poll_at) returned. Then drain [`poll_datagram`](Self::poll_datagram) and
    /// [`poll_link_event`](Self::poll_link_event).
    pub fn handle_time(&mut self, now_ns: u64) {
        while self.expire(now_ns) {}
    }

    /// Makes all acks that links owe due now, because nothing will carry them soon. Returns whether there are any.
    pub fn hasten_acks(&mut self) -> bool {
        self.outbound.hasten_acks()
    }

    /// When [`handle_time`](Self::handle_time) has something to do, once [`poll_datagram`](Self::poll_datagram) has been drained.
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        self.outbound.links()?.next_timer()
    }

    /// The link to `node`, if it was ever used.
    #[must_use]
    pub fn link_stats(&self, node: NodeId) -> Option<LinkStats> {
        Some(self.outbound.links()?.link(node)?.stats())
    }

    /// Bytes kept of early packets of `node`.
    #[must_use]
    pub fn early_bytes_of(&self, node: NodeId) -> usize {
        self.outbound.links().map_or(0, |links| links.early_bytes_of(node))
    }

    /// The next event of a link. What was under way to a peer that is dead or has restarted has already failed.
    pub fn poll_link_event(&mut self) -> Option<(NodeId, LinkEvent)> {
        self.outbound.lossy()?.poll_event()
    }

    fn handle_link_events(&mut self, node: NodeId) {
        while let Some(event) = self.outbound.lossy().and_then(|lossy| lossy.take_event(node)) {
            match event {
                LinkEvent::Dead => self.forget_peer(node),
                LinkEvent::Restarted => {
                    self.forget_peer(node);
                    self.take_back(node);
                }
                LinkEvent::Up if !self.outbound.is_up(node) => self.take_back(node),
                LinkEvent::Up | LinkEvent::PathChanged(_) => {}
            }
        }
    }

    /// A new incarnation of a node that was gone. It knows nothing of its predecessor's exports.
    fn take_back(&mut self, node: NodeId) {
        for id in self.imports.ids_where(|import| import.node == node) {
            if let Some(import) = self.imports.get_mut(id) {
                import.revoked = true;
            }
        }
        self.outbound.bring_up(node);
    }
}
