//! Misses that only the host can resolve: the transfers that wait, and the requests to the host.
//!
//! Nothing of such a transfer is applied. A long send or a served fetch waits in its place while other processes and peers take their
//! turns. A packet waits at the head of its ring, and what follows it waits behind it; a link drops it and asks for it again. Pages that the
//! host cannot pin fail the command, or are refused to the peer as busy.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::{HostRequest, Page, Process as TableOwner};
use mapwire_wire::{NodeId, ProcessId};

/// Requests that may wait for the host; one that finds no room is made again when its transfer is retried.
const MAX_REQUESTS: usize = 64;

/// Pages that may be remembered for packets that lacked another: those of 16 long ones.
const MAX_FOUND: usize = 256;

/// Attempts at a packet before it is given up: each time the host supplies one of its pages it evicts another, for example if
/// fewer pages may be pinned than a packet has.
pub(crate) const MAX_TRIES: u32 = 256;

/// Attempts at a packet after which the pages that it lacks are noted when they are requested, and then taken from where they are
/// pinned: what other peers' packets lack evicts them from the cache before the next attempt.
const MANY_TRIES: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Stalled {
    /// Pages found for packets that lacked another page: they are not looked up again, and so may evict each other from the
    /// cache.
    found: Vec<(TableOwner, Page)>,
    /// Peers whose packet could not be taken, and the number of attempts.
    tries: Vec<(NodeId, u32)>,
    pub requests: VecDeque<HostRequest>,
    /// Processes whose long command cannot be cut.
    pub processes: Vec<ProcessId>,
    pub peers: Vec<usize>,
}

impl Stalled {
    /// Makes room for what may wait because of one more peer.
    pub(crate) fn reserve(&mut self, peers: usize) {
        self.found.reserve(MAX_FOUND);
        self.requests.reserve(MAX_REQUESTS);
        self.tries.reserve(peers);
        self.peers.reserve(peers);
    }

    /// Requests to the host, plus what waits for it.
    pub(crate) fn count(&self) -> usize {
        self.requests.len() + self.processes.len() + self.peers.len() + self.tries.len()
    }

    /// Queues a request to the host, unless the same is queued already.
    #[cold]
    pub(crate) fn ask(&mut self, request: HostRequest) {
        if self.requests.len() < MAX_REQUESTS && !self.requests.contains(&request) {
            self.requests.push_back(request);
        }
    }

    /// Notes a page that was found for a packet that lacks another.
    #[cold]
    pub(crate) fn note_found(&mut self, owner: TableOwner, page: Page) {
        if self.found.len() == MAX_FOUND {
            self.found.swap_remove(0);
        }
        self.found.push((owner, page));
    }

    #[inline]
    pub(crate) fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Whether the page was noted; forgets it.
    #[cold]
    pub(crate) fn take_found(&mut self, owner: TableOwner, page: Page) -> bool {
        let at = self.found.iter().position(|found| *found == (owner, page));
        at.is_some_and(|at| {
            self.found.swap_remove(at);
            true
        })
    }

    /// The next packet of a peer could not be taken.
    #[cold]
    pub(crate) fn note_try(&mut self, from: NodeId) {
        match self.tries.iter_mut().find(|tries| tries.0 == from) {
            Some((_, tries)) => *tries += 1,
            None => self.tries.push((from, 1)),
        }
    }

    /// The next packet of a peer was taken.
    #[inline]
    pub(crate) fn note_taken(&mut self, from: NodeId) {
        if !self.tries.is_empty() {
            self.tries.retain(|tries| tries.0 != from);
        }
    }

    /// Whether a packet has been tried so often that others seem to evict what the host supplies for it.
    #[cold]
    pub(crate) fn is_crowded(&self) -> bool {
        self.tries.iter().any(|tries| tries.1 >= MANY_TRIES)
    }

    /// Whether the next packet of a peer is to be given up if it lacks anything.
    #[cold]
    pub(crate) fn gives_up(&self, from: NodeId) -> bool {
        let mut tries = self.tries.iter();
        tries.any(|&(node, tries)| node == from && tries >= MAX_TRIES)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.requests.capacity() * size_of::<HostRequest>()
            + self.found.capacity() * size_of::<(TableOwner, Page)>()
            + self.tries.capacity() * size_of::<(NodeId, u32)>()
            + self.processes.capacity() * size_of::<ProcessId>()
            + self.peers.capacity() * size_of::<usize>()
    }
}
