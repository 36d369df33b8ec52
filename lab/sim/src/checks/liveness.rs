//! Once faults have ended nothing is pending for ever.

use mapwire_wire::Endpoint;

use super::{Violation, violation};

/// Nothing is left to happen, and this still waits at a process.
pub(crate) fn still_waits(at: Endpoint, what: String) -> Violation {
    let Endpoint { node, process } = at;
    violation("liveness", format!("{node}, {process}: {what} waits for ever"))
}

/// Things still happen long after the last fault and the last call of a program.
pub(crate) fn never_rests(now_ns: u64, events: u64) -> Violation {
    let text = format!("things still happen {now_ns} ns from the start, after {events} events");
    violation("liveness", text)
}
