//! An outgoing handshake datagram.

use mapwire_wire::NodeId;

use crate::address::Address;
use crate::wire::INITIATE_BYTES;

/// Longest handshake datagram, in bytes.
pub const MAX_HANDSHAKE_BYTES: usize = INITIATE_BYTES;

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A node, at its address in the job's membership.
    Node(NodeId),
    /// The address that it answers.
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
    /// `datagram` must not exceed [`MAX_HANDSHAKE_BYTES`].
    pub(crate) fn new(to: Destination, datagram: &[u8]) -> Self {
        let mut bytes = [0; MAX_HANDSHAKE_BYTES];
        let length = datagram.len().min(bytes.len());
        bytes[..length].copy_from_slice(&datagram[..length]);
        Self { to, length, bytes }
    }

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
