//! Peers that count as gone though they live, and why: mostly peers that break the rules of the link. A link between processes of one host loses nothing and changes nothing, so what no
//! NIC sends was sent by a peer that is broken or hostile: it counts as gone from then on, and errors say why.

use std::net::SocketAddr;
use std::time::Duration;

use mapwire_transport::shm::PeerCorrupt;
use thiserror::Error;

/// Why a peer counts as gone: how it broke the rules, or what this process lacks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Breach {
    /// Its end of the ring makes no sense.
    #[error(transparent)]
    Ring(#[from] PeerCorrupt),
    /// It broke the rules of the node.
    #[error(transparent)]
    Node(#[from] mapwire_node::Breach),
    /// No fault of the peer's: the descriptor of the channel was lost.
    #[error("this process had no file descriptor left for the channel to it; raise the limit (`ulimit -n`)")]
    NoDescriptor,
    /// What it says of how it is reached is of no use.
    #[error(transparent)]
    Card(mapwire_transport::net::CardError),
    /// It does not answer, for all that is known.
    #[error("nothing came from it{} for {:.1} s; is its host up, and does a firewall let UDP pass?", at.map_or(String::new(), |at| format!(" at {at}")), after.as_secs_f64())]
    Silent {
        /// Where it was last sought.
        at: Option<SocketAddr>,
        /// For so long.
        after: Duration,
    },
}

impl Breach {
    /// Whether the peer broke a rule.
    #[must_use]
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::NoDescriptor | Self::Card(_) | Self::Silent { .. })
    }
}
