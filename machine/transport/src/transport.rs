//! What every transport does, whatever carries the packets.
//!
//! A transport moves packets between this node and its peers, in order for each pair, and loses none while both
//! live. It never blocks and starts no thread. The order of calls:
//!
//! * commands: [`Transport::send`], [`Transport::disconnect`];
//! * polls: [`Transport::poll_receive`], then [`Transport::release`] when the packet has been dealt with;
//!   [`Transport::flush`] before the caller turns to other work or sleeps;
//! * getters: [`Transport::abilities`], [`Transport::has_input`], [`Transport::drained`], [`Transport::max_payload_bytes`].

use mapwire_wire::{Header, NodeId};

use crate::payload::{Payload, Received};
use crate::shm::PeerCorrupt;

/// Why a packet was not sent. Nothing of it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The queue to the peer is full. Receive meanwhile, or two full peers wait for each other, and try again.
    #[error("the queue to {0} is full; receive, then try again")]
    WouldBlock(NodeId),
    /// No connection to this node was ever made.
    #[error("{0} is not connected")]
    NotConnected(NodeId),
    /// The peer has closed the connection or died.
    #[error("{0} is gone")]
    PeerGone(NodeId),
    #[error("a payload of {len_bytes} bytes exceeds this transport's longest of {max_bytes}")]
    TooLong { len_bytes: usize, max_bytes: usize },
    /// The peer broke the rules; it counts as gone from now on.
    #[error("{peer}: {corrupt}")]
    PeerCorrupt { peer: NodeId, corrupt: PeerCorrupt },
}

/// A connection has ended. Each ending is reported once, after the last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The peer has closed the connection or died, and all its packets were received.
    #[error("{0} is gone")]
    PeerGone(NodeId),
    /// The peer broke the rules; what it had sent is discarded.
    #[error("{peer}: {corrupt}")]
    PeerCorrupt { peer: NodeId, corrupt: PeerCorrupt },
}

/// A packet from a peer, not authenticated. `header.length` is the payload's length, which is within
/// [`Transport::max_payload_bytes`]; all else in the header is the peer's claim.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The node at the other end of the connection, as this side knows it.
    pub from: NodeId,
    /// A private copy of the header.
    pub header: &'a Header,
    pub payload: Received<'a>,
}

/// What a way to a peer can do. Known from the start, and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Packets arrive once and in order; else they are the datagrams of a link, which recovers them.
    pub lossless: bool,
    /// Descriptors can be passed there, so that the peer maps memory of this process.
    pub passes_memory: bool,
    /// Stores to and fetches from memory of the peer go past its NIC.
    pub remote_access: bool,
    /// Whoever publishes packets there rings the peer's bell, and may do so in the page-fault handler. Else nobody rings, and the handler
    /// leaves the peer to other threads.
    pub rings: bool,
}

impl Abilities {
    /// Those of rings in memory of one host.
    pub const RINGS: Self = Self { lossless: true, passes_memory: true, remote_access: false, rings: true };
    pub const DATAGRAMS: Self = Self { lossless: false, passes_memory: false, remote_access: false, rings: true };
}

/// Moves packets between this node and its peers.
pub trait Transport {
    /// What the way to a peer can do.
    fn abilities(&self, peer: NodeId) -> Abilities;

    /// Longest payload of a packet.
    fn max_payload_bytes(&self) -> usize;

    /// Sends one packet. `header.length` must be the payload's length. When it returns, the payload's memory may
    /// be reused.
    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError>;

    /// The next packet of some peer, peers in turn. Until [`Self::release`] is called it stays at the head of its
    /// peer's queue and is shown again, but other peers come first.
    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError>;

    /// Drops the packet that [`Self::poll_receive`] last showed from this peer. Does nothing if there is none.
    fn release(&mut self, from: NodeId);

    /// Whether [`Self::poll_receive`] would return anything: to be asked once more before sleeping.
    fn has_input(&mut self) -> bool;

    /// Lets peers know all that was held back to save traffic.
    fn flush(&mut self);

    /// Whether the peer has taken every packet sent to it. A peer that sleeps without flushing may have taken
    /// more than this says.
    fn drained(&mut self, to: NodeId) -> Result<bool, SendError>;

    /// Treats a peer as gone: nothing more is sent, what has arrived is still received, then its end is reported.
    fn disconnect(&mut self, peer: NodeId);
}
