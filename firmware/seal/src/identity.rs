//! A node's identity, and the parts of handshakes that depend on it and on the job's secret.

use mapwire_wire::NodeId;

use crate::keys::{JobSecret, PublicKey, StaticKey};
use crate::mac::MacKey;
use crate::noise::{self, Grant, Keys, Own, Started};
use crate::session::Rotation;
use crate::wire::{FIRST_BYTES, Header, SECOND_BYTES};

/// What a node needs to take part in its job.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of this node.
    pub me: NodeId,
    /// Nodes of the job, up to 65,536, numbered from 0.
    pub nodes: u32,
    /// Number of the job. Nodes of different jobs never agree on keys, even with the same secret.
    pub job: u32,
    pub secret: JobSecret,
    pub key: StaticKey,
    /// When to replace keys.
    pub rotation: Rotation,
}

pub(crate) struct Identity {
    config: Config,
    /// Makes and checks the codes of handshakes.
    codes: MacKey,
}

impl Identity {
    pub(crate) fn new(config: Config) -> Self {
        Self { codes: MacKey::derive(config.secret.bytes(), b"mapwire seal codes", config.job), config }
    }

    pub(crate) const fn me(&self) -> NodeId {
        self.config.me
    }

    pub(crate) const fn rotation(&self) -> &Rotation {
        &self.config.rotation
    }

    pub(crate) const fn codes(&self) -> &MacKey {
        &self.codes
    }

    /// Whether `node` is another node of the job.
    pub(crate) fn has_peer(&self, node: NodeId) -> bool {
        node != self.config.me && u32::from(node.0) < self.config.nodes
    }

    /// Whether a datagram with this header goes from a peer to this node.
    pub(crate) fn is_addressed(&self, header: &Header) -> bool {
        header.to() == self.config.me && header.job() == self.config.job && self.has_peer(header.from())
    }

    /// The header of an initiate to `peer`.
    pub(crate) const fn initiate(&self, peer: NodeId, index: u32, continues: bool) -> Header {
        Header::initiate(self.config.me, peer, self.config.job, index, continues)
    }

    const fn own(&self) -> Own<'_> {
        (&self.config.secret, &self.config.key)
    }

    pub(crate) fn start(
        &self,
        peer: &PublicKey,
        initiate: &Header,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Option<(Started, [u8; FIRST_BYTES])> {
        Started::new(self.own(), peer, initiate, entropy)
    }

    /// Answers a handshake of `peer`.
    pub(crate) fn answer(
        &self,
        peer: &PublicKey,
        initiate: (&Header, &[u8; FIRST_BYTES]),
        grant: Grant,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Option<([u8; SECOND_BYTES], Keys)> {
        noise::answer(self.own(), peer, initiate, grant, entropy)
    }
}
