//! What ends a run from outside.

use core::fmt;
use std::rc::Rc;

/// Says whether a run is to stop, whatever is left of it. It is asked every 1,024 events.
#[derive(Clone, Default)]
pub struct Interrupt(Option<Rc<dyn Fn() -> bool>>);

impl Interrupt {
    /// Stops a run once `is_over` says so.
    pub fn new(is_over: impl Fn() -> bool + 'static) -> Self {
        Self(Some(Rc::new(is_over)))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over())
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").finish_non_exhaustive()
    }
}
