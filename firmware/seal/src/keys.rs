//! The secrets of a job and of a node. None is ever printed.

use core::fmt;
use core::hash::Hasher;

#[cfg(feature = "sealing")]
use snow::params::DHChoice;
#[cfg(feature = "sealing")]
use snow::resolvers::{CryptoResolver, DefaultResolver};

#[cfg(feature = "sealing")]
use crate::mac::MacKey;

/// The secret that all nodes of a job share, and nobody else has.
#[derive(Clone)]
pub struct JobSecret([u8; 32]);

impl JobSecret {
    /// Takes 32 random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A number for the job, for use in clear in its datagrams: it reveals nothing about the secret.
    #[cfg(feature = "sealing")]
    #[must_use]
    pub fn job(&self) -> u32 {
        let [a, b, c, d, ..] = MacKey::new(&self.0).of(b"mapwire job");
        u32::from_le_bytes([a, b, c, d])
    }

    /// A number for the datagrams of a job that seals nothing, the same with and without the feature `sealing`. It reveals nothing about
    /// the secret either: SipHash-2-4 under a key of 128 of its bits.
    #[must_use]
    #[expect(deprecated, reason = "the replacement has no key, and may be another function in the next Rust")]
    pub fn label(&self) -> u32 {
        let [first, second, rest @ ..] = self.0.as_chunks::<8>().0 else {
            return 0;
        };
        let [first, second] = [first, second].map(|it| u64::from_le_bytes(*it));
        let mut hasher = core::hash::SipHasher::new_with_keys(first, second);
        hasher.write(rest.as_flattened());
        hasher.finish() as u32
    }

    #[cfg(feature = "sealing")]
    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The secret key of one node (X25519, RFC 7748).
#[cfg(feature = "sealing")]
#[derive(Clone)]
pub struct StaticKey([u8; 32]);

#[cfg(feature = "sealing")]
impl StaticKey {
    /// Takes 32 random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The public key by which peers know the node.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut public = [0; 32];
        // The resolver has this curve whenever the crate is built with the feature that Cargo.toml asks for.
        if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
            dh.set(&self.0);
            public.copy_from_slice(dh.pubkey());
        }
        PublicKey(public)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The public key of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

#[cfg(feature = "sealing")]
impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticKey(..)")
    }
}
