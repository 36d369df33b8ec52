//! The calls of a node, in both roles.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_wire::{Endpoint, NodeId};

use crate::auth::PeerCredentials;
use crate::calls::Calls;
use crate::config::Config;
use crate::counters::Counters;
use crate::envelope::{self, Draft, Offer, Placed, Room, Stored};
use crate::outcome::{Body, CallError, Incoming, Lent, Outcome, Refusal, RequestId, Xid};
use crate::peer::{Message, Peer};

/// Messages whose memory is kept to be used again.
const SPARE: usize = 64;

/// Most bytes of a message that is kept so.
const SPARE_BYTES: usize = 4096;

/// The remote procedure calls of a node: it calls, and is called.
///
/// * Connections: [`connect`](Self::connect) and [`hello`](Self::hello) at who calls first; [`take_news`](Self::take_news) says that a peer
///   has called first, whom the host answers by [`welcome`](Self::welcome). Each lends the other memory that long records are stored into.
/// * Calls out: [`reserve`](Self::reserve) room for a long record, write it, [`begin`](Self::begin); then [`take_outcome`](Self::take_outcome)
///   and [`release`](Self::release) of what came.
/// * Calls in: [`register`](Self::register) programs, [`next_call`](Self::next_call), [`reply`](Self::reply).
/// * Everything else comes by [`Service`](mapwire_service::Service).
#[derive(Debug)]
pub struct Rpc {
    pub(crate) config: Config,
    pub(crate) peers: Vec<Option<Box<Peer>>>,
    pub(crate) programs: Vec<(u32, u32)>,
    pub(crate) calls: Calls,
    /// Peers with calls that can be taken: each call puts its peer last.
    pub(crate) ready: VecDeque<NodeId>,
    /// Peers that are owed a word of progress.
    pub(crate) owed: VecDeque<NodeId>,
    news: VecDeque<NodeId>,
    outbox: VecDeque<(NodeId, Message)>,
    /// What was given to be sent last.
    sending: Option<(NodeId, Message)>,
    spare: Vec<Vec<u8>>,
    next_session: u64,
    pub(crate) counters: Counters,
}

/// A connection, as a host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What this node has told of itself.
    pub mine: Option<Offer>,
    /// What the peer has told.
    pub theirs: Option<Offer>,
    /// Records may pass.
    pub is_open: bool,
    /// The peer is gone for good.
    pub is_gone: bool,
}

impl Rpc {
    /// A node without programs or connections.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            peers: Vec::new(),
            programs: Vec::new(),
            calls: Calls::beginning_at(config.session as u32),
            ready: VecDeque::new(),
            owed: VecDeque::new(),
            news: VecDeque::new(),
            outbox: VecDeque::new(),
            sending: None,
            spare: Vec::new(),
            next_session: config.session,
            counters: Counters::default(),
        }
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(usize::from(node.0))?.as_deref()
    }

    pub(crate) fn peer_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(node.0))?.as_deref_mut()
    }

    /// The peer, also if nothing is known of it yet.
    pub(crate) fn known(&mut self, node: NodeId) -> &mut Peer {
        let index = usize::from(node.0);
        if index >= self.peers.len() {
            self.peers.resize_with(index + 1, || None);
        }
        self.peers[index].get_or_insert_default()
    }

    /// What is known of the connection to a peer.
    #[must_use]
    pub fn connection(&self, node: NodeId) -> Connection {
        let peer = self.peer(node);
        Connection {
            mine: peer.and_then(|peer| peer.mine),
            theirs: peer.and_then(|peer| peer.theirs),
            is_open: peer.is_some_and(|peer| peer.is_open),
            is_gone: peer.is_some_and(|peer| peer.is_gone),
        }
    }

    /// A peer whose connection has changed since it was given last.
    pub fn take_news(&mut self) -> Option<NodeId> {
        let node = self.news.pop_front()?;
        if let Some(peer) = self.peer_mut(node) {
            peer.has_news = false;
        }
        Some(node)
    }

    /// Whether [`take_news`](Self::take_news) has any.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    pub(crate) fn note_news(&mut self, node: NodeId) {
        let peer = self.known(node);
        if !core::mem::replace(&mut peer.has_news, true) {
            self.news.push_back(node);
        }
    }

    /// A session that was not used before.
    pub fn new_session(&mut self) -> u64 {
        self.next_session = self.next_session.wrapping_add(1);
        self.next_session
    }

    /// Begins a connection, in which the peer may store records into `area_bytes` of this node's memory. One that is there, or that the
    /// peer has begun, is joined: see [`connection`](Self::connection) for the session that it has.
    pub fn connect(&mut self, to: NodeId, session: u64, area_bytes: u64) {
        let offer = self.offer(session, area_bytes);
        let peer = self.known(to);
        if peer.mine.is_some() || peer.is_gone {
            return;
        }
        peer.mine = Some(offer);
        match peer.theirs {
            Some(theirs) => self.send_welcome(to, offer, theirs),
            None => self.hello(to),
        }
    }

    fn offer(&self, session: u64, area_bytes: u64) -> Offer {
        Offer {
            session,
            area_bytes,
            max_record_bytes: self.config.max_record_bytes,
            window: self.config.window,
        }
    }

    /// Asks a peer that has not answered to [`connect`](Self::connect) once more: a peer that is not there yet hears nothing.
    pub fn hello(&mut self, to: NodeId) {
        if let Some(peer) = self.peer(to)
            && !peer.is_open
            && let Some(mine) = peer.mine
        {
            self.post(to, envelope::hello(&mine));
        }
    }

    /// Answers a peer that has begun a connection: see [`connect`](Self::connect).
    pub fn welcome(&mut self, to: NodeId, session: u64, area_bytes: u64) {
        self.connect(to, session, area_bytes);
    }

    pub(crate) fn send_welcome(&mut self, to: NodeId, mine: Offer, theirs: Offer) {
        self.post(to, envelope::welcome(&mine, theirs.session));
        let peer = self.known(to);
        if !peer.is_open {
            peer.open();
            self.note_news(to);
        }
    }

    /// Ends a connection: calls under way by it end with an error here and there.
    pub fn close(&mut self, to: NodeId) {
        if let Some(mine) = self.peer(to).and_then(|peer| peer.mine) {
            self.post(to, envelope::bye(mine.session));
            self.reset(to, CallError::Closed);
        }
    }

    /// Ends all connections.
    pub fn close_all(&mut self) {
        for index in 0..self.peers.len() {
            self.close(NodeId(index as u16));
        }
    }

    pub(crate) fn reset(&mut self, node: NodeId, error: CallError) {
        self.calls.end_all(node, error);
        self.outbox
            .retain(|(to, message)| *to != node || !message.is_record);
        if let Some((to, message)) = &mut self.sending
            && *to == node
        {
            message.keeps = None;
        }
        if let Some(peer) = self.peer_mut(node) {
            peer.reset();
            self.note_news(node);
        }
    }

    /// The kernel's word of the process at a peer, against which its credentials are held from here on.
    pub fn set_credentials(&mut self, of: NodeId, credentials: Option<PeerCredentials>) {
        self.known(of).credentials = credentials;
    }

    // Calls out.

    /// The connection's limits, if it is open.
    fn open_peer(&mut self, to: NodeId) -> Result<(&mut Peer, Offer), Refusal> {
        let peer = self.peer_mut(to).filter(|peer| peer.is_open);
        let peer = peer.ok_or(Refusal::NotOpen(to))?;
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
            return Err(Refusal::TooLong {
                peer: to,
                bytes,
                limit,
            });
        }
        let at = peer.area.reserve(bytes).ok_or(Refusal::NoRoom(to))?;
        Ok(Room {
            at,
            bytes,
            session: theirs.session,
        })
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
        let (under_way, limit) = (self.calls.len(), self.config.max_in_flight);
        let (peer, _) = self.open_peer(to)?;
        if !peer.has_window() || !peer.waiting.is_empty() {
            return Err(Refusal::NoWindow(to));
        }
        if under_way >= limit {
            return Err(Refusal::TooMany(under_way));
        }
        Ok(())
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
    pub fn one_way(
        &mut self,
        to: NodeId,
        draft: &mut Option<Draft>,
        placed: Option<Placed>,
    ) -> Result<(), Refusal> {
        self.may_begin(to)?;
        self.check_room(to, placed)?;
        let xid = self.calls.next_xid();
        self.send_call(to, draft, placed, xid, true);
        Ok(())
    }

    /// Whether room is in memory that the peer still lends.
    fn check_room(&self, to: NodeId, placed: Option<Placed>) -> Result<(), Refusal> {
        let theirs = self.peer(to).and_then(|peer| peer.theirs);
        match placed {
            Some(placed) if theirs.is_none_or(|it| it.session != placed.room.session) => {
                Err(Refusal::NotOpen(to))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn send_call(
        &mut self,
        to: NodeId,
        draft: &mut Option<Draft>,
        placed: Option<Placed>,
        xid: u32,
        is_one_way: bool,
    ) {
        if let Some(mut draft) = draft.take() {
            self.counters.calls_made += 1;
            draft.set_xid(xid);
            if is_one_way {
                draft.set_one_way();
            }
            self.post_record(to, draft, placed, None);
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

    // Calls in.

    /// Serves a version of a program from here on. False: it is served already.
    pub fn register(&mut self, program: u32, version: u32) -> bool {
        let is_new = !self.programs.contains(&(program, version));
        if is_new {
            self.programs.push((program, version));
        }
        is_new
    }

    /// Ends that. Calls that were taken may still be answered.
    pub fn unregister(&mut self, program: u32, version: u32) {
        self.programs.retain(|&other| other != (program, version));
    }

    /// The next call of a peer. Peers take turns.
    pub fn next_call(&mut self) -> Option<Incoming> {
        loop {
            let node = self.ready.pop_front()?;
            let most = self.config.max_in_progress;
            let Some(peer) = self.peer_mut(node) else {
                continue;
            };
            peer.is_ready = false;
            if peer.in_progress >= most {
                // A reply will make it ready again.
                continue;
            }
            let Some(call) = peer.calls.pop_front() else {
                continue;
            };
            peer.in_progress += usize::from(!call.id.is_one_way);
            peer.note_taken();
            self.note_ready(node);
            self.note_owed(node);
            return Some(call);
        }
    }

    /// Whether [`next_call`](Self::next_call) may give one.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn note_ready(&mut self, node: NodeId) {
        let most = self.config.max_in_progress;
        if let Some(peer) = self.peer_mut(node)
            && !peer.is_ready
            && !peer.calls.is_empty()
            && peer.in_progress < most
        {
            peer.is_ready = true;
            self.ready.push_back(node);
        }
    }

    /// Whether somebody waits for a reply.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`].
    pub fn is_awaited(&self, id: &RequestId) -> Result<(), Refusal> {
        let peer = self.peer(id.peer);
        let is_awaited = peer.is_some_and(|peer| {
            peer.mine.is_some_and(|mine| mine.session == id.session)
                && peer.answers.is_in_hand(id.xid)
        });
        match is_awaited {
            true => Ok(()),
            false => Err(Refusal::NotAwaited(id.xid)),
        }
    }

    /// Answers a call that was taken. The results are in the draft unless they are `placed`.
    ///
    /// # Errors
    /// [`Refusal::NotAwaited`]: one-way calls, and callers that are gone. Nothing is sent then.
    pub fn reply(
        &mut self,
        id: &RequestId,
        draft: Draft,
        placed: Option<Placed>,
    ) -> Result<(), Refusal> {
        let awaited = self.is_awaited(id);
        let awaited = awaited.and_then(|()| self.check_room(id.peer, placed));
        if awaited.is_err() {
            self.recycle(draft.into_message());
            return awaited;
        }
        self.counters.replies_sent += 1;
        self.post_record(id.peer, draft, placed, Some(id.xid));
        Ok(())
    }

    // Messages out.

    /// Memory for a draft.
    pub fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, memory: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=SPARE_BYTES).contains(&memory.capacity()) {
            self.spare.push(memory);
        }
    }

    /// Gives back memory of an inline body.
    pub fn give_spare(&mut self, memory: Vec<u8>) {
        self.recycle(memory);
    }

    pub(crate) fn post(&mut self, to: NodeId, bytes: Vec<u8>) {
        let message = Message {
            bytes,
            moves: None,
            is_record: false,
            keeps: None,
        };
        self.outbox.push_back((to, message));
    }

    pub(crate) fn post_record(
        &mut self,
        to: NodeId,
        mut draft: Draft,
        placed: Option<Placed>,
        keeps: Option<u32>,
    ) {
        let Some(peer) = self.peer_mut(to) else {
            return;
        };
        let stored = placed.map(|placed| Stored {
            at: placed.room.at,
            bytes: placed.bytes.min(placed.room.bytes),
        });
        if let Some(stored) = stored {
            draft.set_stored(stored);
            peer.area.shrink(stored.at, stored.bytes);
        }
        let message = Message {
            bytes: draft.into_message(),
            moves: stored.filter(|_| placed.is_some_and(|placed| placed.moves)),
            is_record: true,
            keeps,
        };
        if peer.waiting.is_empty() && peer.has_window() {
            peer.note_sent();
            self.outbox.push_back((to, message));
        } else {
            peer.waiting.push_back(message);
        }
    }

    /// The peer has taken records: those that wait may go.
    pub(crate) fn resume(&mut self, node: NodeId) {
        while let Some(peer) = self.peer_mut(node)
            && peer.has_window()
            && let Some(message) = peer.waiting.pop_front()
        {
            peer.note_sent();
            self.outbox.push_back((node, message));
        }
    }

    pub(crate) fn note_owed(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node)
            && !peer.is_owed
            && peer.owes_word()
        {
            peer.is_owed = true;
            self.owed.push_back(node);
        }
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.sending.is_some() || !self.outbox.is_empty() || !self.owed.is_empty()
    }

    /// The next message, with the newest progress in it.
    pub(crate) fn next_message(&mut self) -> Option<(Endpoint, &Message)> {
        self.end_sending();
        let (to, mut message) = match self.outbox.pop_front() {
            Some(next) => next,
            None => self.next_word()?,
        };
        if message.is_record
            && let Some(peer) = self.peer_mut(to)
        {
            envelope::patch(&mut message.bytes, peer.tell());
        }
        let (to, message) = self.sending.insert((to, message));
        Some((Endpoint::first_of(*to), message))
    }

    /// Word of progress to a peer that no record tells.
    fn next_word(&mut self) -> Option<(NodeId, Message)> {
        loop {
            let node = *self.owed.front()?;
            let peer = self.peer_mut(node);
            match peer {
                Some(peer) if peer.owes_word() => {
                    let message = Message {
                        bytes: envelope::release(peer.tell()),
                        moves: None,
                        is_record: false,
                        keeps: None,
                    };
                    return Some((node, message));
                }
                Some(peer) => peer.is_owed = false,
                None => {}
            }
            self.owed.pop_front();
        }
    }

    /// What was sent is kept or its memory used again.
    fn end_sending(&mut self) {
        let Some((to, message)) = self.sending.take() else {
            return;
        };
        let limit = self.config.cache_bytes;
        let (mut bytes, mut left) = (message.bytes, None);
        if let Some(xid) = message.keeps
            && let Some(peer) = self.peer_mut(to)
        {
            peer.in_progress = peer.in_progress.saturating_sub(1);
            if envelope::is_stored(&bytes) {
                // What it names is the peer's to use again.
                bytes.clear();
                left = peer.answers.keep(xid, Vec::new(), limit);
            } else {
                left = peer.answers.keep(xid, core::mem::take(&mut bytes), limit);
            }
            self.note_ready(to);
        }
        self.recycle(bytes);
        if let Some(left) = left {
            self.recycle(left);
        }
    }
}
