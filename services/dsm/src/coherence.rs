//! The boundary between what keeps the memory coherent and the rest: allocation, locks, barriers.
//!
//! Sequential consistency needs nothing from synchronisation. Protocols that delay what a rank learns of others' writes until it
//! synchronises (lazy release consistency; Keleher et al. 1992) learn it on the messages that hand on a lock or count a barrier:
//! [`Coherence::release`] comes before each of them is sent, [`Coherence::payload`] rides on it, and [`Coherence::acquire`] takes
//! that in before any thread goes on that waits for it. A barrier is a release of each rank to the manager, and one of the
//! manager to each rank. Threads of one rank that hand a lock to each other share their memory, and exchange nothing.

use crate::context::Context;
use crate::{Minipage, Rank, Violation};

/// A protocol that keeps the ranks' copies of minipages coherent, as the other parts of a rank see it.
pub(crate) trait Coherence {
    /// Whether this rank knows of no minipage on the pages of a well-formed one, in its view.
    fn is_free(&self, minipage: &Minipage) -> bool;

    /// Enters a new minipage of this rank, whose pages are free here: all zero, and writable at once.
    fn create(&mut self, context: &mut Context, minipage: Minipage);

    /// Whether another rank must know of a minipage before its address is told to anybody.
    fn must_know(&self, minipage: &Minipage, rank: Rank) -> bool;

    /// Enters a new, well-formed minipage of another rank, which must be known here.
    fn enter(&mut self, from: Rank, minipage: Minipage) -> Result<(), Violation>;

    /// What this rank has done and knows so far must be visible at `to` when it has handled the message that is sent next.
    /// Asks for what must happen before.
    fn release(&mut self, context: &mut Context, to: Rank);

    /// The payload of the message that a `release` to that rank announced, at most
    /// [`MAX_PAYLOAD_BYTES`](crate::MAX_PAYLOAD_BYTES); asked once for each, in their order.
    fn payload(&mut self, to: Rank) -> &[u8];

    /// Takes in the payload of a release by `from`. The last check of a message: an error changes nothing.
    fn acquire(&mut self, context: &mut Context, from: Rank, payload: &[u8]) -> Result<(), Violation>;
}
