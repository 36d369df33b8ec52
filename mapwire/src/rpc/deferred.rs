//! Replies that wait for room.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use mapwire_rpc::{Refusal, RequestId, Rpc as Service};
use mapwire_wire::NodeId;

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) id: RequestId,
    pub(super) body: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Deferred {
    replies: Mutex<VecDeque<Reply>>,
    count: AtomicUsize,
}

impl Deferred {
    /// Whether one of them may go now, to a peer whose memory `is_ready`.
    #[inline]
    pub(super) fn may_go(&self, service: &mut Service, is_ready: impl Fn(NodeId) -> bool) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.finds_room(service, is_ready)
    }

    #[cold]
    fn finds_room(&self, service: &mut Service, is_ready: impl Fn(NodeId) -> bool) -> bool {
        let Ok(replies) = self.replies.try_lock() else { return false };
        let mut seen = BTreeSet::new();
        // Those of one caller go in their order.
        replies.iter().filter(|reply| seen.insert(reply.id.peer.0)).any(|reply| {
            let peer = reply.id.peer;
            match service.reserve(peer, reply.body.len() as u64) {
                Ok(room) => {
                    service.cancel(peer, room);
                    is_ready(peer)
                }
                Err(Refusal::NoRoom(_)) => false,
                Err(_) => true,
            }
        })
    }

    /// Forgets replies to a peer whose connection is over.
    pub(super) fn forget(&self, peer: NodeId) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.retain(|reply| reply.id.peer != peer);
        self.count.store(replies.len(), Ordering::Relaxed);
    }

    /// Whether replies wait: later ones go behind them, since a caller may wait for the first and leave the others where they lie.
    pub(super) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(super) fn bytes_for(&self, peer: NodeId) -> u64 {
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.iter().filter(|reply| reply.id.peer == peer).map(|reply| reply.body.len() as u64).sum()
    }

    pub(super) fn push(&self, reply: Reply) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.push_back(reply);
        self.count.fetch_max(replies.len(), Ordering::Relaxed);
    }

    /// Takes all out, to be sent; [`note_count`](Self::note_count) must follow.
    pub(super) fn take(&self) -> VecDeque<Reply> {
        core::mem::take(&mut *self.replies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Those that were taken out to be sent have been sent, or are back.
    pub(super) fn note_count(&self) {
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.store(replies.len(), Ordering::Relaxed);
    }
}
