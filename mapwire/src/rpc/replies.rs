//! Replies that wait for room in their caller's memory: no server waits for a caller.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use mapwire_rpc::{Draft, Placed, Refusal, ReplyStatus, RequestId, Rpc as Service};
use mapwire_wire::NodeId;

use super::error::Error;
use super::inner::Inner;

/// How much may wait for one caller, in areas: a caller that takes no replies takes no memory without end.
const MOST_AREAS: u64 = 4;

#[derive(Debug)]
struct Reply {
    id: RequestId,
    body: Vec<u8>,
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

    fn bytes_for(&self, peer: NodeId) -> u64 {
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.iter().filter(|reply| reply.id.peer == peer).map(|reply| reply.body.len() as u64).sum()
    }

    fn push(&self, reply: Reply) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.push_back(reply);
        self.count.fetch_max(replies.len(), Ordering::Relaxed);
    }

    /// Those that were taken out to be sent have been sent, or are back.
    fn note_count(&self) {
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.store(replies.len(), Ordering::Relaxed);
    }
}

impl Inner {
    /// Sends a reply whose body found no room when it was written, or keeps it. A caller that takes no replies is refused in the end.
    pub(super) fn reply_later(&self, id: RequestId, body: Vec<u8>) -> Result<(), Error> {
        let reply = Reply { id, body };
        let waiting = self.deferred.bytes_for(id.peer);
        let reply = match self.deferred.are_any() {
            false => match self.try_reply(reply)? {
                Some(reply) => reply,
                None => return Ok(()),
            },
            true => reply,
        };
        let limit = MOST_AREAS.saturating_mul(self.config.area_bytes);
        if waiting.saturating_add(reply.body.len() as u64) > limit {
            let status = ReplyStatus::SystemError;
            self.call(|service| {
                let draft = Draft::reply(id.xid, status, service.take_spare());
                service.reply(&id, draft, None)
            })??;
            return Err(Refusal::NoRoom(id.peer).into());
        }
        self.deferred.push(reply);
        Ok(())
    }

    /// Sends a reply if there is room; else gives it back.
    fn try_reply(&self, reply: Reply) -> Result<Option<Reply>, Error> {
        let Reply { id, ref body } = reply;
        let bytes = body.len() as u64;
        let room = match self.call(|service| service.reserve(id.peer, bytes))? {
            Ok(room) => room,
            Err(Refusal::NoRoom(_)) => return Ok(Some(reply)),
            Err(error) => return Err(error.into()),
        };
        let pair = self.pair(id.peer);
        let pair = pair.filter(|pair| pair.put(room.at, body));
        let Some(pair) = pair else {
            self.call(|service| service.cancel(id.peer, room))?;
            return Ok(Some(reply));
        };
        let placed = Placed { room, bytes, moves: pair.moves() };
        self.call(|service| {
            let draft = Draft::reply(id.xid, ReplyStatus::Success, service.take_spare());
            let sent = service.reply(&id, draft, Some(placed));
            if sent.is_err() {
                service.cancel(id.peer, room);
            }
            sent
        })??;
        Ok(None)
    }

    pub(super) fn send_deferred(&self) -> Result<(), Error> {
        let waiting = {
            let mut replies = self.deferred.replies.lock().unwrap_or_else(PoisonError::into_inner);
            core::mem::take(&mut *replies)
        };
        let mut blocked = BTreeSet::new();
        for reply in waiting {
            let peer = reply.id.peer;
            if blocked.contains(&peer.0) {
                self.deferred.push(reply);
                continue;
            }
            match self.try_reply(reply) {
                Ok(None) => {}
                Ok(Some(reply)) => {
                    blocked.insert(peer.0);
                    self.deferred.push(reply);
                }
                // Its caller is gone.
                Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.deferred.note_count();
        Ok(())
    }
}
