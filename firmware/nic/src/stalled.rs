//! Misses that only the host can end: what waits for them, and what the host is asked.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::{HandleLookup, HostRequest, Process as TableOwner, TranslationDesign};
use mapwire_wire::{ExportId, ProcessId};

use crate::nic::Nic;

/// Requests that may wait for the host; one that finds no room is made again when its transfer is tried again.
const MAX_REQUESTS: usize = 64;

/// What waits for the host.
#[derive(Debug, Default)]
pub(crate) struct Stalled {
    requests: VecDeque<HostRequest>,
    /// Processes whose long command cannot be cut.
    processes: Vec<ProcessId>,
    /// Peers whose fetch cannot be served.
    peers: Vec<usize>,
}

impl Stalled {
    /// Asks the host, unless it has been asked the same already.
    #[cold]
    pub(crate) fn ask(&mut self, request: HostRequest) {
        if self.requests.len() < MAX_REQUESTS && !self.requests.contains(&request) {
            self.requests.push_back(request);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.requests.capacity() * size_of::<HostRequest>()
            + self.processes.capacity() * size_of::<ProcessId>()
            + self.peers.capacity() * size_of::<usize>()
    }
}

impl<D: TranslationDesign> Nic<D> {
    /// What the NIC asks of the host, oldest first: it cannot go on with a transfer before. Do it (pin, install, fill), then call
    /// [`handle_miss_served`](Self::handle_miss_served).
    #[inline]
    pub fn poll_miss(&mut self) -> Option<HostRequest> {
        self.stalled.requests.pop_front()
    }

    /// Whether the host is asked anything.
    #[inline]
    #[must_use]
    pub fn has_misses(&self) -> bool {
        !self.stalled.requests.is_empty()
    }

    /// The host has done what it could for the requests that [`poll_miss`](Self::poll_miss) gave: what waited for them is tried
    /// again, and packets that were dropped are asked for.
    pub fn handle_miss_served(&mut self) {
        while let Some(process) = self.stalled.processes.pop() {
            let state = self.processes.get(process);
            if state.is_some_and(|state| state.long.is_some()) {
                self.processes.long.insert(usize::from(process.0));
            }
        }
        while let Some(peer) = self.stalled.peers.pop() {
            self.answers.wait_again(peer);
        }
        self.links.ask_again();
    }

    /// Whether what must be known of an export and its process is in the NIC's memory, before a packet for it can be authenticated
    /// (dynamic handle lookup §IV: CBH and PCH); if not, the host is asked for it. What is not exported needs nothing: it is refused.
    pub(crate) fn has_handles(&mut self, export: ExportId) -> bool {
        let Some(entry) = self.exports.0.get(export.0) else {
            return true;
        };
        let owner = TableOwner(entry.process.0);
        for lookup in [
            self.translation.lookup_process(owner),
            self.translation.lookup_buffer(owner, export.0),
        ] {
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
        self.processes.long.remove(usize::from(process.0));
        if !self.stalled.processes.contains(&process) {
            self.stalled.processes.push(process);
        }
    }

    /// What is owed to a peer waits for the host.
    #[cold]
    pub(crate) fn stall_peer(&mut self, peer: usize) {
        self.answers.waiting.remove(peer);
        if !self.stalled.peers.contains(&peer) {
            self.stalled.peers.push(peer);
        }
    }
}
