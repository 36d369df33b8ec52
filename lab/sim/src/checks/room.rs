//! No network interface takes more memory than it has; and once nothing is under way, a node holds what its programs hold and nothing
//! else.

use mapwire_nic::{Holdings, MemoryBreakdown};
use mapwire_node::Backlog;
use mapwire_wire::{ExportId, NodeId};

use super::{Violation, expect, violation};

/// Bytes that tables of a network interface may keep for each peer that it has spoken with: queues grow by what is under way.
const A_PEER: u64 = 64 << 10;
/// Bytes that they may keep for each process: its exports, imports and translations.
const A_PROCESS: u64 = 64 << 10;

/// What the tables of a network interface take: no more than it has, nor than its peers and processes can have made it take.
pub(crate) fn fits(
    node: NodeId,
    memory: &MemoryBreakdown,
    idle_bytes: u64,
    (peers, processes): (u64, u64),
) -> Result<(), Violation> {
    let used = memory.used_bytes();
    let due = idle_bytes + peers * A_PEER + processes * A_PROCESS;
    let most = due.min(memory.budget_bytes);
    expect(used <= most, "room", || {
        format!(
            "{node}: {used} bytes are in use, of {most} at most: {idle_bytes} when idle, {peers} peers, {processes} processes\n{memory}"
        )
    })
}

/// What a node at rest holds, whose programs have `exports` and `imports`.
pub(crate) fn holds_what_is_used(
    node: NodeId,
    (exports, imports): (usize, usize),
    holdings: &Holdings,
    backlog: &Backlog,
) -> Result<(), Violation> {
    let used = Holdings { exports, imports, ..Holdings::default() };
    expect(*holdings == used && *backlog == Backlog::default(), "room", || {
        format!(
            "{node} is at rest and holds {holdings:?}, {backlog:?}; its programs have {exports} exports and {imports} imports"
        )
    })
}

/// How often an export is held by imports, as its node has it and as programs have it.
pub(crate) fn has_holders(node: NodeId, export: ExportId, holders: usize, used: usize) -> Result<(), Violation> {
    expect(holders == used, "room", || {
        format!("{node} is at rest; {export} has {used} imports, and is held by {holders}")
    })
}

/// A link has more packets under way than its receiver keeps.
pub(crate) fn is_too_much(node: NodeId, to: NodeId, unacked: u32) -> Violation {
    let text = format!("{node} has {unacked} packets under way to {to}");
    violation("room", text)
}
