//! Whoever is told that a peer has started anew is told so once for each time that it has.

use std::collections::BTreeMap;

use mapwire_wire::NodeId;

use super::{Violation, expect};

/// Restarts of all nodes, and what was told of them.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    happened: BTreeMap<NodeId, u32>,
    /// By who was told, and of whom.
    told: BTreeMap<(NodeId, NodeId), u32>,
}

impl Restarts {
    /// A node has started anew.
    pub(crate) fn happen(&mut self, node: NodeId) {
        *self.happened.entry(node).or_default() += 1;
    }

    /// A node is told that another has.
    pub(crate) fn tell(&mut self, at: NodeId, of: NodeId) -> Result<(), Violation> {
        let told = self.told.entry((at, of)).or_default();
        *told += 1;
        let happened = self.happened.get(&of).copied().unwrap_or(0);
        expect(*told <= happened, "restarts", || {
            format!("{at} is told {told} times that {of} has restarted, which has {happened} times")
        })
    }
}
