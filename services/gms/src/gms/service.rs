//! The global memory as a service of a node.

use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, NodeId};

use super::Gms;
use crate::message::Message;
use crate::nodes::MAX_NODES;
use crate::outcome::Outcome;

impl Gms {
    /// How an operation ended.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether [`poll_outcome`](Self::poll_outcome) gives something.
    #[must_use]
    pub fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }
}

impl Service for Gms {
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let is_other = from.node != self.me() && from.node.0 < MAX_NODES;
        if !is_other || from.process != self.config.process {
            return Err(Broken);
        }
        if self.view.is_gone(from.node) {
            return Ok(());
        }
        let message = Message::parse(message).map_err(|_| Broken)?;
        self.view.note_known(from.node);
        let taken = self.take(now_ns, from.node, message);
        self.settle_down(now_ns);
        taken
    }

    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId) {
        self.lose_peer(node);
        self.settle_down(now_ns);
    }

    /// What was agreed on with the receiver is lost with the message: it counts as gone.
    fn handle_lost(&mut self, to: Endpoint) {
        self.lose_peer(to.node);
        // What is due at a time is found due when the time is known.
        self.settle_down(0);
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.advance_epochs(now_ns);
        self.settle_down(now_ns);
    }

    fn runs_on_host(&self, message: &[u8]) -> bool {
        self.config.directory_on_host && Message::is_for_directory(message)
    }

    fn has_actions(&self) -> bool {
        !self.out.is_empty()
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        self.out.poll_action()
    }

    fn poll_at(&self) -> Option<u64> {
        let epoch = if self.view.is_member() { self.epochs.poll_at() } else { None };
        [epoch, self.retry_at_ns].into_iter().flatten().min()
    }
}
