//! Fetches that this node has requested (UTLB §4.1, remote fetch).

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use mapwire_wire::{FetchId, Key, NodeId, ProcessId};

use crate::error::CommandError;
use crate::slots::{Ending, Slots};

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

#[derive(Debug)]
pub(crate) struct Fetches {
    /// At most [`MAX_FETCHES`] entries.
    asked: Slots<Fetch>,
    /// Key that the replies of each peer must show.
    reply_keys: Vec<Key>,
}

impl Deref for Fetches {
    type Target = Slots<Fetch>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.asked
    }
}

impl DerefMut for Fetches {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.asked
    }
}

impl Fetches {
    pub(crate) fn new(reply_keys: Vec<Key>) -> Self {
        Self { asked: Slots::new(Ending::Recycled), reply_keys }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.asked.len() < MAX_FETCHES
    }

    /// The key that replies of `peer`, which must exist, must show.
    pub(crate) fn reply_key(&self, peer: NodeId) -> Key {
        self.reply_keys[usize::from(peer.0)]
    }

    /// The fetch that a reply of `peer` names, if it was sent to that peer and the key is right.
    #[inline]
    pub(crate) fn answered(&mut self, peer: NodeId, key: &Key, fetch: FetchId) -> Option<&mut Fetch> {
        if self.reply_keys.get(usize::from(peer.0)) != Some(key) {
            return None;
        }
        self.asked.get_mut(fetch.0).filter(|fetch| fetch.from == peer && !matches!(fetch.fate, Fate::Failed(_)))
    }

    /// Bytes of NIC memory in use.
    pub(crate) fn all_bytes(&self) -> usize {
        self.asked.bytes() + self.reply_keys.capacity() * size_of::<Key>()
    }
}
