//! A cluster over a transport that may lose, repeat, reorder, delay and damage datagrams; and nodes that restart.

use mapwire_nic::link::LINK_WINDOW;
use mapwire_seal::{Destination, Opened};
use mapwire_wire::NodeId;
use mapwire_wire::link::{LinkHeader, LinkKind};
use zerocopy::IntoBytes;

use super::sealing::fill;
use super::{Cluster, Delivery, Event, Observer};
use crate::canary::Canary;
use crate::checks::room;
use crate::coverage::Condition;
use crate::hardware::memory::{BadAccess, POISON};
use crate::hardware::packets::{Form, Packet, append_datagram, read_source};
use crate::rules::Harm;

/// Of 100 datagrams that come twice, of a node that has started anew, those with which greetings of its first self come again.
const GREETED_PERCENT: u64 = 20;

/// Of 100 datagrams of a node that forges, those that it sends again, numbered beyond the receiver's window.
const AHEAD_PERCENT: u64 = 5;

impl Cluster {
    /// Sends what a node has to send. Whether there was anything.
    pub(super) fn transmit_datagrams(&mut self, number: NodeId, observer: &mut impl Observer) -> bool {
        let mut sent = false;
        loop {
            let host = &mut self.hosts[usize::from(number.0)];
            let clock_ns = host.clock.shows(self.now_ns);
            let Some(datagram) = host.node.poll_datagram(clock_ns) else {
                return self.transmit_handshakes(number) || sent;
            };
            sent = true;
            let (to, header) = (datagram.to, datagram.header);
            let (path, kind) = (header.path, header.kind);
            let index = Self::slot(&mut self.packets, &mut self.free_packets);
            let slot = &mut self.packets[index as usize];
            (slot.from, slot.to, slot.form) = (number, to, Form::Datagram);
            // What a node sends to itself leaves no machine.
            let mut wrap = host.wrap.as_mut().filter(|_| to != number);
            if let Some(wrap) = &wrap {
                slot.payload.resize(wrap.0.front_bytes(), 0);
            }
            if let Some(packet) = append_datagram(&header, datagram.body, &mut slot.payload) {
                let mut header = packet.header;
                let forged = self.forgeries.apply((number, to), &mut header);
                slot.payload.extend(header.as_bytes());
                let start = slot.payload.len();
                if let Err(BadAccess(text)) = read_source(&mut host.memory, &packet.source, &mut slot.payload) {
                    observer.broke(self.now_ns, "pinned pages", text);
                    slot.payload.resize(start + packet.header.payload_bytes() as usize, POISON);
                }
                match forged {
                    Some(forged) => forged.apply_to_signal(&header, &mut slot.payload),
                    None => self.forgeries.note((number, to), &header, &slot.payload[start..]),
                }
            }
            let sent = match kind {
                LinkKind::Data => host.node.nic().link_stats(to),
                _ => None,
            };
            let unacked = sent.map_or(0, |stats| stats.unacked);
            if unacked >= LINK_WINDOW {
                self.coverage.note(Condition::WindowFull);
            }
            if unacked > LINK_WINDOW {
                observer.violated(self.now_ns, room::is_too_much(number, to, unacked));
            }
            let forges = host.forges.is_some() && kind == LinkKind::Data && wrap.is_some();
            let copy = (forges && self.random.chance(AHEAD_PERCENT)).then(|| slot.payload.clone());
            if let Some(wrap) = &mut wrap
                && !wrap.seal(clock_ns, to, &mut slot.payload, &self.keys)
            {
                self.recycle(index);
                continue;
            }
            let is_lost = self.canary == Some(Canary::LostAck) && kind == LinkKind::Ack;
            let is_first = self.incarnations[usize::from(number.0)] == 0;
            if is_first && matches!(kind, LinkKind::Hello | LinkKind::Welcome) {
                let bytes = self.packets[index as usize].payload.clone();
                self.link(number, to).greetings[usize::from(kind == LinkKind::Welcome)] = bytes;
            }
            let is_double = self.cast(index, path, is_lost);
            if is_double && !is_first && self.random.chance(GREETED_PERCENT) {
                self.greet_again(number, to);
            }
            if let Some(copy) = copy {
                self.cast_ahead((number, to), header, unacked, copy);
            }
        }
    }

    /// Opens a datagram that has come. False if it is not one of a link, or not genuine.
    pub(super) fn open(&mut self, packet: u32, observer: &mut impl Observer) -> bool {
        let slot = &mut self.packets[packet as usize];
        let (sender, to) = (slot.from, slot.to);
        let host = &mut self.hosts[usize::from(to.0)];
        let (clock_ns, random) = (host.clock.shows(self.now_ns), &mut self.random);
        let Some(wrap) = host.wrap.as_mut().filter(|_| sender != to) else { return true };
        let [low, high] = sender.0.to_le_bytes();
        let mut entropy = |bytes: &mut [u8]| fill(random, bytes);
        let address = [low, high, slot.path];
        let opened = (wrap.0).handle(clock_ns, &address, &mut slot.payload, &mut entropy);
        wrap.introduce(&self.keys);
        match opened {
            Opened::Data { from, bytes } => {
                slot.payload.truncate(bytes.end);
                slot.payload.drain(..bytes.start);
                if self.config.delivery.is_sealed() && (slot.is_damaged || from != sender) {
                    let damaged = if slot.is_damaged { "a damaged" } else { "a" };
                    let text =
                        format!("{to} opens {damaged} datagram of {sender} as one of {from}, though they are sealed");
                    observer.broke(self.now_ns, "sealing", text);
                }
                true
            }
            // What has no cookie is rejected, and answered with one.
            Opened::Handled | Opened::Rejected(_) => {
                self.settle(to, observer);
                false
            }
        }
    }

    /// Sends what handshakes of a node have to send. Whether there was anything.
    pub(super) fn transmit_handshakes(&mut self, number: NodeId) -> bool {
        let Delivery::Lossy { paths, .. } = self.config.delivery else { return false };
        let mut sent = false;
        loop {
            let host = &mut self.hosts[usize::from(number.0)];
            let (clock_ns, random) = (host.clock.shows(self.now_ns), &mut self.random);
            let mut entropy = |bytes: &mut [u8]| fill(random, bytes);
            let wrap = host.wrap.as_mut();
            let next = wrap.and_then(|wrap| wrap.0.poll_transmit(clock_ns, &mut entropy));
            let Some(transmit) = next else { return sent };
            sent = true;
            // All paths, as between machines, unless it answers what came by one.
            let (to, by) = match transmit.to() {
                Destination::Node(node) => (node, 0..paths),
                Destination::Address(address) => match *address.as_bytes() {
                    [low, high, path] => (NodeId(u16::from_le_bytes([low, high])), path..path.saturating_add(1)),
                    _ => continue,
                },
            };
            if to.0 >= self.config.nodes {
                continue;
            }
            for path in by {
                let index = Self::slot(&mut self.packets, &mut self.free_packets);
                let slot = &mut self.packets[index as usize];
                (slot.from, slot.to, slot.form) = (number, to, Form::Datagram);
                slot.payload.extend(transmit.bytes());
                self.cast(index, path, false);
            }
        }
    }

    /// Sends a datagram of a link with `unacked` packets under way once more, as that of the first packet for which the receiver
    /// surely has no place: it comes behind what was sent before, and before what follows.
    pub(super) fn cast_ahead(
        &mut self,
        (from, to): (NodeId, NodeId),
        header: LinkHeader,
        unacked: u32,
        mut payload: Vec<u8>,
    ) {
        let host = &mut self.hosts[usize::from(from.0)];
        let (clock_ns, out_ns) = (host.clock.shows(self.now_ns), host.port_free_ns);
        let (Some(wrap), Some(number)) = (&mut host.wrap, host.forges) else { return };
        let is_within = u32::from(self.canary == Some(Canary::WideWindow));
        let ahead = LINK_WINDOW + unacked - is_within;
        let sequence = header.sequence.wrapping_add(ahead);
        let header = LinkHeader { sequence, ..header }.emit();
        payload[wrap.0.front_bytes()..][..header.len()].copy_from_slice(&header);
        if !wrap.seal(clock_ns, to, &mut payload, &self.keys) {
            return;
        }
        self.fired[number as usize] += 1;
        self.coverage.note(Condition::ForgedAhead);
        let index = Self::slot(&mut self.packets, &mut self.free_packets);
        let slot = &mut self.packets[index as usize];
        (slot.from, slot.to, slot.form) = (from, to, Form::Datagram);
        slot.payload = payload;
        let latency_ns = self.config.link.latency_ns;
        let link = self.link(from, to);
        link.queued += 1;
        link.last_arrival_ns = link.last_arrival_ns.max(out_ns + latency_ns);
        let arrival_ns = link.last_arrival_ns;
        self.agenda.enter(arrival_ns, Event::Arrive(index));
    }
    /// What the first self of `from` has sent to greet `to` comes again: a question, so that `to` asks as well, and an answer to a
    /// question that is over, before the present self can answer.
    fn greet_again(&mut self, from: NodeId, to: NodeId) {
        self.coverage.note(Condition::GreetedAgain);
        let mut arrival_ns = self.now_ns;
        for bytes in self.link(from, to).greetings.clone() {
            arrival_ns += self.config.link.latency_ns;
            if !bytes.is_empty() {
                self.link(from, to).queued += 1;
                let index = Self::slot(&mut self.packets, &mut self.free_packets);
                let slot = &mut self.packets[index as usize];
                (slot.from, slot.to, slot.form) = (from, to, Form::Datagram);
                slot.payload = bytes;
                self.agenda.enter(arrival_ns, Event::Arrive(index));
            }
        }
    }

    /// Puts a datagram on its way, where it may meet with harm. Whether it is repeated.
    pub(super) fn cast(&mut self, index: u32, path: u8, mut is_lost: bool) -> bool {
        let slot = &mut self.packets[index as usize];
        slot.path = path;
        let (from, to, bytes) = (slot.from, slot.to, slot.payload.len() as u64);
        let out_ns = self.leave(from, bytes);
        let slot = &mut self.packets[index as usize];
        let (mut delay_ns, mut late_ns, mut is_double) = (0, None, false);
        for &number in &self.active {
            let fault = &self.faults[number as usize];
            let harm = fault.harm(from, to, path, &mut self.random);
            self.fired[number as usize] += u64::from(harm.is_some());
            match harm {
                Some(Harm::Lose) => is_lost = true,
                Some(Harm::Repeat) => is_double = true,
                Some(Harm::Late(ns)) => late_ns = Some(ns),
                // Not twice: the second could mend the first.
                Some(Harm::Damage) if slot.is_damaged => {}
                Some(Harm::Damage) => {
                    let at = self.random.below(bytes) as usize;
                    slot.payload[at] ^= 1 << self.random.below(8);
                    slot.is_damaged = true;
                }
                None => {
                    let more_ns = fault.delay_ns(self.now_ns, from, to, &mut self.random);
                    self.fired[number as usize] += u64::from(more_ns > 0);
                    delay_ns += more_ns;
                }
            }
        }
        let queue_packets = self.config.link.queue_packets;
        let mut arrival_ns = out_ns + self.config.link.latency_ns + delay_ns;
        let link = self.link(from, to);
        if is_lost || link.queued >= queue_packets {
            self.recycle(index);
            return false;
        }
        link.queued += 1 + u32::from(is_double);
        match late_ns {
            // The others overtake it.
            Some(ns) => arrival_ns += ns,
            None => {
                arrival_ns = arrival_ns.max(link.last_arrival_ns);
                link.last_arrival_ns = arrival_ns;
            }
        }
        self.agenda.enter(arrival_ns, Event::Arrive(index));
        if is_double {
            let copy = self.packets[index as usize].clone();
            let other = Self::slot(&mut self.packets, &mut self.free_packets);
            self.packets[other as usize] = copy;
            let apart_ns = self.random.below(100_000);
            self.agenda.enter(arrival_ns + apart_ns, Event::Arrive(other));
        }
        is_double
    }

    /// Puts the packets of `from` that came early, and whose turn has come, before all others that wait for the processor.
    pub(super) fn take_early(&mut self, number: NodeId, from: NodeId) {
        let host = &mut self.hosts[usize::from(number.0)];
        let mut at = 0;
        while let Some(early) = Packet::poll_early(&mut host.node, from, number) {
            if self.canary != Some(Canary::LostEarly) {
                let index = Self::slot(&mut self.packets, &mut self.free_packets);
                self.packets[index as usize] = early;
                host.inbox.insert(at, index);
                at += 1;
            }
        }
    }
}
