//! No network interface takes more memory than it has.

use mapwire_nic::MemoryBreakdown;
use mapwire_wire::NodeId;

use super::violation;
use crate::cluster::Violation;

/// What the tables of a network interface take.
pub(crate) fn fits(node: NodeId, memory: &MemoryBreakdown) -> Result<(), Violation> {
    let used = memory.used_bytes();
    match used <= memory.budget_bytes {
        true => Ok(()),
        false => Err(violation(
            "room",
            format!("{node}: {used} bytes are in use of {}", memory.budget_bytes),
        )),
    }
}
