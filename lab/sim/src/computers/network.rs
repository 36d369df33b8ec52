//! Packets on wires. A wire is held back while the NIC at its end has no buffer free: nothing is lost.

use mapwire_nic::Source;
use mapwire_wire::NodeId;
use zerocopy::IntoBytes;

use super::event::Event;
use super::parcel::Parcel;
use super::{Computer, Computers};
use crate::hardware::memory::BadAccess;
use crate::hardware::packets::{Form, Packet, append_datagram, read_source};
use crate::hardware::{Cost, Lane};

impl Computer {
    /// The next packet or datagram of a node. It counts as transmitted: its data are read at once, though its time has yet to come.
    pub(super) fn poll_parcel(
        &mut self,
        from: NodeId,
        has_links: bool,
        now_ns: u64,
    ) -> Result<Option<Parcel>, BadAccess> {
        let mut packet = Packet { from, ..Packet::NONE };
        let carried = if has_links {
            let Some(datagram) = self.node.poll_datagram(now_ns) else { return Ok(None) };
            (packet.to, packet.form) = (datagram.to, Form::Datagram);
            let carried = append_datagram(&datagram.header, datagram.body, &mut packet.payload);
            packet.payload.extend(carried.iter().flat_map(|carried| carried.header.as_bytes()));
            carried
        } else {
            let Some(carried) = self.node.poll_transmit() else { return Ok(None) };
            (packet.to, packet.header) = (carried.to, carried.header);
            Some(carried)
        };
        let headers = packet.payload.len();
        let mut process = None;
        if let Some(carried) = carried {
            read_source(&mut self.memory, &carried.source, &mut packet.payload)?;
            if let Source::Memory { process: of, .. } = carried.source {
                process = Some(of);
            }
        }
        if !has_links {
            self.node.handle_transmitted(packet.to);
        }
        let data_bytes = (packet.payload.len() - headers) as u64;
        Ok(Some(Parcel { data_bytes, process, ..Parcel::new(packet) }))
    }
}

impl Computers {
    /// Gives a packet to the network DMA, which takes packets in the order in which the firmware has made them.
    pub(super) fn transmit(&mut self, node: usize, parcel: Parcel) {
        let port = &mut self.computers[node].port;
        port.ready.insert(parcel.number, parcel);
        loop {
            let port = &mut self.computers[node].port;
            let Some(mut parcel) = port.ready.remove(&(port.begun + 1)) else { break };
            port.begun += 1;
            self.enlist(node, &mut parcel);
            self.computers[node].port.out.push_back(parcel);
        }
        self.begin_wire(node);
    }

    /// Gives a packet to the network DMA that has left before.
    pub(super) fn transmit_again(&mut self, node: usize, parcel: Parcel) {
        let port = &mut self.computers[node].port;
        port.leaving += 1;
        port.out.push_back(parcel);
        self.begin_wire(node);
    }

    /// Begins to send the next packet, if its receiver has room.
    fn begin_wire(&mut self, node: usize) {
        let port = &self.computers[node].port;
        let Some(parcel) = port.out.front().filter(|_| port.since_ps.is_none()) else { return };
        let to = usize::from(parcel.packet.to.0);
        let bytes = parcel.wire_bytes();
        if self.computers[to].port.coming >= self.shape.receive_buffers {
            let computer = &mut self.computers[node];
            computer.load.blocked += u64::from(!computer.port.is_blocked);
            computer.port.is_blocked = true;
            return;
        }
        self.computers[to].port.coming += 1;
        let port = &mut self.computers[node].port;
        (port.since_ps, port.is_blocked) = (Some(self.now_ps), false);
        let bytes = bytes + self.profile.of(Cost::HeaderBytes);
        let latency_ps = self.profile.of(Cost::WireLatency);
        let end_ps = self.now_ps + self.profile.wire(bytes);
        self.change_dma(node, true, true);
        self.agenda.enter(self.now_ps + latency_ps, Event::Comes(to));
        self.agenda.enter(end_ps, Event::Sent(node));
    }

    pub(super) fn sent(&mut self, node: usize) {
        self.change_dma(node, true, false);
        let computer = &mut self.computers[node];
        let since_ps = computer.port.since_ps.take().unwrap_or(self.now_ps);
        computer.load.wire_ps += self.now_ps - since_ps;
        computer.port.leaving -= 1;
        let Some(parcel) = computer.port.out.pop_front() else { return };
        let span = (since_ps, self.now_ps);
        self.timeline.note(node, Lane::SendWire, "sends", span);
        let at_ps = self.now_ps + self.profile.of(Cost::WireLatency);
        let slot = self.keep(parcel);
        self.agenda.enter(at_ps, Event::Arrive(slot));
        self.begin_wire(node);
        self.wake_nic(node);
    }

    /// Keeps a packet until it is wanted by its number.
    pub(super) fn keep(&mut self, parcel: Parcel) -> usize {
        let slot = self.flights.iter().position(Option::is_none).unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[slot] = Some(parcel);
        slot
    }

    /// A packet is there, whole.
    pub(super) fn arrive(&mut self, slot: usize) {
        let Some(parcel) = &self.flights[slot] else { return };
        let node = usize::from(parcel.packet.to.0);
        self.change_dma(node, true, false);
        let nic = &mut self.computers[node].nic;
        nic.inbox.push_back(slot);
        // The sending loop is left for whatever comes (VMMC §5.3).
        (nic.is_tight, nic.has_heard) = (false, true);
        self.wake_nic(node);
    }

    /// The buffer of a packet that came is free.
    pub(super) fn free_buffer(&mut self, slot: usize) {
        let Some(parcel) = self.flights[slot].take() else { return };
        if parcel.packet.form == Form::Early {
            return;
        }
        self.give_buffer(usize::from(parcel.packet.to.0));
    }

    /// A buffer for what comes to a node is free.
    pub(super) fn give_buffer(&mut self, node: usize) {
        self.computers[node].port.coming -= 1;
        for node in 0..self.computers.len() {
            self.begin_wire(node);
        }
    }
}
