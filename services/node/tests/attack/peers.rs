//! What hostile peers know and send.

use mapwire_dsm::Message;
use mapwire_node::{NOTICE_HANDLER, notice};
use mapwire_wire::link::{LinkAck, LinkHeader, LinkKind, MAX_ACK_BYTES};
use mapwire_wire::{
    ControlMessage, ExportId, FetchId, HEADER_BYTES, HandlerId, Header, Key, ProcessId, Refusal, Repr, Rights,
};

use super::counter::COUNTER;
use super::hostile::{asked, flip, near};
use super::messages::{answer, message, payload};
use super::{Attack, Exported, Random, SHARED};

/// A peer: the numbers that are due from it, and what it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    /// The packet that the node expects next.
    pub(crate) due: u32,
    /// What it was asked last: a fetch, and a message of the shared memory.
    pub(crate) asked: Option<(FetchId, Key, u64)>,
    pub(crate) heard: Option<Message>,
    /// A request for an import, and the process that made it.
    pub(crate) request: Option<(u32, ProcessId)>,
    /// Of its link: its incarnation, the node's, its next transmission, and the packet that it expects.
    pub(crate) epoch: u64,
    pub(crate) of_node: u64,
    pub(crate) number: u64,
    pub(crate) expected: u32,
}

impl Peer {
    /// Learns from a packet that it was sent.
    pub(crate) fn learn(&mut self, header: &Header, payload: &[u8]) {
        self.asked = asked(header, payload).or(self.asked);
        match Repr::parse(header, payload) {
            Ok(Repr::Handler { handler: HandlerId::CONTROL, from, .. }) => {
                if let Ok(ControlMessage::ImportRequest { request, .. }) = ControlMessage::parse(payload) {
                    self.request = Some((request, from));
                }
            }
            Ok(Repr::Handler { handler: SHARED, .. }) => {
                self.heard = Message::parse(payload).ok().map(|(message, _)| message)
            }
            _ => {}
        }
    }

    /// The header of its next datagram.
    pub(crate) fn link_header(&mut self, kind: LinkKind) -> LinkHeader {
        self.number += 1;
        LinkHeader {
            kind,
            path: 0,
            expected: self.expected,
            epoch: self.epoch,
            peer_epoch: self.of_node,
            number: self.number,
            sequence: self.due,
        }
    }

    /// A packet in a datagram.
    pub(crate) fn datagram(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut bytes = self.link_header(LinkKind::Data).emit().to_vec();
        let header: [u8; HEADER_BYTES] = zerocopy::transmute!(*header);
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A datagram of its link alone, partly wrong.
    pub(crate) fn greeting(&mut self, random: &mut Random) -> Vec<u8> {
        if random.chance(5) {
            self.epoch = random.within(1, 9);
            (self.due, self.expected) = (0, 0);
        }
        let kinds = [LinkKind::Hello, LinkKind::Welcome, LinkKind::Ack, LinkKind::Ack, LinkKind::Again];
        let mut header = self.link_header(kinds[random.below(5) as usize]);
        header.sequence = 0;
        match header.kind {
            LinkKind::Hello => (header.peer_epoch, header.expected) = (0, 0),
            LinkKind::Welcome => header.expected = 0,
            _ if random.chance(20) => header.expected = near(random, 40) as u32,
            _ => {}
        }
        let mut bytes = header.emit().to_vec();
        if header.kind == LinkKind::Ack {
            let last = random.below(60);
            let ranges = [(last.saturating_sub(random.below(9)), last)];
            let mut ack = [0; MAX_ACK_BYTES];
            let length = LinkAck::new(0, ranges).map_or(0, |made| made.emit(&mut ack));
            bytes.extend_from_slice(&ack[..length]);
        }
        flip(random, 20, &mut bytes);
        bytes
    }
}

impl Attack {
    /// An export of the node, or one that never was.
    pub(super) fn some_export(&mut self) -> Exported {
        let none = Exported {
            process: super::FAIR,
            id: ExportId(0x1_0000),
            key: Key([9; 16]),
            address: 0,
            length: 64,
            rights: Rights::ALL,
            landings: Vec::new(),
        };
        match self.exports.len() as u64 {
            0 => none,
            count => self.exports[self.random.below(count) as usize].clone(),
        }
    }

    /// A message for a handler of the node, and its bytes.
    pub(super) fn message(&mut self, from: u16) -> (Repr, Vec<u8>) {
        let export = self.some_export();
        let known = self.peers[usize::from(from)];
        let random = &mut self.random;
        let to = match known.request {
            Some((_, process)) if random.chance(50) => process,
            _ => ProcessId(random.below(3) as u16),
        };
        let (handler, mut bytes) = match random.below(16) {
            0..6 => (HandlerId::CONTROL, self.control(from, &export)),
            6..13 => {
                let (places, ranks) = (&self.minipages, super::NODES);
                let is_lazy = random.chance(30);
                let message = match known.heard {
                    Some(heard) if random.chance(70) => answer(random, heard, places, ranks, is_lazy),
                    _ => message(random, places, ranks, is_lazy),
                };
                let mut bytes = [0; mapwire_dsm::MAX_MESSAGE_BYTES];
                let length = message.encode(&mut bytes);
                let riding = if is_lazy { payload(random, ranks) } else { Vec::new() };
                (SHARED, [&bytes[..length], &riding].concat())
            }
            13 => {
                let (offset, length) = (near(random, 300), near(random, 300));
                let told = notice(export.id, export.key, offset, length);
                (NOTICE_HANDLER, told.to_vec())
            }
            14 => {
                let mut bytes = vec![random.below(2) as u8; 9];
                bytes[1..].fill(random.byte());
                (COUNTER, bytes)
            }
            _ => (HandlerId(random.next() as u32), vec![random.byte(); 80]),
        };
        flip(&mut self.random, self.flips, &mut bytes);
        let message =
            Repr::Handler { handler, from: ProcessId(self.random.below(2) as u16), to, length: bytes.len() as u32 };
        (message, bytes)
    }

    fn control(&mut self, from: u16, export: &Exported) -> Vec<u8> {
        let random = &mut self.random;
        let request = match self.peers[usize::from(from)].request {
            Some((request, _)) if random.chance(80) => request,
            _ => random.below(9) as u32,
        };
        let name = ["a", "b", "c"][random.below(3) as usize];
        let rights = [Rights::ALL, Rights::STORE, Rights::FETCH][random.below(3) as usize];
        let (id, key) = (export.id, export.key);
        let message = match random.below(16) {
            0..6 => ControlMessage::ImportRequest { request, name, rights, token: random.chance(20).then_some(key) },
            6 => ControlMessage::ImportCancel { request },
            7..11 => ControlMessage::ImportGranted {
                request,
                export: ExportId(0x1_0000 | random.below(3) as u32),
                key: Key([8; 16]),
                length: near(random, 9_000),
                rights,
                direct: None,
            },
            11 => ControlMessage::ImportRefused { request, reason: Refusal::NoRight },
            12 if random.chance(20) => ControlMessage::Revoked { export: ExportId(0x1_0000 | random.below(3) as u32) },
            13 | 14 => ControlMessage::Released { export: id, key },
            _ if random.chance(10) => ControlMessage::Goodbye,
            _ => ControlMessage::ImportCancel { request },
        };
        message.to_vec().unwrap_or_default()
    }
}
