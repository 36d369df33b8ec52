//! Envelopes of datagrams, as between machines: sealed, or plain.

use mapwire_seal::{Config, Envelope, JobSecret, Plain, PublicKey, Rotation, Sessions, StaticKey};
use mapwire_wire::NodeId;

use crate::random::Random;

/// When keys are made anew: soon, so that it happens.
const ROTATION: Rotation =
    Rotation { datagrams: 256, time_ns: 100_000_000, grace_ns: 20_000_000, silence_ns: 50_000_000 };

pub(super) struct Wrap(pub(super) Envelope);

impl core::fmt::Debug for Wrap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Wrap").finish_non_exhaustive()
    }
}

const fn secret() -> JobSecret {
    JobSecret::new([7; 32])
}

/// The key of a node, which it has again when it restarts.
fn key(node: NodeId) -> StaticKey {
    let mut bytes = [1; 32];
    bytes[..2].copy_from_slice(&node.0.to_le_bytes());
    StaticKey::new(bytes)
}

pub(super) fn fill(random: &mut Random, bytes: &mut [u8]) {
    for part in bytes.chunks_mut(8) {
        let drawn = random.next().to_le_bytes();
        part.copy_from_slice(&drawn[..part.len()]);
    }
}

/// The public keys of so many nodes.
pub(super) fn keys(nodes: u16) -> Vec<PublicKey> {
    (0..nodes).map(|node| key(NodeId(node)).public()).collect()
}

impl Wrap {
    /// That of a node that starts.
    pub(super) fn new(is_sealed: bool, nodes: u16, me: NodeId, random: &mut Random) -> Self {
        let (nodes, job) = (nodes.into(), secret().job());
        if !is_sealed {
            return Self(Envelope::Plain(Plain::new(me, nodes, job)));
        }
        let config = Config { me, nodes, job, secret: secret(), key: key(me), rotation: ROTATION };
        let sessions = Sessions::new(config, &mut |bytes| fill(random, bytes));
        Self(Envelope::Sealed(Box::new(sessions)))
    }

    /// Tells it the keys that it misses.
    pub(super) fn introduce(&mut self, keys: &[PublicKey]) {
        while let Some(node) = self.0.poll_wanted_key() {
            if let Some(key) = keys.get(usize::from(node.0)) {
                self.0.set_peer(node, *key);
            }
        }
    }

    /// Seals a datagram with room before it. False if there is no session: one begins.
    pub(super) fn seal(&mut self, clock_ns: u64, to: NodeId, datagram: &mut Vec<u8>, keys: &[PublicKey]) -> bool {
        datagram.resize(datagram.len() + self.0.back_bytes(), 0);
        let is_sealed = self.0.seal(clock_ns, to, datagram).is_ok();
        if !is_sealed {
            self.introduce(keys);
            // It asks for a handshake only of whom it knows.
            let _ = self.0.seal(clock_ns, to, &mut []);
        }
        is_sealed
    }
}
