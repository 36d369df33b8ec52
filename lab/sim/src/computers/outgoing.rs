//! What a node has to send next: packets, or datagrams of its links.

use mapwire_nic::{DatagramBody, Source};
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_wire::link::MAX_ACK_BYTES;
use mapwire_wire::{NodeId, ProcessId};
use zerocopy::IntoBytes;

use super::network::{Form, Parcel};
use crate::cluster::packets::read_source;
use crate::cluster::{BadAccess, Memory};

/// What goes out next, without the data of processes.
pub(super) struct Outgoing {
    to: NodeId,
    form: Form,
    bytes: Vec<u8>,
    source: Source,
}

impl Outgoing {
    /// Reads the data. Gives the process in whose memory they are, if they are in one's.
    pub(super) fn load(self, from: NodeId, memory: &mut Memory) -> Result<(Parcel, Option<ProcessId>), BadAccess> {
        let Self { to, form, mut bytes, source } = self;
        read_source(memory, &source, &mut bytes)?;
        let process = match source {
            Source::Memory { process, .. } => Some(process),
            Source::Inline { .. } | Source::Message(_) => None,
        };
        let parcel = Parcel { from, to, number: 0, form, bytes, sequence: None };
        Ok((parcel, process))
    }
}

/// Takes the next packet or datagram. A packet counts as transmitted: its data are read at once, though its time has yet to come.
pub(super) fn next_outgoing(node: &mut Node<AnyDesign>, has_links: bool, now_ns: u64) -> Option<Outgoing> {
    if has_links {
        return next_datagram(node, now_ns);
    }
    let transmit = node.poll_transmit()?;
    let outgoing = Outgoing {
        to: transmit.to,
        form: Form::Plain(transmit.header),
        bytes: Vec::new(),
        source: transmit.source.clone(),
    };
    node.handle_transmitted(outgoing.to);
    Some(outgoing)
}

fn next_datagram(node: &mut Node<AnyDesign>, now_ns: u64) -> Option<Outgoing> {
    let datagram = node.poll_datagram(now_ns)?;
    let to = datagram.to;
    let mut bytes = datagram.header.emit().to_vec();
    let nothing = Source::Message(Box::default());
    let source = match datagram.body {
        DatagramBody::None => nothing,
        DatagramBody::Ack(ack) => {
            let mut emitted = [0; MAX_ACK_BYTES];
            let length = ack.emit(&mut emitted);
            bytes.extend(&emitted[..length]);
            nothing
        }
        DatagramBody::Packet(packet) => {
            bytes.extend(packet.header.as_bytes());
            packet.source.clone()
        }
    };
    Some(Outgoing { to, form: Form::Datagram(bytes.len()), bytes, source })
}
