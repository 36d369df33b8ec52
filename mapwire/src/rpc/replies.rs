//! Replies that wait for room in their caller's memory: no server waits for a caller.

use std::collections::BTreeSet;

use mapwire_rpc::{Draft, Placed, Refusal, ReplyStatus, RequestId};

use super::deferred::Reply;
use super::error::Error;
use super::inner::Inner;

/// How much may wait for one caller, in areas: a caller that takes no replies takes no memory without end.
const MOST_AREAS: u64 = 4;

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
        let mut blocked = BTreeSet::new();
        for reply in self.deferred.take() {
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
