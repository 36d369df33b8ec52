//! What a node sends and takes: packets, and datagrams of links.

use mapwire_nic::{BufferId, DatagramBody, Source, Transmit, Verdict};
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_wire::link::{LINK_HEADER_BYTES, LinkHeader, MAX_ACK_BYTES};
use mapwire_wire::{HEADER_BYTES, Header, Kind, NodeId};
use zerocopy::FromBytes;

use super::memory::{BadAccess, Memory};

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) form: Form,
    /// By which a datagram goes.
    pub(crate) path: u8,
    /// That of a datagram is within its payload.
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    /// Changed on the way: the transport's checksum does not fit.
    pub(crate) is_damaged: bool,
    /// Set while the source has not been read, by a canary only.
    pub(crate) late: Option<Source>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A packet of a lossless transport.
    Plain,
    /// A datagram of one that may lose it.
    Datagram,
    /// A packet that came in a datagram before its turn.
    Early,
}

impl Packet {
    pub(crate) const NONE: Self = Self {
        from: NodeId(0),
        to: NodeId(0),
        form: Form::Plain,
        path: 0,
        header: Header::ZERO,
        payload: Vec::new(),
        is_damaged: false,
        late: None,
    };

    /// The next packet of `from` that came to `to` before its turn, which has come. It was checked as it came.
    pub(crate) fn poll_early(node: &mut Node<AnyDesign>, from: NodeId, to: NodeId) -> Option<Self> {
        let payload = node.poll_early(from)?.into_vec();
        let (header, _) = Header::read_from_prefix(&payload).ok()?;
        Some(Self { from, to, form: Form::Early, header, payload, ..Self::NONE })
    }

    /// Whether it is a store.
    pub(crate) fn is_store(&self) -> bool {
        // The kind is a header's second byte.
        let kind = match self.form {
            Form::Plain | Form::Early => Some(&self.header.kind),
            Form::Datagram => self.payload.get(LINK_HEADER_BYTES + 1),
        };
        kind == Some(&(Kind::Store as u8))
    }

    pub(crate) fn store_header(&self) -> Option<Header> {
        let header = match self.form {
            Form::Plain | Form::Early => Some(self.header),
            Form::Datagram => {
                let bytes = self.payload.get(LINK_HEADER_BYTES..);
                bytes.and_then(|bytes| Header::read_from_prefix(bytes).ok().map(|it| it.0))
            }
        };
        header.filter(|_| self.is_store())
    }

    pub(crate) fn body(&self) -> &[u8] {
        let start = match self.form {
            Form::Plain => 0,
            Form::Datagram => LINK_HEADER_BYTES + HEADER_BYTES,
            Form::Early => HEADER_BYTES,
        };
        self.payload.get(start..).unwrap_or_default()
    }

    /// Its receiver takes it out of a buffer, or says why it does not.
    #[inline]
    pub(crate) fn take(&self, node: &mut Node<AnyDesign>, clock_ns: u64, buffer: BufferId) -> Verdict {
        match self.form {
            Form::Datagram => node.handle_datagram(clock_ns, self.from, &self.payload, buffer),
            Form::Plain | Form::Early => node.handle_packet(self.from, &self.header, &self.body(), buffer),
        }
    }
}

/// Appends a datagram up to its packet, and gives that if it carries one.
#[inline]
pub(crate) fn append_datagram<'a>(
    header: &LinkHeader,
    body: DatagramBody<'a>,
    payload: &mut Vec<u8>,
) -> Option<&'a Transmit> {
    payload.extend(header.emit());
    match body {
        DatagramBody::None => None,
        DatagramBody::Ack(ack) => {
            let mut bytes = [0; MAX_ACK_BYTES];
            let length = ack.emit(&mut bytes);
            payload.extend(&bytes[..length]);
            None
        }
        DatagramBody::Packet(packet) => Some(packet),
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
