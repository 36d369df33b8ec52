//! Nodes, their memory, and a wire between them that loses nothing and takes no time.

use std::collections::BTreeMap;

use mapwire_nic::{BufferId, Config, Delivery, Piece, Source, Verdict};
use mapwire_node::{Act, Ask, NoPayload, Node, NodeConfig, Told};
use mapwire_translation::{CacheConfig, Frame, Hierarchical, PAGE_BYTES, PageRange, PinPages, PinRules, Process};
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, Header, ImportId, Key, NodeId, ProcessId};

/// Process `process` of node `node`.
pub(crate) fn at(node: u16, process: u16) -> Endpoint {
    Endpoint { node: NodeId(node), process: ProcessId(process) }
}

/// Memory of a node's processes: the frame of page `p` of process `q` is `q << 32 | p`.
#[derive(Debug, Default)]
pub(crate) struct Memory(BTreeMap<u64, Vec<u8>>);

impl PinPages for Memory {
    type Error = core::convert::Infallible;

    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), Self::Error> {
        for (page, frame) in (run.first.0..).zip(frames) {
            *frame = frame_of(process.0, page);
        }
        Ok(())
    }

    fn unpin(&mut self, _: Process, _: PageRange, _: &[Frame]) -> Result<(), Self::Error> {
        Ok(())
    }
}

fn frame_of(process: u16, page: u64) -> Frame {
    Frame(u64::from(process) << 32 | page)
}

impl Memory {
    fn page(&mut self, frame: u64) -> &mut Vec<u8> {
        self.0.entry(frame).or_insert_with(|| vec![0; PAGE_BYTES])
    }

    fn byte(&mut self, piece: &Piece, at: usize) -> &mut u8 {
        let offset = piece.offset as usize + at;
        let frame = piece.frame.0 + (offset / PAGE_BYTES) as u64;
        &mut self.page(frame)[offset % PAGE_BYTES]
    }

    fn read(&mut self, piece: &Piece) -> Vec<u8> {
        (0..piece.length as usize).map(|at| *self.byte(piece, at)).collect()
    }
}

/// The nodes.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node<Hierarchical>>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) told: Vec<Vec<Told>>,
    pub(crate) asked: Vec<Vec<Ask>>,
    /// Imports of a process's shared memory by another, and where its own begins.
    pub(crate) segments: BTreeMap<(Endpoint, Endpoint), (ImportId, u64)>,
    /// Takes nothing that is sent to it.
    pub(crate) deaf: Option<NodeId>,
}

impl World {
    /// So many nodes, of so many processes each.
    pub(crate) fn new(nodes: u16, processes: u16) -> Self {
        let node = |number| {
            let nic = Config {
                node: NodeId(number),
                reply_keys: (0..nodes).map(|peer| key(number, peer)).collect(),
                memory_bytes: 16 << 20,
                max_payload_bytes: 4096,
                delivery: Delivery::Lossless,
            };
            let design = Hierarchical::new(CacheConfig::default()).unwrap();
            let mut node = Node::new(NodeConfig { nic, uid: 1000 }, design).unwrap();
            for process in 0..processes {
                node.open_process(ProcessId(process), PinRules::default(), 16).unwrap();
            }
            for peer in 0..nodes {
                node.make_room(NodeId(peer));
            }
            node
        };
        let count = usize::from(nodes);
        Self {
            nodes: (0..nodes).map(node).collect(),
            memories: (0..nodes).map(|_| Memory::default()).collect(),
            told: vec![Vec::new(); count],
            asked: vec![Vec::new(); count],
            segments: BTreeMap::new(),
            deaf: None,
        }
    }

    /// The program of `from` sends a message of its own making.
    pub(crate) fn send(&mut self, from: Endpoint, to: Endpoint, handler: HandlerId, data: &[u8]) {
        let length = data.len() as u32;
        let command = CommandRepr::Handler { to, handler, length };
        self.nodes[usize::from(from.node.0)].handle_own_command(from.process, &command, data);
    }

    /// Writes memory of a process.
    pub(crate) fn write(&mut self, of: Endpoint, address: u64, data: &[u8]) {
        let memory = &mut self.memories[usize::from(of.node.0)];
        for (at, byte) in (address as usize..).zip(data) {
            let frame = frame_of(of.process.0, (at / PAGE_BYTES) as u64);
            memory.page(frame.0)[at % PAGE_BYTES] = *byte;
        }
    }

    /// Reads memory of a process.
    pub(crate) fn read(&mut self, of: Endpoint, address: u64, length: usize) -> Vec<u8> {
        let memory = &mut self.memories[usize::from(of.node.0)];
        let first = address as usize;
        let byte = |at: usize| {
            let frame = frame_of(of.process.0, (at / PAGE_BYTES) as u64);
            memory.page(frame.0)[at % PAGE_BYTES]
        };
        (first..first + length).map(byte).collect()
    }

    /// Passes everything on until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        while (0..self.nodes.len()).fold(false, |any, node| self.step(node) | any) {}
    }

    /// One node does and transmits what it can. Whether there was anything.
    pub(crate) fn step(&mut self, number: usize) -> bool {
        let mut worked = false;
        let from = NodeId(number as u16);
        worked |= self.drain(number, None);
        while let Some(packet) = self.nodes[number].poll_transmit() {
            let (to, header) = (packet.to, packet.header);
            if self.deaf == Some(to) {
                self.nodes[number].handle_transmit_blocked(to);
                continue;
            }
            worked = true;
            let payload = match &packet.source {
                Source::Inline { bytes, length } => bytes[..usize::from(*length)].to_vec(),
                Source::Message(bytes) => bytes.to_vec(),
                Source::Memory { piece, trailer, .. } => {
                    let mut bytes = self.memories[number].read(piece);
                    bytes.extend(trailer.iter().flatten());
                    bytes
                }
            };
            self.nodes[number].handle_transmitted(to);
            self.give(to, from, &header, &payload);
        }
        worked
    }

    /// A packet arrives, which `from` has sent.
    pub(crate) fn give(&mut self, to: NodeId, from: NodeId, header: &Header, payload: &[u8]) {
        let receiver = usize::from(to.0);
        let verdict = self.nodes[receiver].handle_packet(from, header, &payload, BufferId(0));
        assert_eq!(verdict, Verdict::Taken, "pages are pinned before");
        self.drain(receiver, Some((from, payload)));
    }

    /// Does what a node asks for, with the payload of the packet that it was given last.
    fn drain(&mut self, number: usize, packet: Option<(NodeId, &[u8])>) -> bool {
        let (node, memory) = (&mut self.nodes[number], &mut self.memories[number]);
        let payload = packet.map_or(&[][..], |(_, payload)| payload);
        while let Some(dma) = node.poll_move() {
            for at in 0..dma.piece.length as usize {
                *memory.byte(&dma.piece, at) = payload[dma.at as usize + at];
            }
            if let Some(signal) = dma.signal {
                for (at, byte) in signal.value.to_le_bytes().into_iter().enumerate() {
                    *memory.byte(&signal.piece, at) = byte;
                }
            }
            node.handle_moved(&dma, 0);
        }
        let (told, asked) = (&mut self.told[number], &mut self.asked[number]);
        let mut worked = false;
        let tell = |node: &mut Node<Hierarchical>| match packet {
            Some(_) => node.poll_told(&payload, || 0),
            None => node.poll_told(&NoPayload, || 0),
        };
        while let Some(next) = tell(node) {
            told.push(next);
            worked = true;
        }
        if let Some((from, _)) = packet {
            node.end_packet(from);
        }
        worked |= node.has_asks();
        while let Some(ask) = node.poll_ask() {
            if let Act::Store { to, region, .. } = ask.act {
                let of = Endpoint { node: node.nic().node(), process: ask.process };
                match self.segments.get(&(of, to)) {
                    None => node.handle_stored(ask.process, false),
                    Some(&(import, base)) => {
                        let address = base + region.offset;
                        node.store_by_import(ask.process, memory, import, address).unwrap();
                    }
                }
            }
            asked.push(ask);
        }
        worked
    }
}

/// A key that differs for each pair.
pub(crate) fn key(a: u16, b: u16) -> Key {
    let mut key = [7; 16];
    key[..2].copy_from_slice(&a.to_le_bytes());
    key[2..4].copy_from_slice(&b.to_le_bytes());
    Key(key)
}
