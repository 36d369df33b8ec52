//! What a node leaves undone while it is confined.
//!
//! A page-fault handler may have interrupted an allocator, so nothing on its way may allocate or free. Its node is *confined*: it
//! takes only what is known to do neither, keeps control messages in memory made beforehand, and leaves the rest where it is, for a
//! thread that may do it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_wire::{Endpoint, MAX_CONTROL_BYTES, NodeId, ProcessId};

/// Control messages kept; those beyond wait where they are.
const MESSAGES: usize = 32;

#[derive(Debug)]
pub(crate) struct Kept {
    from: Endpoint,
    to: ProcessId,
    length: usize,
    bytes: [u8; MAX_CONTROL_BYTES],
}

impl Kept {
    pub(crate) fn from(&self) -> Endpoint {
        self.from
    }

    pub(crate) fn to(&self) -> ProcessId {
        self.to
    }

    pub(crate) fn message(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Whether the node is confined, and what waits for the end of that.
#[derive(Debug)]
pub(crate) struct Confinement {
    is_on: bool,
    messages: VecDeque<Kept>,
    /// Peers that are gone, of which only services that allocate nothing have been told.
    gone: Vec<NodeId>,
    /// Something was kept, or left where it is.
    has_left: bool,
}

impl Confinement {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            is_on: false,
            messages: VecDeque::with_capacity(MESSAGES),
            gone: Vec::with_capacity(nodes),
            has_left: false,
        }
    }

    pub(crate) fn set(&mut self, on: bool) {
        self.is_on = on;
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Something stays where it is.
    pub(crate) fn leave(&mut self) {
        self.has_left = true;
    }

    /// Whether one more control message can be kept.
    pub(crate) fn has_room(&self) -> bool {
        self.messages.len() < MESSAGES
    }

    /// Keeps a control message of [`MAX_CONTROL_BYTES`] at most, which `copy` writes. There is room for it.
    pub(crate) fn keep(&mut self, from: Endpoint, to: ProcessId, length: usize, copy: impl FnOnce(&mut [u8])) {
        self.has_left = true;
        let mut bytes = [0; MAX_CONTROL_BYTES];
        copy(&mut bytes[..length]);
        self.messages.push_back(Kept { from, to, length, bytes });
    }

    /// Keeps that a peer is gone. Each peer goes once.
    pub(crate) fn note_gone(&mut self, node: NodeId) {
        self.has_left = true;
        self.gone.push(node);
    }

    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.has_left
    }

    /// Messages that wait, and peers that are gone.
    pub(crate) fn count(&self) -> usize {
        self.messages.len() + self.gone.len()
    }

    /// What was left where it is will be looked at now.
    pub(crate) fn begin_to_make_up(&mut self) {
        self.has_left = false;
    }

    pub(crate) fn next_message(&mut self) -> Option<Kept> {
        self.messages.pop_front()
    }

    pub(crate) fn next_gone(&mut self) -> Option<NodeId> {
        self.gone.pop()
    }
}
