//! The boundary between what keeps the memory coherent and the rest: allocation, locks, barriers.

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
}
