//! The interface between the coherence protocols and synchronisation.
//!
//! Sequential consistency needs nothing from locks and barriers. Protocols that delay news of other ranks' writes until a rank synchronises
//! (lazy release consistency; Keleher et al. 1992) let it travel on the messages that pass a lock or count a barrier:
//! [`Coherence::release`] precedes each token and each arrival, and may delay it; [`Coherence::payload`] travels on it, and
//! [`Coherence::acquire`] handles that before any thread that waits for it continues. The release of a barrier by its manager delays
//! nothing: it tells what others have released. Threads of one rank that pass each other a lock share their memory, and exchange nothing.

use crate::context::Context;
use crate::{Barrier, Lock, Message, Rank, Thread, Violation};

/// A message that tells another rank of all that this one has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// The token of a lock.
    Token { lock: Lock, to: Rank },
    /// The arrival of all participants of this rank at a barrier.
    Arrival { barrier: Barrier },
    /// A call of an object by a thread that waits for its answer.
    Call { thread: Thread },
}

/// A protocol that keeps the ranks' copies coherent, for locks and barriers.
pub(crate) trait Coherence {
    /// Begins a release, after which everything that this rank has done must be visible to whoever acquires it. False: what is to be
    /// released is not in place yet; [`Dsm`](crate::Dsm) continues it when it is.
    fn release(&mut self, release: Release) -> bool;

    /// Whether the last rank to arrive at a barrier may be told that all others have, before it arrives. A lazy protocol would invalidate
    /// what that rank still uses, and could not tell any more what it knew as it wrote.
    fn releases_early(&self) -> bool;

    /// This rank arrives at a barrier now: its payload goes to the manager, or it is the manager.
    fn arrive(&mut self, barrier: Barrier);

    /// This rank passes a barrier.
    fn pass(&mut self, barrier: Barrier);

    /// Writes the payload of a message to that rank, and returns its length; called once for each, in order.
    fn payload(&mut self, to: Rank, message: &Message, bytes: &mut [u8]) -> usize;

    /// Handles the payload of a release by `from`. It is the last check of a message: an error changes nothing.
    fn acquire(&mut self, context: &mut Context, from: Rank, payload: &[u8]) -> Result<(), Violation>;

    /// Handles the payload of a request for a lock, or for a call that releases nothing, by rank `of`, which `from` has sent or forwarded; as `acquire` does.
    fn note_request(&mut self, from: Rank, of: Rank, payload: &[u8]) -> Result<(), Violation>;
}
