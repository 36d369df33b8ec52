//! Fetches that this node has requested (UTLB §4.1, remote fetch).

use mapwire_wire::{FetchId, Key, NodeId, ProcessId};

use crate::error::CommandError;
use crate::slots::Slots;

/// Fetches that a NIC may have under way; further ones wait.
pub(crate) const MAX_FETCHES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Wanted,
    /// It failed; reported once no memory move of it is under way.
    Failed(CommandError),
    /// It failed on this side; reported in the same way, and what the peer still sends of it is dropped.
    Failing(CommandError),
    /// Its process is gone. The peer still serves it and must be allowed to finish, or the two sides would count differently.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub process: ProcessId,
    pub from: NodeId,
    /// Local destination.
    pub address: u64,
    pub length: u64,
    /// Bytes received so far; replies come in order.
    pub received: u64,
    /// Memory moves that the driver has not reported as done.
    pub moving: u32,
    pub fate: Fate,
    pub completion: u32,
}

impl Fetch {
    /// Whether all of it has arrived. A flush has no bytes: its answer counts as being moved until it is done.
    pub(crate) const fn has_come(&self) -> bool {
        self.received == self.length && (self.length > 0 || self.moving > 0)
    }
}

/// At most [`MAX_FETCHES`] entries.
pub(crate) type Fetches = Slots<Fetch>;

impl Slots<Fetch> {
    pub(crate) fn has_room(&self) -> bool {
        self.len() < MAX_FETCHES
    }

    /// The fetch that a reply of `peer` names, if it was sent to that peer and the key is `due`, that of its replies.
    #[inline]
    pub(crate) fn answered(&mut self, peer: NodeId, due: Option<&Key>, key: &Key, id: FetchId) -> Option<&mut Fetch> {
        let fetch = self.get_mut(id.0).filter(|_| due == Some(key))?;
        (fetch.from == peer && !matches!(fetch.fate, Fate::Failed(_))).then_some(fetch)
    }
}
