//! The interface between the coherence protocol and the rest: allocation, locks, barriers.
//!
//! Sequential consistency needs nothing from synchronisation. Protocols that delay news of other ranks' writes until a rank synchronises
//! (lazy release consistency; Keleher et al. 1992) send it on the messages that pass a lock or count a barrier: [`Coherence::release`]
//! precedes each such message, [`Coherence::payload`] travels on it, and [`Coherence::acquire`] handles it before any thread that waits
//! for it continues. A barrier is a release by each rank to the manager, and one by the manager to each rank. Threads of one rank that
//! pass each other a lock share their memory, and exchange nothing.

use crate::context::Context;
use crate::{Minipage, Rank, Violation};

/// A protocol that keeps the ranks' copies of minipages coherent, for the other parts of a rank.
pub(crate) trait Coherence {
    /// Whether no known minipage of the same view overlaps the pages of `minipage`, which must be well-formed.
    fn is_free(&self, minipage: &Minipage) -> bool;

    /// Enters a new minipage of this rank, whose pages must be free here: all zero, and writable at once.
    fn create(&mut self, context: &mut Context, minipage: Minipage);

    /// Whether `rank` must know of a minipage before its address is published.
    fn must_know(&self, minipage: &Minipage, rank: Rank) -> bool;

    /// Enters a new, well-formed minipage of another rank, which this rank must know.
    fn enter(&mut self, from: Rank, minipage: Minipage) -> Result<(), Violation>;

    /// Prepares a release: once `to` has handled the next message sent to it, everything that this rank has done and knows must be visible
    /// there. Requests what must happen first.
    fn release(&mut self, context: &mut Context, to: Rank);

    /// The payload of the message that a `release` to that rank announced, at most [`MAX_PAYLOAD_BYTES`](crate::MAX_PAYLOAD_BYTES); called
    /// once for each, in order.
    fn payload(&mut self, to: Rank) -> &[u8];

    /// Handles the payload of a release by `from`. It is the last check of a message: an error changes nothing.
    fn acquire(&mut self, context: &mut Context, from: Rank, payload: &[u8]) -> Result<(), Violation>;
}
