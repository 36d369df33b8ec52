//! Peers that count as gone though they live, and why: mostly peers that break the rules of the link. A link between processes of one host loses nothing and changes nothing, so what no
//! NIC sends was sent by a peer that is broken or hostile: it counts as gone from then on, and errors say why.

use mapwire_nic::Rejection;
use mapwire_transport::shm::PeerCorrupt;
use mapwire_wire::NodeId;
use thiserror::Error;

/// Why a peer counts as gone: how it broke the rules, or what this process lacks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Breach {
    /// Its end of the ring makes no sense.
    #[error(transparent)]
    Ring(#[from] PeerCorrupt),
    /// A packet that no NIC sends.
    #[error("it sent a packet that is none")]
    Malformed,
    /// A packet that was not due.
    #[error("it sent packet {got} where {expected} was due, on a link that loses none")]
    OutOfOrder {
        /// Sequence number that was due.
        expected: u32,
        /// The one that came.
        got: u32,
    },
    /// A control message that is none.
    #[error("it sent a control message that is none")]
    Control,
    /// Thousands of packets wait for it, and one more was lost.
    #[error("it has taken nothing for so long that a message to it was lost")]
    Overfull,
    /// No fault of the peer's: the descriptor of the channel was lost.
    #[error(
        "this process had no file descriptor left for the channel to it; raise the limit (`ulimit -n`)"
    )]
    NoDescriptor,
}

impl Breach {
    /// Whether a packet that the NIC rejected breaks the rules. A refusal does not: a revocation may cross a store.
    pub(crate) fn of(reason: &Rejection) -> Option<Self> {
        match *reason {
            Rejection::Malformed => Some(Self::Malformed),
            Rejection::OutOfOrder { expected, got } => Some(Self::OutOfOrder { expected, got }),
            _ => None,
        }
    }
}

/// The breach of each peer that committed one.
#[derive(Debug)]
pub(crate) struct Breaches {
    peers: Box<[Option<Breach>]>,
    any: bool,
}

impl Breaches {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            peers: vec![None; nodes].into(),
            any: false,
        }
    }

    /// Notes a peer's breach; the first counts.
    pub(crate) fn note(&mut self, peer: NodeId, breach: Breach) {
        if let Some(noted) = self.peers.get_mut(usize::from(peer.0)) {
            noted.get_or_insert(breach);
            self.any = true;
        }
    }

    /// The breach of a peer.
    #[inline]
    pub(crate) fn of(&self, peer: NodeId) -> Option<Breach> {
        if self.any {
            self.peers.get(usize::from(peer.0)).copied().flatten()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_breach_of_a_peer_is_what_is_told() {
        let mut breaches = Breaches::new(3);
        assert_eq!(breaches.of(NodeId(2)), None);
        breaches.note(NodeId(2), Breach::Malformed);
        breaches.note(NodeId(2), Breach::Control);
        breaches.note(NodeId(9), Breach::Control);
        assert_eq!(breaches.of(NodeId(2)), Some(Breach::Malformed));
        assert_eq!(breaches.of(NodeId(1)), None);
        assert_eq!(breaches.of(NodeId(9)), None);
    }

    #[test]
    fn a_refused_store_breaks_no_rule() {
        use mapwire_wire::Refusal;
        assert_eq!(Breach::of(&Rejection::Refused(Refusal::Revoked)), None);
        let (expected, got) = (3, 5);
        let late = Rejection::OutOfOrder { expected, got };
        assert_eq!(
            Breach::of(&late),
            Some(Breach::OutOfOrder { expected, got })
        );
    }
}
