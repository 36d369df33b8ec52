//! The transport between processes of one host: a channel to each peer.

use mapwire_wire::{Header, NodeId};

use super::PeerCorrupt;
use super::channel::{Channel, ChannelError};
use super::ring::{PushError, RingConfig};
use crate::payload::Payload;
use crate::peers::Peers;
use crate::transport::{Abilities, Packet, ReceiveError, SendError, Transport};

/// Idle sweeps between two looks at whether peers have closed.
const CLOSED_CHECK_SWEEPS: u32 = 64;

#[derive(Debug)]
struct Link {
    channel: Channel,
    /// Nothing more may be sent: the peer is known to be gone, or has closed its receiving end.
    ended: bool,
}

impl Link {
    /// Whether no packet waits and none can come.
    fn is_over(&self) -> bool {
        // The order matters: what was published before closing is visible once the closing is.
        (self.ended || self.channel.receiver.producer_closed()) && !self.channel.receiver.has_packet()
    }
}

/// Packets between ranks of one host.
///
/// Channels come from elsewhere ([`crate::rendezvous`]) by [`Self::connect`]. Polling costs one load for each
/// connected peer and nothing for the others.
#[derive(Debug)]
pub struct ShmTransport {
    peers: Peers<Link>,
    /// Links that are over, kept until somebody may free memory.
    #[expect(clippy::vec_box, reason = "to take one out of its box would free memory")]
    over: Vec<Box<Link>>,
    idle_sweeps: u32,
    max_payload_bytes: usize,
}

impl ShmTransport {
    /// A transport without peers. All channels must have this configuration's longest payload.
    pub fn new(config: &RingConfig) -> Self {
        Self {
            peers: Peers::default(),
            over: Vec::new(),
            idle_sweeps: 0,
            max_payload_bytes: config.max_payload_bytes as usize,
        }
    }

    /// Takes the channel to a peer into service, in place of an earlier one if there was one.
    pub fn connect(&mut self, peer: NodeId, channel: Channel) {
        self.peers.connect(peer, Box::new(Link { channel, ended: false }));
        self.over.reserve(self.peers.len());
    }

    /// Lets a node send to itself: a ring in private memory.
    pub fn connect_self(&mut self, own: NodeId, config: &RingConfig) -> Result<(), ChannelError> {
        self.connect(own, Channel::loopback(config)?);
        Ok(())
    }

    /// Closes and unmaps the channels of peers of which [`poll_receive`](Transport::poll_receive) has said that they are over. It
    /// does not do so itself, since it may be called where no memory may be freed.
    pub fn bury(&mut self) {
        self.over.clear();
    }

    /// Peers with a connection, in no particular order.
    pub fn peers(&self) -> &[NodeId] {
        self.peers.connected()
    }

    /// Whether a packet of any peer waits: one load for each.
    #[inline]
    pub fn has_packet(&self) -> bool {
        self.peers.iter().any(|(_, link)| link.channel.receiver.has_packet())
    }

    /// Whether another packet of `from` waits. When none does, `from` is told of all releases.
    #[inline]
    pub fn has_next(&mut self, from: NodeId) -> bool {
        let Ok(link) = self.peers.get_mut(from) else {
            return false;
        };
        let has_next = link.channel.receiver.has_packet();
        if !has_next {
            link.channel.receiver.announce();
        }
        has_next
    }

    /// An error if the header at the head claims another length than the ring.
    #[inline(always)]
    fn length_mismatch(&self, from: NodeId) -> Option<PeerCorrupt> {
        let incoming = self.peers.get(from)?.channel.receiver.head()?;
        let header: &Header = zerocopy::transmute_ref!(incoming.header);
        let claimed = header.payload_bytes();
        (claimed as usize != incoming.payload.len_bytes())
            .then_some(PeerCorrupt { what: "payload length in its header", value: u64::from(claimed) })
    }

    #[cold]
    fn forget(&mut self, peer: NodeId) {
        let over = self.peers.forget(peer);
        self.over.extend(over);
    }

    #[cold]
    fn forget_corrupt(&mut self, peer: NodeId, corrupt: PeerCorrupt) -> ReceiveError {
        self.forget(peer);
        ReceiveError::PeerCorrupt { peer, corrupt }
    }

    /// The first peer found to be over, now forgotten.
    #[cold]
    fn reap(&mut self) -> Option<NodeId> {
        let (over, _) = self.peers.iter().find(|(_, link)| link.is_over())?;
        self.forget(over);
        Some(over)
    }
}

impl Transport for ShmTransport {
    #[inline]
    fn abilities(&self, _: NodeId) -> Abilities {
        Abilities::RINGS
    }

    fn max_payload_bytes(&self) -> usize {
        self.max_payload_bytes
    }

    #[inline]
    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        debug_assert_eq!(header.payload_bytes() as usize, payload.len_bytes());
        let link = self.peers.get_mut(to)?;
        if link.ended || link.channel.sender.consumer_closed() {
            link.ended = true;
            return Err(SendError::PeerGone(to));
        }
        let header: &[u8; size_of::<Header>()] = zerocopy::transmute_ref!(header);
        match link.channel.sender.try_push(header, payload.pieces()) {
            Ok(()) => Ok(()),
            Err(PushError::Full) => Err(SendError::WouldBlock(to)),
            Err(PushError::TooLong { len_bytes, max_bytes }) => Err(SendError::TooLong { len_bytes, max_bytes }),
            Err(PushError::Corrupt(corrupt)) => {
                link.ended = true;
                Err(SendError::PeerCorrupt { peer: to, corrupt })
            }
        }
    }

    #[inline]
    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        let found = self.peers.poll(|link| link.channel.receiver.poll());
        let found = found.map_err(|(peer, corrupt)| self.forget_corrupt(peer, corrupt))?;
        let Some(from) = found else {
            self.idle_sweeps = self.idle_sweeps.wrapping_add(1);
            if self.idle_sweeps.is_multiple_of(CLOSED_CHECK_SWEEPS)
                && let Some(peer) = self.reap()
            {
                return Err(ReceiveError::PeerGone(peer));
            }
            return Ok(None);
        };
        if let Some(corrupt) = self.length_mismatch(from) {
            return Err(self.forget_corrupt(from, corrupt));
        }
        let head = self.peers.get(from).and_then(|link| link.channel.receiver.head());
        Ok(head.map(|incoming| Packet {
            from,
            header: zerocopy::transmute_ref!(incoming.header),
            payload: incoming.payload,
        }))
    }

    #[inline]
    fn release(&mut self, from: NodeId) {
        if let Ok(link) = self.peers.get_mut(from) {
            link.channel.receiver.release();
        }
    }

    fn has_input(&mut self) -> bool {
        self.peers.iter().any(|(_, link)| link.channel.receiver.has_packet() || link.is_over())
    }

    fn flush(&mut self) {
        self.peers.for_each(|link| link.channel.receiver.announce());
    }

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        let link = self.peers.get_mut(to)?;
        if link.ended {
            return Err(SendError::PeerGone(to));
        }
        match link.channel.sender.drained() {
            Ok(drained) => Ok(drained),
            Err(corrupt) => {
                link.ended = true;
                Err(SendError::PeerCorrupt { peer: to, corrupt })
            }
        }
    }

    fn disconnect(&mut self, peer: NodeId) {
        if let Ok(link) = self.peers.get_mut(peer) {
            link.ended = true;
        }
    }
}
