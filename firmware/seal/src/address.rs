//! The sender's address of a datagram, as the transport writes it.

/// Longest address, in bytes: an IPv6 address and a port.
pub const MAX_ADDRESS_BYTES: usize = 18;

/// The bytes of an address, opaque to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    length: u8,
    bytes: [u8; MAX_ADDRESS_BYTES],
}

impl Address {
    /// Copies up to [`MAX_ADDRESS_BYTES`] bytes; `None` if there are more.
    #[must_use]
    pub fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_ADDRESS_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { length: from.len() as u8, bytes })
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}
