//! Calls of this node to others.

use mapwire_wire::NodeId;

use super::{Peer, Rpc};
use crate::config::MOST_IN_FLIGHT;
use crate::envelope::{Draft, Offer, Placed, Room};
use crate::outcome::{Body, Lent, Outcome, Refusal, Xid};

impl Rpc {
    /// The connection's limits, if it is open.
    fn open_peer(&mut self, to: NodeId) -> Result<(&mut Peer, Offer), Refusal> {
        let peer = self.peer_mut(to).filter(|peer| peer.is_open).ok_or(Refusal::NotOpen(to))?;
        let theirs = peer.theirs.ok_or(Refusal::NotOpen(to))?;
        Ok((peer, theirs))
    }

    /// Room for a body of `bytes` in the memory of a peer.
    ///
    /// # Errors
    /// [`Refusal::NotOpen`], [`Refusal::TooLong`]; [`Refusal::NoRoom`] for now.
    pub fn reserve(&mut self, to: NodeId, bytes: u64) -> Result<Room, Refusal> {
        let (peer, theirs) = self.open_peer(to)?;
        let limit = theirs.max_record_bytes.min(peer.area.bytes());
        if bytes > limit {
            return Err(Refusal::TooLong { peer: to, bytes, limit });
        }
        let at = peer.area.reserve(bytes).ok_or(Refusal::NoRoom(to))?;
        Ok(Room { at, bytes, session: theirs.session })
    }

    /// Gives back room that is not used.
    pub fn cancel(&mut self, to: NodeId, room: Room) {
        if let Ok((peer, theirs)) = self.open_peer(to)
            && theirs.session == room.session
        {
            peer.area.release(room.at);
        }
    }

    /// Whether a call to a peer may begin.
    ///
    /// # Errors
    /// [`Refusal::NotOpen`]; [`Refusal::NoWindow`] for now; [`Refusal::TooMany`].
    pub fn may_begin(&mut self, to: NodeId) -> Result<(), Refusal> {
        let limit = self.config.max_in_flight.min(MOST_IN_FLIGHT);
        let under_way = self.calls.len();
        let (peer, _) = self.open_peer(to)?;
        if !peer.has_window() {
            return Err(Refusal::NoWindow(to));
        }
        if under_way >= limit { Err(Refusal::TooMany(under_way)) } else { Ok(()) }
    }

    /// Begins a call that [may begin](Self::may_begin), and takes the draft. The body is in the draft unless it is `placed`.
    ///
    /// # Errors
    /// As [`may_begin`](Self::may_begin); nothing has changed then.
    pub fn begin(
        &mut self,
        to: NodeId,
        draft: &mut Option<Draft>,
        placed: Option<Placed>,
        deadline_ns: Option<u64>,
    ) -> Result<Xid, Refusal> {
        self.may_begin(to)?;
        self.check_room(to, placed)?;
        let xid = self.calls.begin(to, deadline_ns);
        self.send_call(to, draft, placed, xid, false);
        Ok(Xid(xid))
    }

    /// As [`begin`](Self::begin), for a call that is never answered.
    ///
    /// # Errors
    /// As [`may_begin`](Self::may_begin); nothing has changed then.
    pub fn one_way(&mut self, to: NodeId, draft: &mut Option<Draft>, placed: Option<Placed>) -> Result<(), Refusal> {
        self.may_begin(to)?;
        self.check_room(to, placed)?;
        let xid = self.calls.next_xid();
        self.send_call(to, draft, placed, xid, true);
        Ok(())
    }

    /// Whether room is in memory that the peer still lends.
    pub(super) fn check_room(&self, to: NodeId, placed: Option<Placed>) -> Result<(), Refusal> {
        let theirs = self.peer(to).and_then(|peer| peer.theirs);
        match placed {
            Some(placed) if theirs.is_none_or(|it| it.session != placed.room.session) => Err(Refusal::NotOpen(to)),
            _ => Ok(()),
        }
    }

    pub(super) fn send_call(
        &mut self,
        to: NodeId,
        draft: &mut Option<Draft>,
        placed: Option<Placed>,
        xid: u32,
        is_one_way: bool,
    ) {
        if let Some(mut draft) = draft.take() {
            self.counters.calls_made += 1;
            if let Some(peer) = self.peer_mut(to) {
                peer.note_sent();
            }
            draft.set_xid(xid);
            if is_one_way {
                draft.set_one_way();
            }
            self.post_record(to, draft, placed, false);
        }
    }

    /// What came of a call, once.
    pub fn take_outcome(&mut self, xid: Xid) -> Option<Outcome> {
        Some(self.calls.take(xid.0)?.1)
    }

    /// Whether a call still waits for its reply.
    #[must_use]
    pub fn is_waiting(&self, xid: Xid, to: NodeId) -> bool {
        self.calls.awaits(xid.0, to)
    }

    /// Gives a call up: its reply is dropped when it comes.
    pub fn abandon(&mut self, xid: Xid) {
        if let Some((to, Ok(Body::Lent(lent)))) = self.calls.abandon(xid.0) {
            self.release(to, &lent);
        }
    }

    /// Lets a peer use again what a body took that was read.
    pub fn release(&mut self, peer: NodeId, lent: &Lent) {
        if let Some(known) = self.peer_mut(peer)
            && known.mine.is_some_and(|mine| mine.session == lent.session)
        {
            known.release(lent.at);
            self.note_owed(peer);
        }
    }
}
