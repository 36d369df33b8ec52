//! Where pages go: nodes drawn by weight, and the epochs that make the weights (Feeley §3).

use mapwire_wire::NodeId;

use super::Gms;
use crate::message::{AgeReport, Message};
use crate::name::mix;

impl Gms {
    /// Draws a node that has not been asked for this put: by the epoch's weights, or, while nothing is known of ages, by free frames.
    pub(super) fn draw_node(&mut self, put: u32) -> Option<NodeId> {
        let tried = self.puts.get(put)?;
        let open = self.view.peers().iter().filter(|&node| !tried.has_tried(node));
        let open: alloc::vec::Vec<_> = open.collect();
        let donations = &self.donations;
        let free = |node: NodeId| u64::from(donations.get(&node).copied().unwrap_or(0));
        let by_age = open.iter().map(|&node| (node, self.epochs.weight(node)));
        let by_free = open.iter().map(|&node| (node, free(node)));
        let has_weight = by_age.clone().any(|(_, weight)| weight > 0);
        let random = mix(self.random);
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        if has_weight { draw(random, by_age) } else { draw(random, by_free) }
    }

    pub(super) fn advance_epochs(&mut self, now_ns: u64) {
        let coordinator = self.view.coordinator();
        let is_coordinator = coordinator == Some(self.me());
        if self.view.is_member()
            && !is_coordinator
            && self.epochs.is_silent(now_ns)
            && let Some(coordinator) = coordinator
        {
            // It would have taken the initiator's place. A link finds out that a peer is dead only if something is sent there.
            let frames = self.pool.free();
            self.out.send(coordinator, Message::Free { frames });
        }
        if !self.view.is_member() || !self.epochs.is_due(now_ns, self.me(), is_coordinator) {
            return;
        }
        if self.epochs.is_collecting() {
            self.begin_epoch(now_ns);
            return;
        }
        let epoch = self.epochs.collect(now_ns);
        self.tell(self.view.peers(), Message::AgesWanted { epoch });
        let own = self.own_ages(now_ns, epoch);
        self.handle_ages(now_ns, self.me(), own);
    }

    fn own_ages(&mut self, now_ns: u64, epoch: u32) -> AgeReport {
        AgeReport { epoch, free: self.pool.free(), replaced: self.epochs.take_replaced(), bins: self.pool.ages(now_ns) }
    }

    /// The initiator asks for ages.
    pub(super) fn report_ages(&mut self, now_ns: u64, from: NodeId, epoch: u32) {
        if self.view.is_peer(from) {
            let report = self.own_ages(now_ns, epoch);
            self.out.send(from, Message::Ages(report));
        }
    }

    pub(super) fn handle_ages(&mut self, now_ns: u64, from: NodeId, report: AgeReport) {
        if !self.view.is_peer(from) {
            return;
        }
        self.donations.insert(from, report.free);
        let nodes = self.view.peers().len() + 1;
        if self.epochs.add_report(from, report) == Some(nodes) {
            self.begin_epoch(now_ns);
        }
    }

    /// All ages that will come are there.
    fn begin_epoch(&mut self, now_ns: u64) {
        if let Some(info) = self.epochs.compute(self.me()) {
            self.counters.epochs += 1;
            self.epochs.adopt(now_ns, info);
            self.tell(self.view.peers(), Message::Epoch(info));
        }
    }
}

/// Draws a node by weight; `None` if all weights are 0.
fn draw(random: u64, nodes: impl Iterator<Item = (NodeId, u64)> + Clone) -> Option<NodeId> {
    let sum: u64 = nodes.clone().map(|(_, weight)| weight).sum();
    let mut left = random.checked_rem(sum)?;
    for (node, weight) in nodes {
        if left < weight {
            return Some(node);
        }
        left -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_drawn_in_proportion_to_their_weights() {
        let nodes = [(NodeId(1), 1), (NodeId(2), 0), (NodeId(3), 3)];
        let drawn = (0..400).filter_map(|random| draw(random, nodes.into_iter()));
        let third = drawn.filter(|&node| node == NodeId(3)).count();
        assert_eq!(third, 300);
        assert_eq!(draw(7, [(NodeId(1), 0)].into_iter()), None);
    }
}
