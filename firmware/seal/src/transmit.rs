//! A datagram of a handshake on its way out.

use mapwire_wire::NodeId;

use crate::address::Address;
use crate::wire::INITIATE_BYTES;

/// Bytes of the longest datagram of a handshake.
pub const MAX_HANDSHAKE_BYTES: usize = INITIATE_BYTES;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a node, wherever the job's membership says that it is.
    Node(NodeId),
    /// To the address that it answers.
    Address(Address),
}

/// A datagram to transmit.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    to: Destination,
    length: usize,
    bytes: [u8; MAX_HANDSHAKE_BYTES],
}

impl Transmit {
    /// `datagram` is not longer than [`MAX_HANDSHAKE_BYTES`].
    pub(crate) fn new(to: Destination, datagram: &[u8]) -> Self {
        let mut bytes = [0; MAX_HANDSHAKE_BYTES];
        let length = datagram.len().min(bytes.len());
        bytes[..length].copy_from_slice(&datagram[..length]);
        Self { to, length, bytes }
    }

    /// Where it goes.
    #[must_use]
    pub const fn to(&self) -> Destination {
        self.to
    }

    /// The whole datagram.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
