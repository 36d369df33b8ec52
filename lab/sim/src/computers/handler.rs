//! The processors of a host, and the handler of its interrupts.

use crate::hardware::Ps;
use crate::hardware::processors::{Processors, ThreadId};

/// Priorities of threads.
pub(super) const PROGRAM: u8 = 1;
const HANDLER: u8 = 2;

/// What the handler of a host is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    Nothing,
    /// The interrupt is on its way to it.
    Called,
    /// It begins after a while, to work for so long.
    Waits(Ps),
    /// It brings in what the NIC misses.
    Serves,
    /// It gives pages back, for which the NIC need not wait.
    Unpins,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) processors: Processors,
    pub(super) handler: ThreadId,
    pub(super) handling: Handling,
    pub(super) handles_since_ps: Ps,
}

impl Host {
    pub(super) fn new(processors: u16) -> Self {
        // Programs do not take turns: each step is done before the next begins.
        let mut processors = Processors::new(processors, 0, Ps::MAX >> 1);
        let handler = processors.add(HANDLER);
        Self { processors, handler, handling: Handling::Nothing, handles_since_ps: 0 }
    }
}
