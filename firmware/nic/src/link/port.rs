//! A node's end of a lossy transport: links to all peers that were ever used, with copies of the packets that are not acked.
//!
//! It stands between a [`crate::Nic`] and its transport, and is a lossless transport to the NIC: a packet counts as transmitted once
//! it is copied here. What it still holds, [`Port::unacked`] tells. The price is that copy; it buys a NIC that knows nothing of loss.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use mapwire_wire::link::{LINK_HEADER_BYTES, LinkAck, LinkHeader, LinkKind, MAX_ACK_BYTES};
use mapwire_wire::{NodeId, Packet};

use super::machine::{Body, Ignored, Link, LinkConfig, LinkEvent, Received};
use super::{Arrival, LINK_WINDOW};

#[derive(Debug)]
struct Peer {
    link: Link<Box<[u8]>>,
    /// Packets that are sent and not acked, then those that wait.
    queue: VecDeque<Box<[u8]>>,
}

impl Peer {
    fn waiting_bytes(&self) -> Option<u32> {
        let packet = self.queue.get(self.link.unacked() as usize)?;
        Some((packet.len() + LINK_HEADER_BYTES) as u32)
    }
}

/// Why [`Port`] did not take a datagram or packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Its header or ack is malformed.
    #[error(transparent)]
    Link(#[from] mapwire_wire::link::LinkError),
    /// Its packet is malformed.
    #[error(transparent)]
    Wire(#[from] mapwire_wire::WireError),
    /// Its link ignores it.
    #[error("the link ignores a datagram: {0:?}")]
    Ignored(Ignored),
    /// Too many packets for this node wait.
    #[error("{LINK_WINDOW} packets for node {} wait: send this one when some are acked", .0.0)]
    Full(NodeId),
}

/// All links of a node; see the module's text. Inputs are `handle_*`; drain the `poll_*` after each.
#[derive(Debug)]
pub struct Port {
    config: LinkConfig,
    peers: BTreeMap<NodeId, Peer>,
    /// Peer that `poll_datagram` asks first, so that each has its turn.
    turn: NodeId,
    arrived: VecDeque<(NodeId, Box<[u8]>)>,
    events: VecDeque<(NodeId, LinkEvent)>,
}

impl Port {
    /// A port without links; each is made when it is first used.
    #[must_use]
    pub const fn new(config: LinkConfig) -> Self {
        Self {
            config,
            peers: BTreeMap::new(),
            turn: NodeId(0),
            arrived: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn peer(&mut self, node: NodeId) -> &mut Peer {
        let config = self.config;
        self.peers.entry(node).or_insert_with(|| Peer {
            link: Link::new(config),
            queue: VecDeque::new(),
        })
    }

    /// Packets for `node` that are not acked.
    #[must_use]
    pub fn unacked(&self, node: NodeId) -> usize {
        self.peers.get(&node).map_or(0, |peer| peer.queue.len())
    }

    /// Takes a packet for `to`.
    ///
    /// # Errors
    /// [`PortError::Full`] when [`LINK_WINDOW`] are not acked; it is not taken then.
    pub fn handle_packet(&mut self, to: NodeId, packet: &[u8]) -> Result<(), PortError> {
        let peer = self.peer(to);
        if peer.queue.len() >= LINK_WINDOW as usize {
            return Err(PortError::Full(to));
        }
        peer.queue.push_back(packet.into());
        Ok(())
    }

    /// A datagram has come from `from`, a node of the job.
    ///
    /// # Errors
    /// [`PortError`] says why it has no effect.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        from: NodeId,
        datagram: &[u8],
    ) -> Result<(), PortError> {
        let (header, rest) = LinkHeader::parse(datagram)?;
        let received = match header.kind {
            LinkKind::Hello | LinkKind::Welcome => Received::None,
            LinkKind::Ack => Received::Ack(LinkAck::parse(rest)?),
            LinkKind::Data => {
                Packet::new_checked(rest)?;
                Received::Packet
            }
        };
        let peer = self.peer(from);
        let arrival = peer
            .link
            .handle_datagram(now_ns, &header, received, || rest.into());
        if arrival == Ok(Some(Arrival::Next)) {
            self.arrived.push_back((from, rest.into()));
        }
        self.drain(from);
        arrival.map(|_| ()).map_err(PortError::Ignored)
    }

    fn drain(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        while let Some(packet) = peer.link.poll_kept() {
            self.arrived.push_back((node, packet));
        }
        let over = (peer.link.poll_over() as usize).min(peer.queue.len());
        peer.queue.drain(..over);
        while let Some(event) = peer.link.poll_event() {
            if matches!(event, LinkEvent::Restarted | LinkEvent::Dead) {
                peer.queue.clear();
            }
            self.events.push_back((node, event));
        }
    }

    /// The time is `now_ns`.
    pub fn handle_time(&mut self, now_ns: u64) {
        for peer in self.peers.values_mut() {
            peer.link.handle_time(now_ns);
        }
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.drain(node);
        }
    }

    /// When [`handle_time`](Self::handle_time) and [`poll_datagram`](Self::poll_datagram) are to be called next.
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        self.peers
            .values()
            .filter_map(|peer| peer.link.poll_at())
            .min()
    }

    /// Writes the next datagram into `datagram`, replacing what was there, and gives its receiver and path.
    pub fn poll_datagram(&mut self, now_ns: u64, datagram: &mut Vec<u8>) -> Option<(NodeId, u8)> {
        let turn = self.turn;
        let (later, earlier) = (turn..=NodeId(u16::MAX), NodeId(0)..turn);
        let mut nodes = self.peers.range(later).map(|(node, _)| *node);
        let mut wrapped = self.peers.range(earlier).map(|(node, _)| *node);
        let nodes: Vec<NodeId> = nodes.by_ref().chain(wrapped.by_ref()).collect();
        for node in nodes {
            let Some(peer) = self.peers.get_mut(&node) else {
                continue;
            };
            let waiting = peer.waiting_bytes();
            let Some(next) = peer.link.poll(now_ns, waiting) else {
                continue;
            };
            datagram.clear();
            datagram.extend(next.header.emit());
            match next.body {
                Body::None => {}
                Body::Ack(ack) => {
                    let mut bytes = [0; MAX_ACK_BYTES];
                    let length = ack.emit(&mut bytes);
                    datagram.extend(&bytes[..length]);
                }
                Body::Packet { sequence, .. } => {
                    let first = peer.link.first_unacked();
                    let at = sequence.wrapping_sub(first) as usize;
                    datagram.extend(peer.queue.get(at)?);
                }
            }
            self.turn = NodeId(node.0.wrapping_add(1));
            return Some((node, next.header.path));
        }
        None
    }

    /// The next packet that has come, each once and in order of its sender.
    pub fn poll_packet(&mut self) -> Option<(NodeId, Box<[u8]>)> {
        self.arrived.pop_front()
    }

    /// The next event. On [`LinkEvent::Dead`] and [`LinkEvent::Restarted`] tell the NIC, by [`crate::Nic::handle_peer_gone`].
    pub fn poll_event(&mut self) -> Option<(NodeId, LinkEvent)> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_wire::{HandlerId, ProcessId, Repr};
    use zerocopy::IntoBytes;

    fn packet(sequence: u32) -> Vec<u8> {
        let message = Repr::Handler {
            handler: HandlerId::CONTROL,
            from: ProcessId(0),
            to: ProcessId(0),
            length: 4,
        };
        let (header, _) = message.emit(sequence, 0);
        [header.as_bytes(), &sequence.to_le_bytes()].concat()
    }

    #[test]
    fn packets_of_three_ports_come_once_and_in_order_over_lines_that_lose_a_quarter() {
        let mut ports = [1, 2, 3].map(|epoch| Port::new(LinkConfig::new(epoch, 2000)));
        let mut got = [[0u32; 3]; 3];
        let mut sent = [[0u32; 3]; 3];
        let mut random = 12345u64;
        let mut datagram = Vec::new();
        let mut now_ns = 0;
        while got.as_flattened().iter().sum::<u32>() < 6 * 300 {
            now_ns += 5_000;
            assert!(now_ns < 20_000_000_000, "{got:?}");
            for end in 0..3 {
                for to in (0..3).filter(|to| *to != end) {
                    let node = NodeId(to as u16);
                    let next = sent[end][to];
                    if next < 300 && ports[end].handle_packet(node, &packet(next)).is_ok() {
                        sent[end][to] += 1;
                    }
                }
                ports[end].handle_time(now_ns);
                while let Some((to, _)) = ports[end].poll_datagram(now_ns, &mut datagram) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    if random >> 33 & 3 == 0 {
                        continue;
                    }
                    let to = usize::from(to.0);
                    let from = NodeId(end as u16);
                    let _ = ports[to].handle_datagram(now_ns, from, &datagram);
                    while let Some((from, bytes)) = ports[to].poll_packet() {
                        let expected = &mut got[to][usize::from(from.0)];
                        assert_eq!(*bytes, *packet(*expected));
                        *expected += 1;
                    }
                }
            }
        }
        for port in &mut ports {
            while let Some((_, event)) = port.poll_event() {
                assert_eq!(event, LinkEvent::Up);
            }
        }
    }

    #[test]
    fn a_full_port_refuses_and_damaged_datagrams_are_named() {
        let mut port = Port::new(LinkConfig::new(1, 2000));
        let peer = NodeId(4);
        for sequence in 0..LINK_WINDOW {
            port.handle_packet(peer, &packet(sequence)).unwrap();
        }
        let more = port.handle_packet(peer, &packet(LINK_WINDOW));
        assert_eq!(more, Err(PortError::Full(peer)));
        assert_eq!(port.unacked(peer), LINK_WINDOW as usize);
        let short = port.handle_datagram(0, peer, &[1, 2, 3]);
        assert!(matches!(short, Err(PortError::Link(_))));
        let data = LinkHeader {
            kind: LinkKind::Data,
            path: 0,
            expected: 0,
            epoch: 2,
            peer_epoch: 1,
            number: 1,
            sequence: 0,
        };
        let bytes = [&data.emit()[..], &packet(0)].concat();
        let unknown = port.handle_datagram(0, peer, &bytes);
        assert_eq!(unknown, Err(PortError::Ignored(Ignored::UnknownEpoch)));
        let cut = port.handle_datagram(0, peer, &bytes[..bytes.len() - 1]);
        assert!(matches!(cut, Err(PortError::Wire(_))));
    }
}
