//! Results of handling datagrams, sealed or not.

use core::ops::Range;

use mapwire_wire::NodeId;

use crate::counters::Cause;

/// Result of opening a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The peer `from` sent the bytes at `bytes`.
    Data {
        /// Sender.
        from: NodeId,
        /// Range of the content in the datagram.
        bytes: Range<usize>,
    },
    /// A handshake datagram, fully handled.
    Handled,
    /// Without effect.
    Rejected(Cause),
}

/// Why nothing was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The job has no such peer.
    #[error("{0} is not a peer of this node: expected another node of the job")]
    NoPeer(NodeId),
    /// The peer's key is not known; [`Envelope::poll_wanted_key`](crate::Envelope::poll_wanted_key) names it.
    #[error("the key of {0} is not known yet: retry once it is set")]
    NoKey(NodeId),
    /// There is no session yet; a handshake is under way.
    #[error("there is no session with {0} yet: retry once the handshake is over")]
    NoSession(NodeId),
    /// The datagram has no room for the envelope.
    #[error("a datagram of {0} bytes has no room for its envelope: expected room in front and behind")]
    NoRoom(usize),
}
