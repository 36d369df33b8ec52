//! Keyed BLAKE2s (RFC 7693 §2.9): a code of 16 bytes over what outsiders must not be able to forge.

#[cfg(feature = "sealing")]
use blake2::digest::consts::U16;
#[cfg(feature = "sealing")]
use blake2::digest::{KeyInit, Mac};
#[cfg(feature = "sealing")]
use blake2::{Blake2sMac, Blake2sMac256};

pub(crate) const MAC_BYTES: usize = 16;

/// A key of message authentication codes.
#[cfg(feature = "sealing")]
#[derive(Clone)]
pub(crate) struct MacKey(Blake2sMac<U16>);

#[cfg(feature = "sealing")]
impl MacKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(<Blake2sMac<U16> as KeyInit>::new(key.into()))
    }

    /// Derives a key for one purpose and one job from a secret with several uses.
    pub(crate) fn derive(secret: &[u8; 32], purpose: &[u8], job: u32) -> Self {
        let derived =
            <Blake2sMac256 as KeyInit>::new(secret.into()).chain_update(job.to_le_bytes()).chain_update(purpose);
        Self::new(&derived.finalize().into_bytes().into())
    }

    pub(crate) fn of(&self, bytes: &[u8]) -> [u8; MAC_BYTES] {
        let code = self.0.clone().chain_update(bytes);
        code.finalize().into_bytes().into()
    }

    /// Whether `code` is that of `bytes`, in constant time.
    pub(crate) fn verifies(&self, bytes: &[u8], code: &[u8; MAC_BYTES]) -> bool {
        let expected = self.0.clone().chain_update(bytes);
        expected.verify(code.into()).is_ok()
    }
}

/// Cannot be constructed.
#[cfg(not(feature = "sealing"))]
pub(crate) enum MacKey {}

#[cfg(not(feature = "sealing"))]
impl MacKey {
    pub(crate) fn of(&self, _: &[u8]) -> [u8; MAC_BYTES] {
        match *self {}
    }

    pub(crate) fn verifies(&self, _: &[u8], _: &[u8; MAC_BYTES]) -> bool {
        match *self {}
    }
}
