//! What comes: ports, processors, and moves into memory.

use mapwire_nic::{BufferId, Dma, Verdict};
use mapwire_node::Told;
use mapwire_wire::{Endpoint, HEADER_BYTES, NodeId};

use super::host::Host;
use super::{BYTE_PS, Cluster, Event, MAX_TRIES, MOST_UNTOLD, Moved, Observer, PACKET_NS};
use crate::canary::Canary;
use crate::coverage::Condition;
use crate::hardware::memory::{BadAccess, Memory, POISON};
use crate::hardware::packets::{Form, Packet, read_source};
use crate::random::Random;

impl Cluster {
    /// A packet is at its receiver's port.
    pub(super) fn arrive(&mut self, packet: u32, observer: &mut impl Observer) {
        let Packet { from, to, is_damaged, form, .. } = self.packets[packet as usize];
        // A seal takes the place of the transport's checksum; what a node sends to itself has none.
        let is_checked = !self.config.delivery.is_sealed() || from == to;
        let is_dropped = is_damaged && is_checked && self.canary != Some(Canary::UncheckedSum);
        let is_taken = self.is_alive(to) && !is_dropped;
        if !is_taken || form == Form::Datagram && !self.open(packet, observer) {
            self.let_go(packet);
            return;
        }
        let host = &mut self.hosts[usize::from(to.0)];
        host.inbox.push_back(packet);
        if host.is_scheduled {
            return;
        }
        if host.free_at_ns <= self.now_ns {
            self.run(to, observer);
        } else {
            host.is_scheduled = true;
            self.agenda.enter(host.free_at_ns, Event::Run(to));
        }
    }

    /// The processor takes the next packet.
    pub(super) fn run(&mut self, number: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        host.is_scheduled = false;
        if !host.is_alive {
            return;
        }
        if host.free_at_ns > self.now_ns {
            host.is_scheduled = true;
            self.agenda.enter(host.free_at_ns, Event::Run(number));
            return;
        }
        if host.inbox.is_empty() {
            return;
        }
        let mut left = if host.inbox.len() > 1 && self.random.chance(50) { self.random.below(MOST_UNTOLD) } else { 0 };
        // Stores that have come one behind the other may all be taken before the first is told of.
        while self.take(number, left > 0, observer) {
            left -= 1;
        }
    }

    /// The processor takes the packet at the front. Whether it takes another before that is told of, which it does only if it `may`.
    fn take(&mut self, number: NodeId, may: bool, observer: &mut impl Observer) -> bool {
        let host = &mut self.hosts[usize::from(number.0)];
        let Some(&packet) = host.inbox.front() else { return false };
        self.read_late(packet, observer);
        let host = &mut self.hosts[usize::from(number.0)];
        let taken = &self.packets[packet as usize];
        let (from, bytes, buffer) = (taken.from, taken.body().len() as u64, BufferId(packet));
        let clock_ns = host.clock.shows(self.now_ns);
        let early_bytes = self.canary.map(|_| host.node.nic().early_bytes_of(from));
        let verdict = taken.take(&mut host.node, clock_ns, buffer);
        let is_datagram = taken.form == Form::Datagram;
        host.free_at_ns = host.free_at_ns.max(self.now_ns) + (PACKET_NS + bytes * BYTE_PS / 1000) * host.slowness;
        if verdict == Verdict::Wait {
            host.tries += 1;
            if host.tries > MAX_TRIES {
                let text = format!("{number} never takes a packet of {from}: {MAX_TRIES} tries");
                observer.broke(self.now_ns, "liveness", text);
                host.is_alive = false;
                return false;
            }
            host.is_scheduled = true;
            self.settle(number, observer);
            let host = &self.hosts[usize::from(number.0)];
            let at_ns = host.free_at_ns.max(self.now_ns + 1);
            self.agenda.enter(at_ns, Event::Run(number));
            return false;
        }
        host.tries = 0;
        host.inbox.pop_front();
        self.totals.packets += 1;
        self.totals.bytes += bytes + HEADER_BYTES as u64;
        let moves = Self::moves(self.now_ns, number, host, &self.packets, self.canary, observer);
        self.coverage.note_many(Condition::Scattered, u64::from(moves > 2));
        let is_store = |packet: &u32| self.packets[*packet as usize].is_store();
        let goes_on = may && is_store(&packet) && host.inbox.front().is_some_and(is_store);
        if let Some(before) = early_bytes {
            let is_early = host.node.nic().early_bytes_of(from) > before;
            self.tell_all_badly(number, packet, goes_on, is_early, observer);
        }
        let host = &mut self.hosts[usize::from(number.0)];
        let payload = self.packets[packet as usize].body();
        if !goes_on {
            loop {
                while let Some(told) = host.node.poll_told(&payload, || clock_ns) {
                    observer.told(self.now_ns, number, &told);
                }
                if !host.node.end_packet(from) {
                    break;
                }
            }
        }
        self.let_go(packet);
        if is_datagram {
            self.take_early(number, from);
        }
        let host = &mut self.hosts[usize::from(number.0)];
        if goes_on {
            return true;
        }
        if !host.inbox.is_empty() {
            host.is_scheduled = true;
        }
        self.settle(number, observer);
        let host = &mut self.hosts[usize::from(number.0)];
        if !host.inbox.is_empty() {
            self.agenda.enter(host.free_at_ns, Event::Run(number));
        }
        false
    }

    /// What a packet has led to is told as a canary has it.
    #[cold]
    fn tell_all_badly(
        &mut self,
        number: NodeId,
        packet: u32,
        goes_on: bool,
        is_early: bool,
        observer: &mut impl Observer,
    ) {
        let host = &mut self.hosts[usize::from(number.0)];
        let clock_ns = host.clock.shows(self.now_ns);
        let taken = self.packets[packet as usize].clone();
        let mut all = Vec::new();
        while !goes_on && let Some(told) = host.node.poll_told(&taken.body(), || clock_ns) {
            all.push(told);
        }
        self.tell_badly(&mut all);
        for told in &all {
            let (now_ns, canary) = (self.now_ns, self.canary);
            Self::tell(now_ns, number, canary, &mut self.random, told, observer);
        }
        self.apply_badly(number, &taken, &all, is_early, observer);
    }

    pub(super) fn tell(
        now_ns: u64,
        at: NodeId,
        canary: Option<Canary>,
        random: &mut Random,
        told: &Told,
        observer: &mut impl Observer,
    ) {
        if let Some(canary) = canary {
            let is_hit = match canary {
                Canary::ToldTwice => matches!(told, Told::Done { .. }),
                Canary::RestartedTwice => matches!(told, Told::PeerRestarted { .. }),
                Canary::LostCompletion => matches!(told, Told::Done { .. }),
                Canary::LostNotification => matches!(told, Told::Notified { .. }),
                _ => false,
            };
            if is_hit && random.chance(5) {
                if matches!(canary, Canary::LostCompletion | Canary::LostNotification) {
                    return;
                }
                observer.told(now_ns, at, told);
            }
        }
        observer.told(now_ns, at, told);
    }

    /// Does the moves that a node asks for. How many there were.
    pub(super) fn moves(
        now_ns: u64,
        number: NodeId,
        host: &mut Host,
        packets: &[Packet],
        canary: Option<Canary>,
        observer: &mut impl Observer,
    ) -> u64 {
        let mut moves = 0;
        while let Some(dma) = host.node.poll_move() {
            moves += 1;
            let packet = &packets[dma.buffer.0 as usize];
            let done = Self::make_move(now_ns, number, &mut host.memory, packet, &dma, canary, observer);
            let old = done.unwrap_or_else(|BadAccess(text)| {
                observer.broke(now_ns, "pinned pages", text);
                0
            });
            host.node.handle_moved(&dma, old);
        }
        moves
    }

    pub(super) fn make_move(
        now_ns: u64,
        number: NodeId,
        memory: &mut Memory,
        packet: &Packet,
        dma: &Dma,
        canary: Option<Canary>,
        observer: &mut impl Observer,
    ) -> Result<u64, BadAccess> {
        let old = memory.carry_out(packet.body(), dma, canary)?;
        let signal = dma.signal.filter(|_| canary != Some(Canary::LostSignal));
        let signal = signal.map(|write| (memory.address_of(write.piece), write.value, write.op));
        let update = dma.update.map(|wanted| (memory.address_of(wanted.piece), wanted.atomic));
        let bytes = &packet.body()[dma.at as usize..][..dma.piece.length as usize];
        let moved = Moved {
            at: Endpoint { node: number, process: dma.process },
            from: packet.from,
            address: memory.address_of(dma.piece),
            bytes,
            signal,
            update,
        };
        observer.moved(now_ns, moved);
        Ok(old)
    }

    /// Reads the source of a packet that a canary has let out too early.
    pub(super) fn read_late(&mut self, packet: u32, observer: &mut impl Observer) {
        let packet = &mut self.packets[packet as usize];
        let Some(source) = packet.late.take() else { return };
        let memory = &mut self.hosts[usize::from(packet.from.0)].memory;
        packet.payload.clear();
        if let Err(BadAccess(text)) = read_source(memory, &source, &mut packet.payload) {
            observer.broke(self.now_ns, "pinned pages", text);
            packet.payload.resize(packet.header.payload_bytes() as usize, POISON);
        }
    }
}
