//! Packets of a lossless transport on their way out.

use mapwire_nic::Source;
use mapwire_wire::{HEADER_BYTES, NodeId};

use super::{BYTE_PS, Cluster, Delivery, Event, Observer, PACKET_NS};
use crate::canary::Canary;
use crate::hardware::memory::{BadAccess, POISON};
use crate::hardware::packets::{Form, Packet, read_source};

impl Cluster {
    /// Sends what a node has to send. Whether there was anything.
    pub(super) fn transmit(&mut self, number: NodeId, observer: &mut impl Observer) -> bool {
        if self.config.delivery != Delivery::Lossless {
            return self.transmit_datagrams(number, observer);
        }
        let mut sent = false;
        let nodes = usize::from(self.config.nodes);
        loop {
            let host = &mut self.hosts[usize::from(number.0)];
            let Some(packet) = host.node.poll_transmit() else { return sent };
            sent = true;
            let to = packet.to;
            let link = &mut self.links[usize::from(number.0) * nodes + usize::from(to.0)];
            if link.queued >= self.config.link.queue_packets {
                link.is_full = true;
                host.node.handle_transmit_blocked(to);
                continue;
            }
            link.queued += 1;
            let index = Self::slot(&mut self.packets, &mut self.free_packets);
            let slot = &mut self.packets[index as usize];
            (slot.from, slot.to, slot.form) = (number, to, Form::Plain);
            slot.header = packet.header;
            let forged = self.forgeries.apply((number, to), &mut slot.header);
            match (self.canary, &packet.source) {
                (Some(Canary::EarlyTransmitted), Source::Memory { .. }) => {
                    slot.late = Some(packet.source.clone());
                    slot.payload.resize(packet.header.payload_bytes() as usize, 0);
                }
                (_, source) => {
                    if let Err(BadAccess(text)) = read_source(&mut host.memory, source, &mut slot.payload) {
                        observer.broke(self.now_ns, "pinned pages", text);
                        let bytes = packet.header.payload_bytes() as usize;
                        slot.payload.resize(bytes, POISON);
                    }
                }
            }
            match forged {
                Some(forged) => forged.apply_to_signal(&slot.header, &mut slot.payload),
                None => {
                    let forgeries = &mut self.forgeries;
                    forgeries.note((number, to), &slot.header, &slot.payload);
                }
            }
            host.node.handle_transmitted(to);
            self.send(index);
        }
    }

    /// The processor copies so many bytes; the port sends them when it has sent what came before. When that is done.
    pub(super) fn leave(&mut self, from: NodeId, bytes: u64) -> u64 {
        let host = &mut self.hosts[usize::from(from.0)];
        host.free_at_ns = host.free_at_ns.max(self.now_ns) + (PACKET_NS + bytes * BYTE_PS / 1000) * host.slowness;
        let start_ns = host.port_free_ns.max(host.free_at_ns);
        host.port_free_ns = start_ns + self.config.link.serialization_ns(bytes);
        host.port_free_ns
    }

    /// Puts a packet on its link.
    pub(super) fn send(&mut self, index: u32) {
        let Packet { from, to, payload, .. } = &self.packets[index as usize];
        let (from, to) = (*from, *to);
        let bytes = (payload.len() + HEADER_BYTES) as u64;
        let mut arrival_ns = self.leave(from, bytes) + self.config.link.latency_ns;
        for &number in &self.active {
            let fault = &self.faults[number as usize];
            let more_ns = fault.delay_ns(self.now_ns, from, to, &mut self.random);
            self.fired[number as usize] += u64::from(more_ns > 0);
            arrival_ns += more_ns;
        }
        let link = self.link(from, to);
        arrival_ns = arrival_ns.max(link.last_arrival_ns);
        link.last_arrival_ns = arrival_ns;
        match self.canary {
            None => self.agenda.enter(arrival_ns, Event::Arrive(index)),
            Some(canary) => self.send_badly(canary, index, arrival_ns),
        }
    }

    /// As a canary has it.
    #[cold]
    pub(super) fn send_badly(&mut self, canary: Canary, index: u32, arrival_ns: u64) {
        let is_hit = self.random.chance(2);
        let packet = &mut self.packets[index as usize];
        match canary {
            Canary::LostPacket if is_hit => return self.let_go(index),
            Canary::RepeatedPacket if is_hit => {
                let copy = packet.clone();
                let (from, to) = (copy.from, copy.to);
                self.packets.push(copy);
                self.link(from, to).queued += 1;
                let copy = self.packets.len() as u32 - 1;
                self.agenda.enter(arrival_ns, Event::Arrive(copy));
            }
            Canary::Overtaking if is_hit => {
                return self.agenda.enter(arrival_ns + 3_000, Event::Arrive(index));
            }
            Canary::ReusedSequence if is_hit => {
                let sequence = packet.header.sequence.get();
                packet.header.sequence.set(sequence.wrapping_sub(1));
            }
            Canary::ChangedByte if is_hit => {
                if let Some(last) = packet.payload.last_mut() {
                    *last ^= 0x40;
                }
            }
            _ => {}
        }
        self.agenda.enter(arrival_ns, Event::Arrive(index));
    }
}
