//! What the models and services ask of this computer.

use mapwire_host::waiting::now_ns;
use mapwire_node::{Act, Ask};
use mapwire_transport::fabric::Fabric;

use super::Driver;
use crate::ids::PROCESS;
use crate::memories::{Store, Transfer};

impl<F: Fabric> Driver<F> {
    /// Carries out what the models and services ask for. Whether there was anything.
    #[inline]
    pub(super) fn serve_services(&mut self) -> bool {
        // The clock is read only while something has a deadline.
        if let Some(at_ns) = self.local.node.poll_at()
            && let now_ns = now_ns()
            && at_ns <= now_ns
        {
            let now_ns = self.paths.catch_up(&mut self.local, now_ns);
            self.local.node.handle_time(now_ns);
        }
        self.local.node.has_asks() && self.serve_asks()
    }

    fn serve_asks(&mut self) -> bool {
        let mut has_stored = false;
        while let Some(Ask { act, .. }) = self.local.node.poll_ask() {
            if matches!(act, Act::Protect { .. }) && core::mem::take(&mut has_stored) {
                // Whoever waits for what was stored need not wait for the protections of what was asked for next.
                self.paths.transmit(&mut self.local);
            }
            match act {
                Act::Store { handler, to, region, at } => {
                    has_stored = true;
                    self.store(Store { handler, to, region, transfer: Transfer::Store { at } });
                }
                Act::StoreChanges { handler, to, region, copy } => {
                    self.store(Store { handler, to, region, transfer: Transfer::Changes { copy } });
                }
                Act::Fetch { handler, from: to, region, at } => {
                    self.store(Store { handler, to, region, transfer: Transfer::Fetch { at } });
                }
                Act::Change { handler, change } => {
                    if let Some(memory) = self.local.memories.of_service(handler) {
                        memory.change(change);
                    }
                }
                Act::Protect { handler, region, access } => self.local.memories.protect(handler, &region, access),
                act => self.serve_rare(act),
            }
        }
        // What the node did itself is work, too: there may be messages to transmit.
        true
    }

    #[inline]
    pub(super) fn store(&mut self, store: Store) {
        self.local.memories.store(&mut self.local.node, &mut self.local.outcomes, store);
    }

    #[cold]
    fn serve_rare(&mut self, act: Act) {
        match act {
            Act::PassMemory { to, export, tag } => {
                let pass = |tag, fd: std::os::fd::BorrowedFd<'_>| self.paths.fabric_mut().pass(to.node, tag, fd);
                self.local.memories.pass(&mut self.local.outcomes, (to.node, export, tag), pass);
                self.hear(export, to);
            }
            Act::GrantedApart { to, export } => {
                if !self.hear(export, to) && self.paths.has_remote_access(to.node) {
                    self.local.memories.announce(&mut self.local.node, &mut self.local.outcomes, to, export);
                }
            }
            Act::ImportOver { request } => {
                if let Some(Err(_)) = self.local.node.outcome(PROCESS, request) {
                    self.local.memories.drop_passed(request);
                }
                self.end_meeting(request);
            }
            Act::Revoked { from, export } => {
                self.local.memories.of_services().for_each(|(_, memory)| memory.handle_revoked(from.node, export));
            }
            Act::Meet { handler, to } => self.meet(handler, to.node),
            // These are served above.
            Act::Store { .. }
            | Act::StoreChanges { .. }
            | Act::Fetch { .. }
            | Act::Change { .. }
            | Act::Protect { .. } => {}
        }
    }
}
