//! Two or more NICs with simulated memory and wires between them, driven in a random order. The wires lose nothing, or may lose, repeat
//! and reorder datagrams.

pub(crate) mod commands;
pub(crate) mod forgetful;
pub(crate) mod random;

use std::collections::{BTreeMap, VecDeque};

use mapwire_nic::{
    BufferId, Completion, Config, DatagramBody, Delivery, Dma, Export, Import, Nic, Piece, Source, Transmit, Verdict,
    link::LinkConfig,
};
use mapwire_translation::{Frame, HostRequest, NicSide, PAGE_BYTES, Page, TranslationDesign};
use mapwire_wire::link::{LINK_HEADER_BYTES, MAX_ACK_BYTES};
use mapwire_wire::{
    CommandHeader, CommandRepr, ExportId, HEADER_BYTES, Header, INLINE_BYTES, ImportId, Key, MAX_PAYLOAD_BYTES, NodeId,
    ProcessId, Rights, SIGNAL_TRAILER_BYTES, SignalOp,
};

use zerocopy::{FromBytes, IntoBytes};

pub(crate) use commands::{add, fetch, long_send, notifying_send, short_send};
use forgetful::Forgetful;
use random::Random;

pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// A packet on a wire.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    /// Process from whose memory it was read, if any.
    pub(crate) of: Option<ProcessId>,
    /// The datagram that carries it, or carries no packet; empty on a lossless wire.
    pub(crate) datagram: Vec<u8>,
}

impl Sent {
    /// A packet on a lossless wire.
    pub(crate) fn plain(header: Header, payload: Vec<u8>) -> Self {
        Self { header, payload, of: None, datagram: Vec::new() }
    }
}

/// The frames of a node. Accesses to a missing frame go to the garbage page.
#[derive(Default)]
pub(crate) struct Memory {
    frames: BTreeMap<u64, Vec<u8>>,
    next_frame: u64,
    pub(crate) garbage_writes: usize,
    pub(crate) garbage_reads: usize,
}

impl Memory {
    fn write(&mut self, piece: Piece, bytes: &[u8]) {
        assert_eq!(bytes.len(), piece.length as usize);
        let mut rest = bytes;
        for (frame, within) in parts(piece) {
            let (part, others) = rest.split_at(within.len());
            rest = others;
            match self.frames.get_mut(&frame) {
                Some(frame) => frame[within].copy_from_slice(part),
                None => {
                    assert!(piece.frame.is_garbage(), "{piece:?} was unpinned");
                    self.garbage_writes += 1;
                }
            }
        }
    }

    fn read(&mut self, piece: Piece) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (frame, within) in parts(piece) {
            match self.frames.get(&frame) {
                Some(frame) => bytes.extend_from_slice(&frame[within]),
                None => {
                    assert!(piece.frame.is_garbage(), "{piece:?} was unpinned");
                    self.garbage_reads += 1;
                    bytes.resize(bytes.len() + within.len(), 0xEE);
                }
            }
        }
        bytes
    }
}

/// The frames of a piece, and the bytes of each.
fn parts(piece: Piece) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> {
    let (start, end) = (piece.offset as usize, (piece.offset + piece.length) as usize);
    assert!(end <= PAGE_BYTES || !piece.frame.is_garbage(), "{piece:?}: no frame follows the garbage frame");
    (0..piece.frames() as usize).map(move |index| {
        let first = index * PAGE_BYTES;
        let within = start.saturating_sub(first)..(end - first).min(PAGE_BYTES);
        (piece.frame.0.wrapping_add(index as u64), within)
    })
}

/// A node: a NIC, its memory, the command queues of its processes.
pub(crate) struct Node {
    pub(crate) nic: Nic<Forgetful>,
    pub(crate) memory: Memory,
    pub(crate) queues: BTreeMap<u16, VecDeque<(CommandHeader, Vec<u8>)>>,
    /// Packets that DMAs and messages refer to.
    buffers: BTreeMap<u32, Vec<u8>>,
    next_buffer: u32,
    /// Moves requested and not yet done, when they take time.
    moves: VecDeque<Dma>,
    /// Early packets that are now due and wait for the host.
    early: VecDeque<(u16, Box<[u8]>)>,
    /// Everything that was reported, in order.
    pub(crate) told: Vec<Completion>,
    /// Payloads of messages and control messages, in order.
    pub(crate) messages: Vec<(NodeId, Vec<u8>)>,
    /// Packets that came in from each node.
    pub(crate) due: BTreeMap<u16, u32>,
}

pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    /// Packets from one node to another, in order.
    pub(crate) wires: BTreeMap<(u16, u16), VecDeque<Sent>>,
    pub(crate) random: Random,
    /// Time on all clocks.
    pub(crate) now_ns: u64,
    /// Percentage of losses, repetitions and reorderings.
    lossy: bool,
    pub(crate) harm_percent: u64,
    /// Longest payload that a wire carries.
    max_payload_bytes: usize,
    /// Nodes that neither send nor receive.
    cut: Vec<u16>,
    /// Percentage of pages pinned in the frame that follows the previous page's.
    pub(crate) neighbours_percent: u64,
    /// Percentage of transmissions for which a transport has no room.
    pub(crate) blocked_percent: u64,
    /// Capacity of a wire, in packets.
    pub(crate) wire_packets: usize,
    /// Whether DMAs are done later than asked for.
    pub(crate) slow_moves: bool,
    /// Every packet that was sent, in order, if wanted.
    pub(crate) log: Option<Vec<(u16, u16, Sent)>>,
}

pub(crate) fn key(number: u8) -> Key {
    Key([number; 16])
}

pub(crate) fn nic_of(node: u16, nodes: usize, memory_bytes: u64) -> Nic<Forgetful> {
    nic_with(node, nodes, memory_bytes, MAX_PAYLOAD_BYTES, Forgetful::new(0, false, 0), Delivery::Lossless)
}

fn lossy(node: u16, max_payload_bytes: usize) -> Delivery {
    let bytes = max_payload_bytes + LINK_HEADER_BYTES + HEADER_BYTES;
    Delivery::Lossy(LinkConfig::new(1000 + u64::from(node), bytes as u32))
}

/// As [`nic_of`], over wires that may lose packets, with a design that drops what misses.
pub(crate) fn lossy_nic_of(node: u16, nodes: usize, memory_bytes: u64) -> Nic<Forgetful> {
    let design = Forgetful::new(0, true, 0);
    let delivery = lossy(node, MAX_PAYLOAD_BYTES);
    nic_with(node, nodes, memory_bytes, MAX_PAYLOAD_BYTES, design, delivery)
}

fn nic_with(
    node: u16,
    nodes: usize,
    memory_bytes: u64,
    max_payload_bytes: usize,
    design: Forgetful,
    delivery: Delivery,
) -> Nic<Forgetful> {
    let config = Config {
        node: NodeId(node),
        // Each NIC draws its own.
        reply_keys: (0..nodes).map(|peer| Key([((peer + 1) as u8 ^ (node as u8) << 5) | 0x80; 16])).collect(),
        memory_bytes,
        max_payload_bytes,
        delivery,
    };
    Nic::new(config, design).unwrap()
}

impl World {
    pub(crate) fn new(nodes: usize, seed: u64) -> Self {
        Self::forgetful(nodes, Random::new(seed), 0, false)
    }

    /// A world in which `percent` of 100 lookups find nothing and wait for the host; or, over wires that may lose packets, are dropped.
    pub(crate) fn forgetful(nodes: usize, random: Random, percent: u64, drops: bool) -> Self {
        Self::carrying(MAX_PAYLOAD_BYTES, nodes, random, percent, drops)
    }

    /// As [`forgetful`](Self::forgetful), with wires that carry payloads of up to `max_payload_bytes`.
    pub(crate) fn carrying(max_payload_bytes: usize, nodes: usize, random: Random, percent: u64, drops: bool) -> Self {
        let seed = random.clone().next();
        let design = |number: u16| Forgetful::new(percent, drops, seed ^ u64::from(number) << 32);
        let delivery = |number| match drops {
            true => lossy(number, max_payload_bytes),
            false => Delivery::Lossless,
        };
        let nic = |number| {
            let (design, delivery) = (design(number), delivery(number));
            nic_with(number, nodes, 1 << 24, max_payload_bytes, design, delivery)
        };
        let node = |number| Node {
            nic: nic(number),
            memory: Memory::default(),
            queues: BTreeMap::new(),
            buffers: BTreeMap::new(),
            next_buffer: 0,
            moves: VecDeque::new(),
            early: VecDeque::new(),
            told: Vec::new(),
            messages: Vec::new(),
            due: BTreeMap::new(),
        };
        Self {
            nodes: (0..nodes as u16).map(node).collect(),
            max_payload_bytes,
            now_ns: 1,
            lossy: drops,
            harm_percent: 0,
            cut: Vec::new(),
            neighbours_percent: 0,
            wires: BTreeMap::new(),
            random,
            blocked_percent: 0,
            wire_packets: 64,
            slow_moves: false,
            log: None,
        }
    }

    pub(crate) fn nic(&mut self, node: u16) -> &mut Nic<Forgetful> {
        &mut self.nodes[usize::from(node)].nic
    }

    pub(crate) fn open(&mut self, node: u16, process: u16) {
        let node = &mut self.nodes[usize::from(node)];
        node.nic.open_process(ProcessId(process)).unwrap();
        node.queues.insert(process, VecDeque::new());
    }

    /// Pins the pages of a range, zeroed; `neighbours_percent` of them in consecutive frames.
    pub(crate) fn pin(&mut self, node: u16, process: u16, address: u64, length: u64) {
        let node = &mut self.nodes[usize::from(node)];
        for page in address / PAGE..(address + length).div_ceil(PAGE) {
            let gap = match self.neighbours_percent > 0 && self.random.chance(self.neighbours_percent) {
                true => 1,
                false => 7,
            };
            let frame = node.memory.next_frame + gap;
            node.memory.next_frame = frame;
            node.memory.frames.insert(frame, vec![0; PAGE_BYTES]);
            node.nic.install_pages(mapwire_translation::Process(process), Page(page), &[Frame(frame)]).unwrap();
        }
    }

    /// Unpins them and drops their frames.
    pub(crate) fn unpin(&mut self, node: u16, process: u16, address: u64, length: u64) {
        let node = &mut self.nodes[usize::from(node)];
        for page in address / PAGE..(address + length).div_ceil(PAGE) {
            let frame = node.nic.frame_of(ProcessId(process), Page(page));
            assert!(!frame.is_garbage());
            // A closed process has no table any more.
            let _ = node.nic.design_mut().remove(mapwire_translation::Process(process), Page(page));
            node.memory.frames.remove(&frame.0);
        }
    }

    /// Drops the frames of all pages of a range, whose translations are gone.
    pub(crate) fn drop_frames(&mut self, node: u16, frames: &[Frame]) {
        for frame in frames {
            self.nodes[usize::from(node)].memory.frames.remove(&frame.0);
        }
    }

    pub(crate) fn frames(&self, node: u16, process: u16, address: u64, length: u64) -> Vec<Frame> {
        (address / PAGE..(address + length).div_ceil(PAGE))
            .map(|page| self.nodes[usize::from(node)].nic.frame_of(ProcessId(process), Page(page)))
            .collect()
    }

    pub(crate) fn poke(&mut self, node: u16, process: u16, address: u64, bytes: &[u8]) {
        let node = &mut self.nodes[usize::from(node)];
        let mut done = 0;
        for (page, start, end) in by_page(address, bytes.len() as u64) {
            let frame = node.nic.frame_of(ProcessId(process), page);
            let frame = node.memory.frames.get_mut(&frame.0).expect("pinned");
            frame[start..end].copy_from_slice(&bytes[done..done + end - start]);
            done += end - start;
        }
    }

    pub(crate) fn peek(&self, node: u16, process: u16, address: u64, length: u64) -> Vec<u8> {
        let node = &self.nodes[usize::from(node)];
        let mut bytes = Vec::new();
        for (page, start, end) in by_page(address, length) {
            let frame = node.nic.frame_of(ProcessId(process), page);
            let frame = node.memory.frames.get(&frame.0).expect("pinned");
            bytes.extend_from_slice(&frame[start..end]);
        }
        bytes
    }

    /// All frames of a node, byte by byte.
    pub(crate) fn snapshot(&self, node: u16) -> BTreeMap<u64, Vec<u8>> {
        self.nodes[usize::from(node)].memory.frames.clone()
    }

    /// Exports a range, pinning nothing.
    pub(crate) fn export(&mut self, node: u16, process: u16, address: u64, length: u64) -> (ExportId, Key) {
        let key = Key(core::array::from_fn(|_| self.random.next() as u8 | 1));
        let entry = Export { process: ProcessId(process), key, address, length, rights: Rights::ALL, landing: None };
        (self.nic(node).export(entry).unwrap(), key)
    }

    pub(crate) fn import(
        &mut self,
        node: u16,
        process: u16,
        from: u16,
        (export, key): (ExportId, Key),
        length: u64,
    ) -> ImportId {
        let entry = Import {
            process: ProcessId(process),
            node: NodeId(from),
            export,
            key,
            length,
            rights: Rights::ALL,
            revoked: false,
            refused: Default::default(),
        };
        self.nic(node).import(entry).unwrap()
    }

    /// Writes a command to a process's queue.
    pub(crate) fn submit(&mut self, node: u16, process: u16, command: &CommandRepr, data: &[u8]) {
        let mut inline = vec![0; INLINE_BYTES];
        let (header, length) = command.emit(data, &mut inline).unwrap();
        inline.truncate(length);
        let queue = self.nodes[usize::from(node)].queues.get_mut(&process);
        queue.expect("open").push_back((header, inline));
    }

    /// Gives the NIC the commands that it accepts. Returns whether there were any.
    pub(crate) fn serve(&mut self, node: u16, process: u16) -> bool {
        let node = &mut self.nodes[usize::from(node)];
        let mut served = false;
        while node.nic.accepts_command(ProcessId(process)) {
            let queue = node.queues.get_mut(&process).expect("open");
            let Some((header, inline)) = queue.pop_front() else {
                break;
            };
            node.nic.handle_command(ProcessId(process), &header, &inline);
            served = true;
        }
        served
    }

    /// Transmits one packet. Whether there was one.
    pub(crate) fn transmit(&mut self, number: u16) -> bool {
        if self.lossy {
            return self.transmit_datagram(number);
        }
        let blocked = self.random.below(100) < self.blocked_percent;
        let node = &mut self.nodes[usize::from(number)];
        let Some(transmit) = node.nic.poll_transmit() else {
            return false;
        };
        let to = transmit.to;
        let wire = self.wires.entry((number, to.0)).or_default();
        if blocked || wire.len() >= self.wire_packets {
            node.nic.handle_transmit_blocked(to);
            return true;
        }
        let sent = read(&mut node.memory, transmit);
        assert!(sent.payload.len() <= self.max_payload_bytes);
        if let Some(log) = &mut self.log {
            log.push((number, to.0, sent.clone()));
        }
        wire.push_back(sent);
        node.nic.handle_transmitted(to);
        true
    }

    fn transmit_datagram(&mut self, number: u16) -> bool {
        let node = &mut self.nodes[usize::from(number)];
        let Some(datagram) = node.nic.poll_datagram(self.now_ns) else {
            return false;
        };
        let to = datagram.to.0;
        let mut bytes = datagram.header.emit().to_vec();
        let mut sent = Sent::plain(Header::ZERO, Vec::new());
        match datagram.body {
            DatagramBody::None => {}
            DatagramBody::Ack(ack) => {
                let mut ranges = [0; MAX_ACK_BYTES];
                let length = ack.emit(&mut ranges);
                bytes.extend(&ranges[..length]);
            }
            DatagramBody::Packet(transmit) => {
                sent = read(&mut node.memory, transmit);
                bytes.extend(sent.header.as_bytes());
                bytes.extend(&sent.payload);
            }
        }
        sent.datagram = bytes;
        if let Some(log) = &mut self.log {
            log.push((number, to, sent.clone()));
        }
        let harmed = |random: &mut Random, percent| random.chance(percent);
        let (random, harm) = (&mut self.random, self.harm_percent);
        let wire = self.wires.entry((number, to)).or_default();
        if self.cut.contains(&number) || self.cut.contains(&to) {
            return true;
        }
        if harm == 0 {
            wire.push_back(sent);
            return true;
        }
        if harmed(random, harm) || wire.len() >= self.wire_packets {
            return true;
        }
        if harmed(random, harm) {
            wire.push_front(sent.clone());
        }
        match harmed(random, harm) {
            true => wire.push_front(sent),
            false => wire.push_back(sent),
        }
        true
    }

    /// Isolates a node from here on.
    pub(crate) fn cut(&mut self, node: u16) {
        self.cut.push(node);
    }

    /// A node starts anew: its NIC knows nothing, and no process is open.
    pub(crate) fn restart(&mut self, number: u16) {
        let nodes = self.nodes.len();
        let design = Forgetful::new(0, true, 0);
        // Another epoch than the former's.
        let delivery = lossy(number + 7_000, self.max_payload_bytes);
        let bytes = self.max_payload_bytes;
        let node = &mut self.nodes[usize::from(number)];
        node.nic = nic_with(number, nodes, 1 << 24, bytes, design, delivery);
        node.memory = Memory::default();
        node.queues.clear();
        node.moves.clear();
        node.early.clear();
    }

    /// Lets time pass on all clocks.
    pub(crate) fn tick(&mut self, ns: u64) {
        self.now_ns += ns;
        for node in &mut self.nodes {
            node.nic.handle_time(self.now_ns);
        }
    }

    /// Takes the next packet of a wire in. Whether there was one.
    pub(crate) fn receive(&mut self, from: u16, to: u16) -> bool {
        if self.lossy && self.nodes[usize::from(to)].early.iter().any(|early| early.0 == from) {
            let waiting = self.nodes[usize::from(to)].early.len();
            self.take_early(to);
            return self.serve_misses(to) || self.nodes[usize::from(to)].early.len() < waiting;
        }
        let Some(sent) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        if self.offer(from, to, &sent) == Verdict::Wait {
            self.wires.entry((from, to)).or_default().push_front(sent);
            return self.serve_misses(to);
        }
        true
    }

    /// The host of a node serves its NIC's requests. Returns whether there were any.
    pub(crate) fn serve_misses(&mut self, number: u16) -> bool {
        let nic = self.nic(number);
        let mut served = false;
        while let Some(request) = nic.poll_miss() {
            served = true;
            let design = nic.design_mut();
            match request {
                HostRequest::Fill { process, pages, .. } => {
                    design.fill(process, pages, &mut Vec::new());
                }
                HostRequest::FillBuffer { process, buffer } => design.fill_buffer(process, buffer),
                other => panic!("{other:?} is nothing that this design asks for"),
            }
        }
        if served {
            nic.handle_miss_served();
        }
        served
    }

    /// Gives a packet to a NIC as it is, which takes it.
    pub(crate) fn inject(&mut self, from: u16, to: u16, sent: &Sent) {
        assert_eq!(self.offer(from, to, sent), Verdict::Taken);
    }

    fn offer(&mut self, from: u16, to: u16, sent: &Sent) -> Verdict {
        if self.lossy {
            return self.offer_datagram(from, to, &sent.datagram);
        }
        self.offer_packet(from, to, &sent.header, &sent.payload)
    }

    fn offer_datagram(&mut self, from: u16, to: u16, datagram: &[u8]) -> Verdict {
        let node = &mut self.nodes[usize::from(to)];
        let buffer = node.next_buffer;
        node.next_buffer += 1;
        let payload = datagram.get(LINK_HEADER_BYTES + HEADER_BYTES..);
        node.buffers.insert(buffer, payload.unwrap_or_default().to_vec());
        let peer = NodeId(from);
        let verdict = node.nic.handle_datagram(self.now_ns, peer, datagram, BufferId(buffer));
        self.collect(to);
        let node = &mut self.nodes[usize::from(to)];
        while let Some(packet) = node.nic.poll_early(peer) {
            node.early.push_back((from, packet));
        }
        self.take_early(to);
        verdict
    }

    /// Gives packets that came early to the NIC, up to one that waits for the host.
    fn take_early(&mut self, to: u16) {
        while let Some((from, packet)) = self.nodes[usize::from(to)].early.pop_front() {
            let (header, payload) = Header::read_from_prefix(&packet).unwrap();
            if self.offer_packet(from, to, &header, payload) == Verdict::Wait {
                self.nodes[usize::from(to)].early.push_front((from, packet));
                return;
            }
        }
    }

    fn offer_packet(&mut self, from: u16, to: u16, header: &Header, payload: &[u8]) -> Verdict {
        let node = &mut self.nodes[usize::from(to)];
        let buffer = node.next_buffer;
        node.next_buffer += 1;
        node.buffers.insert(buffer, payload.to_vec());
        let inline = if payload.len() <= INLINE_BYTES { payload } else { &[] };
        let trailer = || {
            let last = payload.last_chunk::<SIGNAL_TRAILER_BYTES>();
            *last.expect("asked for only when there")
        };
        *node.due.entry(from).or_default() += 1;
        let verdict = node.nic.handle_packet(NodeId(from), header, inline, trailer, BufferId(buffer));
        self.collect(to);
        verdict
    }

    /// Takes what a NIC asks for: moves and things to tell.
    pub(crate) fn collect(&mut self, number: u16) {
        let slow = self.slow_moves;
        let node = &mut self.nodes[usize::from(number)];
        while let Some(dma) = node.nic.poll_dma() {
            node.moves.push_back(dma);
        }
        if !slow {
            while self.do_move(number) {}
        }
        let node = &mut self.nodes[usize::from(number)];
        while let Some(completion) = node.nic.poll_completion() {
            if let Completion::Message { from, length, buffer, .. } = completion {
                let payload = &node.buffers[&buffer.0];
                assert_eq!(payload.len(), length as usize);
                node.messages.push((from.node, payload.clone()));
            }
            node.told.push(completion);
        }
    }

    /// Does the next memory move. Returns whether there was one.
    pub(crate) fn do_move(&mut self, number: u16) -> bool {
        let node = &mut self.nodes[usize::from(number)];
        let Some(dma) = node.moves.pop_front() else {
            return false;
        };
        let payload = &node.buffers[&dma.buffer.0];
        if dma.piece.length > 0 {
            let bytes = &payload[dma.at as usize..][..dma.piece.length as usize];
            node.memory.write(dma.piece, bytes);
        }
        if let Some(signal) = dma.signal {
            assert_eq!((signal.piece.length, signal.piece.offset % 8), (8, 0));
            let mut before = || as_number(&node.memory.read(signal.piece));
            let after = match signal.op {
                SignalOp::Set => signal.value,
                SignalOp::Add => before().wrapping_add(signal.value),
                SignalOp::Or => before() | signal.value,
            };
            node.memory.write(signal.piece, &after.to_le_bytes());
        }
        let mut old = 0;
        if let Some(update) = dma.update {
            let bytes = update.piece.length as usize;
            assert_eq!(bytes as u64, update.atomic.width.bytes());
            assert!(update.atomic.width.fits(update.piece.offset.into()));
            old = as_number(&node.memory.read(update.piece));
            let new = update.atomic.result(old).to_le_bytes();
            node.memory.write(update.piece, &new[..bytes]);
        }
        node.nic.handle_dma_done(&dma, old);
        true
    }

    /// Does one thing that may happen now, drawn at random. False when nothing may.
    pub(crate) fn step(&mut self) -> bool {
        let nodes = self.nodes.len() as u16;
        let mut choices: Vec<(u8, u16, u16)> = Vec::new();
        for (number, node) in (0..).zip(&self.nodes) {
            for (&process, queue) in &node.queues {
                if !queue.is_empty() && node.nic.accepts_command(ProcessId(process)) {
                    choices.push((0, number, process));
                }
            }
            choices.push((1, number, 0));
            if !node.moves.is_empty() {
                choices.push((3, number, 0));
            }
            if let Some((from, _)) = node.early.front() {
                choices.push((2, *from, number));
            }
            if node.nic.has_misses() {
                choices.push((4, number, 0));
            }
        }
        for (&(from, to), wire) in &self.wires {
            if !wire.is_empty() {
                choices.push((2, from, to));
            }
        }
        while !choices.is_empty() {
            let choice = self.random.below(choices.len() as u64) as usize;
            let (what, one, other) = choices.swap_remove(choice);
            let done = match what {
                0 => self.serve(one, other),
                1 => {
                    for to in 0..nodes {
                        self.nic(one).handle_transmit_ready(NodeId(to));
                    }
                    self.transmit(one)
                }
                2 => self.receive(one, other),
                3 => self.do_move(one),
                _ => self.serve_misses(one),
            };
            if done {
                self.collect(one);
                return true;
            }
        }
        // A transfer that was tried may have asked its host for something.
        if self.nodes.iter().any(|node| node.nic.has_misses()) {
            return true;
        }
        let Some(next_ns) = self.nodes.iter().filter_map(|node| node.nic.poll_at()).min() else {
            return false;
        };
        self.tick(next_ns.saturating_sub(self.now_ns).max(1));
        true
    }

    /// Lets everything happen that may.
    pub(crate) fn settle(&mut self) {
        let mut steps = 0u64;
        while self.step() {
            steps += 1;
            assert!(steps < 10_000_000, "it never comes to rest");
        }
        for node in &mut self.nodes {
            node.buffers.clear();
        }
    }

    /// Everything reported at a node since the last call.
    pub(crate) fn take_told(&mut self, node: u16) -> Vec<Completion> {
        std::mem::take(&mut self.nodes[usize::from(node)].told)
    }

    /// Packets on the wire from one node to another.
    pub(crate) fn on_wire(&self, from: u16, to: u16) -> usize {
        self.wires.get(&(from, to)).map_or(0, VecDeque::len)
    }
}

/// The pages of a range, each with the part of it that the range covers.
fn by_page(address: u64, length: u64) -> impl Iterator<Item = (Page, usize, usize)> {
    let end = address + length;
    (address / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let start = address.max(page * PAGE) - page * PAGE;
        let end = end.min((page + 1) * PAGE) - page * PAGE;
        (Page(page), start as usize, end as usize)
    })
}

/// Decodes up to eight bytes.
fn as_number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn read(memory: &mut Memory, transmit: &Transmit) -> Sent {
    let (payload, of) = match &transmit.source {
        Source::Inline { bytes, length } => (bytes[..usize::from(*length)].to_vec(), None),
        Source::Message(bytes) => (bytes.to_vec(), None),
        Source::Memory { process, piece, trailer, .. } => {
            let mut payload = memory.read(*piece);
            payload.extend(trailer.iter().flatten());
            (payload, Some(*process))
        }
    };
    assert_eq!(payload.len(), transmit.header.payload_bytes() as usize);
    Sent { header: transmit.header, payload, of, datagram: Vec::new() }
}

/// `length` bytes that depend on `seed`, none of them zero.
pub(crate) fn pattern(seed: u64, length: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..length).map(|_| random.next() as u8 | 1).collect()
}

/// Words reported as done and as failed, in order.
pub(crate) fn words(told: &[Completion]) -> (Vec<u32>, Vec<u32>) {
    let mut done = Vec::new();
    let mut failed = Vec::new();
    for completion in told {
        match *completion {
            Completion::Done { completion, .. } => done.push(completion),
            Completion::Failed { completion: Some(completion), .. } => failed.push(completion),
            _ => {}
        }
    }
    (done, failed)
}
