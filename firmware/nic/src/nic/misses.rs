//! What waits for the host in the NIC, and how it goes on.

use mapwire_translation::{HandleLookup, HostRequest, Process as TableOwner, TranslationDesign};
use mapwire_wire::{ExportId, ProcessId};

use super::Nic;
use crate::lossy::Lossy;

impl<D: TranslationDesign> Nic<D> {
    /// The oldest request to the host, without which a transfer cannot go on. Do it (pin, install, fill), then call
    /// [`handle_miss_served`](Self::handle_miss_served).
    #[inline]
    pub fn poll_miss(&mut self) -> Option<HostRequest> {
        self.stalled.requests.pop_front()
    }

    /// What [`poll_miss`](Self::poll_miss) will return, oldest first.
    pub fn misses(&self) -> impl Iterator<Item = &HostRequest> {
        self.stalled.requests.iter()
    }

    /// Whether a request waits for the host.
    #[inline]
    #[must_use]
    pub fn has_misses(&self) -> bool {
        !self.stalled.requests.is_empty()
    }

    /// The host has done what it could for the requests that [`poll_miss`](Self::poll_miss) returned: what waited for them is
    /// retried, and packets that were dropped are requested again.
    pub fn handle_miss_served(&mut self) {
        while let Some(process) = self.stalled.processes.pop() {
            self.processes.resume(process);
        }
        while let Some(peer) = self.stalled.peers.pop() {
            self.answers.wait_again(peer);
        }
        while let Some(node) = self.outbound.lossy().and_then(Lossy::ask_again) {
            self.outbound.wake(node);
        }
    }

    /// Whether the NIC's memory holds what must be known of an export and its process before a packet for it can be authenticated
    /// (dynamic handle lookup §IV: CBH and PCH); if not, asks the host. An unknown export needs nothing: it is refused.
    pub(crate) fn has_handles(&mut self, export: ExportId) -> bool {
        let Some(entry) = self.exports.get(export.0) else {
            return true;
        };
        let owner = TableOwner(entry.process.0);
        for lookup in [self.translation.lookup_process(owner), self.translation.lookup_buffer(owner, export.0)] {
            if let HandleLookup::Host(request) = lookup {
                self.stalled.ask(request);
                return false;
            }
        }
        true
    }

    /// The long command of a process waits for the host.
    #[cold]
    pub(crate) fn stall_process(&mut self, process: ProcessId) {
        self.processes.stall(process);
        if !self.stalled.processes.contains(&process) {
            self.stalled.processes.push(process);
        }
    }

    /// What is owed to a peer waits for the host.
    #[cold]
    pub(crate) fn stall_peer(&mut self, peer: usize) {
        self.answers.stall(peer);
        if !self.stalled.peers.contains(&peer) {
            self.stalled.peers.push(peer);
        }
    }
}
