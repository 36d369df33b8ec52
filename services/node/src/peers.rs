//! The other nodes: who is gone, and who broke the rules.

use alloc::boxed::Box;
use alloc::vec;

use mapwire_nic::Rejection;
use mapwire_wire::NodeId;
use thiserror::Error;

/// How a peer broke the rules of the node. What is under the NIC loses and changes nothing, so what no node sends was sent by one that
/// is broken or hostile: it counts as gone from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Breach {
    /// A packet that no NIC sends.
    #[error("it sent a malformed packet")]
    Malformed,
    /// A packet that was not due.
    #[error("it sent packet {got} where {expected} was due")]
    OutOfOrder { expected: u32, got: u32 },
    /// A malformed control message.
    #[error("it sent a malformed control message")]
    Control,
    /// A message that no peer of its service sends.
    #[error("it sent a message that no peer of the service sends")]
    Service,
    /// Thousands of packets wait for it, and one more was lost.
    #[error("it has taken nothing for so long that a message to it was lost")]
    Overfull,
}

impl Breach {
    /// Whether a packet that the NIC rejected breaks the rules. A refusal does not: a revocation may cross a store.
    #[must_use]
    pub const fn of(reason: &Rejection) -> Option<Self> {
        match *reason {
            Rejection::Malformed => Some(Self::Malformed),
            Rejection::OutOfOrder { expected, got } => Some(Self::OutOfOrder { expected, got }),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Peers {
    gone: Box<[bool]>,
    /// Those that broke the rules: they do not come back.
    broken: Box<[bool]>,
    /// Those that memory cannot be passed to.
    apart: Box<[bool]>,
}

impl Peers {
    /// All of them there.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { gone: vec![false; nodes].into(), broken: vec![false; nodes].into(), apart: vec![false; nodes].into() }
    }

    /// Whether a peer is gone, or was never there.
    #[inline]
    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        self.gone.get(usize::from(node.0)).is_none_or(|gone| *gone)
    }

    /// Notes that a peer is gone; false when it was before.
    pub(crate) fn note_gone(&mut self, node: NodeId) -> bool {
        match self.gone.get_mut(usize::from(node.0)) {
            Some(gone) => !core::mem::replace(gone, true),
            None => false,
        }
    }

    /// Notes that a peer broke the rules.
    pub(crate) fn note_broken(&mut self, node: NodeId) {
        if let Some(broken) = self.broken.get_mut(usize::from(node.0)) {
            *broken = true;
        }
    }

    pub(crate) fn is_broken(&self, node: NodeId) -> bool {
        self.broken.get(usize::from(node.0)) == Some(&true)
    }

    /// Notes that memory cannot be passed to a peer.
    pub(crate) fn note_apart(&mut self, node: NodeId) {
        if let Some(apart) = self.apart.get_mut(usize::from(node.0)) {
            *apart = true;
        }
    }

    /// Whether there are peers that memory cannot be passed to.
    pub(crate) fn has_apart(&self) -> bool {
        self.apart.contains(&true)
    }

    /// Whether a peer maps memory that it is passed.
    pub(crate) fn maps(&self, node: NodeId) -> bool {
        self.apart.get(usize::from(node.0)) == Some(&false)
    }

    /// Notes that a new incarnation of a peer is there; false when none was gone.
    pub(crate) fn note_back(&mut self, node: NodeId) -> bool {
        match self.gone.get_mut(usize::from(node.0)) {
            Some(gone) => core::mem::replace(gone, false),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_wire::Refusal;

    #[test]
    fn a_peer_goes_once_and_one_that_is_none_is_gone_from_the_start() {
        let mut peers = Peers::new(2);
        assert!(!peers.is_gone(NodeId(1)) && peers.is_gone(NodeId(2)));
        assert!(peers.note_gone(NodeId(1)) && !peers.note_gone(NodeId(1)));
        assert!(peers.is_gone(NodeId(1)) && !peers.note_gone(NodeId(2)));
    }

    #[test]
    fn a_refused_store_breaks_no_rule() {
        assert_eq!(Breach::of(&Rejection::Refused(Refusal::Revoked)), None);
        let (expected, got) = (3, 5);
        let late = Rejection::OutOfOrder { expected, got };
        assert_eq!(Breach::of(&late), Some(Breach::OutOfOrder { expected, got }));
    }
}
