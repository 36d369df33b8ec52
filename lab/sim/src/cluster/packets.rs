//! Packets under way, and the places that they have.

use mapwire_nic::Source;
use mapwire_wire::link::LINK_HEADER_BYTES;
use mapwire_wire::{HEADER_BYTES, Header, Kind, NodeId};

use super::memory::{BadAccess, Memory};
use super::{Cluster, Event, KEPT_BYTES};

#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) form: Form,
    /// By which a datagram goes.
    pub(super) path: u8,
    /// That of a datagram is within its payload.
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    /// Changed on the way: the transport's checksum does not fit.
    pub(super) is_damaged: bool,
    /// Set while the source has not been read, by a canary only.
    pub(super) late: Option<Source>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A packet of a lossless transport.
    Plain,
    /// A datagram of one that may lose it.
    Datagram,
    /// A packet that came in a datagram before its turn.
    Early,
}

impl Packet {
    pub(super) const NONE: Self = Self {
        from: NodeId(0),
        to: NodeId(0),
        form: Form::Plain,
        path: 0,
        header: Header::ZERO,
        payload: Vec::new(),
        is_damaged: false,
        late: None,
    };

    /// Whether it is a store.
    pub(super) fn is_store(&self) -> bool {
        // The kind is a header's second byte.
        let kind = match self.form {
            Form::Plain | Form::Early => Some(&self.header.kind),
            Form::Datagram => self.payload.get(LINK_HEADER_BYTES + 1),
        };
        kind == Some(&(Kind::Store as u8))
    }

    pub(super) fn body(&self) -> &[u8] {
        let start = match self.form {
            Form::Plain => 0,
            Form::Datagram => LINK_HEADER_BYTES + HEADER_BYTES,
            Form::Early => HEADER_BYTES,
        };
        self.payload.get(start..).unwrap_or_default()
    }
}

impl Cluster {
    /// The packet has been taken, or is lost with its receiver.
    pub(super) fn let_go(&mut self, packet: u32) {
        let Packet { from, to, form, .. } = self.packets[packet as usize];
        self.recycle(packet);
        if form == Form::Early {
            return;
        }
        let now_ns = self.now_ns;
        let link = self.link(from, to);
        link.queued -= 1;
        if link.is_full {
            link.is_full = false;
            let host = &mut self.hosts[usize::from(from.0)];
            if host.is_alive && !host.has_room_event {
                host.has_room_event = true;
                self.agenda.enter(now_ns + 1, Event::Room(from));
            }
        }
    }

    /// The place of a packet may be used again.
    pub(super) fn recycle(&mut self, packet: u32) {
        let payload = &mut self.packets[packet as usize].payload;
        payload.clear();
        payload.shrink_to(KEPT_BYTES);
        self.free_packets.push(packet);
    }

    /// A place for a packet, empty.
    pub(super) fn slot(packets: &mut Vec<Packet>, free: &mut Vec<u32>) -> u32 {
        let index = free.pop().unwrap_or_else(|| {
            packets.push(Packet::NONE);
            packets.len() as u32 - 1
        });
        let slot = &mut packets[index as usize];
        (slot.is_damaged, slot.late) = (false, None);
        index
    }
}

/// Appends what a packet carries.
pub(crate) fn read_source(memory: &mut Memory, source: &Source, payload: &mut Vec<u8>) -> Result<(), BadAccess> {
    match source {
        Source::Inline { bytes, length } => {
            payload.extend_from_slice(&bytes[..usize::from(*length)]);
        }
        Source::Message(bytes) => payload.extend_from_slice(bytes),
        Source::Memory { process, piece, trailer, .. } => {
            memory.gather(process.0, *piece, payload)?;
            payload.extend(trailer.iter().flatten());
        }
    }
    Ok(())
}
