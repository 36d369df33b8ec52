//! What a packet carries, as the node sees it.

/// The payload of a packet. Its bytes may lie where its sender can still change them: they are copied before they are looked at.
pub trait Payload {
    fn len_bytes(&self) -> usize;

    /// The bytes, if they are a private copy of this node's already: those of a short payload always are. Empty for others.
    fn private(&self) -> &[u8];

    /// Copies `into.len()` bytes from `offset` on. The range lies within the payload.
    fn copy_to_slice(&self, offset: usize, into: &mut [u8]);
}

/// The payload of what is told without a packet.
#[derive(Clone, Copy, Debug)]
pub struct NoPayload;

impl Payload for NoPayload {
    fn len_bytes(&self) -> usize {
        0
    }

    fn private(&self) -> &[u8] {
        &[]
    }

    fn copy_to_slice(&self, _offset: usize, _into: &mut [u8]) {}
}

impl Payload for &[u8] {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn private(&self) -> &[u8] {
        self
    }

    fn copy_to_slice(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[offset..][..into.len()]);
    }
}
