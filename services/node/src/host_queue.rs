//! Messages of services that want a thread of the host ([`Service::runs_on_host`](mapwire_vmmc::service::Service::runs_on_host)), in order of
//! arrival.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_wire::{Endpoint, HandlerId, NodeId};

/// Messages that wait at most. When as many do, whoever takes packets works them off.
const MOST: usize = 1024;

/// A message: for which service, from whom, and its bytes.
type Waiting = (HandlerId, Endpoint, Vec<u8>);

/// The messages of a process's services that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct HostQueue(VecDeque<Waiting>);

impl HostQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    /// Whether anything waits for a service: what comes for it then waits behind.
    #[inline]
    pub(crate) fn has(&self, handler: HandlerId) -> bool {
        self.0.iter().any(|(of, ..)| *of == handler)
    }

    pub(crate) fn push(&mut self, handler: HandlerId, from: Endpoint, bytes: &[u8]) {
        self.0.push_back((handler, from, bytes.to_vec()));
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        self.0.pop_front()
    }

    /// Drops what a peer that is gone had said.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.0.retain(|(_, from, _)| from.node != node);
    }
}
