//! Remote fetches: those that this node asked for, and those that it serves (UTLB §4.1, remote fetch).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_wire::{FetchId, Key, NodeId, ProcessId};

use crate::slots::Slots;

/// Fetches that a NIC may have under way; each costs one table entry.
pub(crate) const MAX_FETCHES: usize = 1024;

/// Fetches of one peer that wait to be served; one more is refused as busy, so a peer cannot make the queue grow.
pub(crate) const MAX_SERVING: usize = 64;

/// A fetch that this node asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) process: ProcessId,
    pub(crate) from: NodeId,
    /// Local destination.
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// Bytes announced by replies so far; replies come in order.
    pub(crate) received: u64,
    pub(crate) completion: u32,
}

/// A fetch that this node serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving {
    pub(crate) process: ProcessId,
    pub(crate) fetch: FetchId,
    pub(crate) reply_key: Key,
    /// Identifier of the export: checked again before each chunk, since it may be revoked in between.
    pub(crate) export: u32,
    pub(crate) address: u64,
    pub(crate) remaining: u64,
    /// Bytes sent so far.
    pub(crate) sent: u64,
}

#[derive(Debug)]
pub(crate) struct Fetches {
    pub(crate) asked: Slots<Fetch>,
    pub(crate) serving: Vec<VecDeque<Serving>>,
    /// Fetches being served, over all peers: mostly none.
    pub(crate) serving_count: usize,
    /// What a reply of each peer must show.
    pub(crate) reply_keys: Vec<Key>,
}

impl Fetches {
    pub(crate) fn new(reply_keys: Vec<Key>) -> Self {
        let mut serving = Vec::new();
        serving.resize_with(reply_keys.len(), VecDeque::new);
        Self {
            asked: Slots::new(),
            serving,
            serving_count: 0,
            reply_keys,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.asked.len() * size_of::<Fetch>()
            + self.serving_count * size_of::<Serving>()
            + self.reply_keys.len() * 16) as u64
    }
}
