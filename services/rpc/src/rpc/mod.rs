//! The calls of a node, in both roles.

mod connection;
mod incoming;
mod outgoing;
mod peer;
mod sending;
mod service;

pub use connection::{Connection, Due, Loan, Standing};

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use mapwire_wire::NodeId;

use crate::area::Area;
use crate::auth::PeerCredentials;
use crate::calls::Calls;
use crate::config::Config;
use crate::counters::Counters;
use crate::envelope::{self, Offer, Stored, tag_of};
use crate::outcome::{CallError, Incoming};

/// The remote procedure calls of a node: it calls, and is called.
///
/// * Connections: [`connect`](Self::connect) and [`hello`](Self::hello) at who calls first; [`take_news`](Self::take_news) says that a peer
///   has called first, whom the host answers as [`Connection::due`] says. Each lends the other memory that long records are stored into.
/// * Calls out: [`reserve`](Self::reserve) room for a long record, write it, [`begin`](Self::begin); then [`take_outcome`](Self::take_outcome)
///   and [`release`](Self::release) of what came.
/// * Calls in: [`register`](Self::register) programs, [`next_call`](Self::next_call), [`reply`](Self::reply).
/// * Everything else comes by [`Service`](mapwire_vmmc::service::Service).
#[derive(Debug)]
pub struct Rpc {
    config: Config,
    peers: Vec<Option<Box<Peer>>>,
    programs: Vec<(u32, u32)>,
    calls: Calls,
    /// Peers with calls that can be taken: each call puts its peer last.
    ready: VecDeque<NodeId>,
    /// Peers that are owed a word of progress.
    owed: VecDeque<NodeId>,
    news: VecDeque<NodeId>,
    outbox: VecDeque<(NodeId, Message)>,
    /// What was given to be sent last.
    sending: Option<(NodeId, Message)>,
    spare: Vec<Vec<u8>>,
    next_session: u64,
    counters: Counters,
}

/// A message that waits to be sent.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    /// The body is moved into the peer's memory first.
    moves: Option<Stored>,
    /// Progress is written into it.
    is_record: bool,
    /// It answers a call that the peer may have in hand here.
    is_reply: bool,
}

/// A peer, as far as it has to do with calls.
#[derive(Debug, Default)]
struct Peer {
    /// What this node has told of itself, in this session.
    mine: Option<Offer>,
    /// What the peer has told.
    theirs: Option<Offer>,
    /// Both have told.
    is_open: bool,
    /// Its process is gone. Only one of a node that has started anew says hello again.
    is_gone: bool,
    /// The host has not looked since something changed.
    has_news: bool,
    /// The kernel's word.
    credentials: Option<PeerCredentials>,
    /// The peer's memory.
    area: Area,
    /// Calls sent, and how many of them the peer has taken. Replies are not counted: who calls has room for the reply.
    sent: u32,
    taken_there: u32,
    /// Calls that came, how many of them were taken, and how many the peer knows of.
    received: u32,
    taken: u32,
    told: u32,
    /// Memory of this node that the peer may use again.
    released: VecDeque<u64>,
    /// Waits in the queue of those that are owed a word.
    is_owed: bool,
    /// Calls that nobody has taken.
    calls: VecDeque<Box<Incoming>>,
    /// Waits in the queue of those whose calls can be taken.
    is_ready: bool,
    /// Calls that came and have no reply: few, as the peer has a window, and the server a limit.
    in_hand: Vec<u32>,
    /// Calls that were taken, whose replies have not left.
    in_progress: usize,
    /// Where records lie here that are not given back, and how long they are.
    lent: BTreeMap<u64, u64>,
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

    fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(usize::from(node.0))?.as_deref()
    }

    fn peer_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(node.0))?.as_deref_mut()
    }

    /// The peer, also if nothing is known of it yet.
    fn known(&mut self, node: NodeId) -> &mut Peer {
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

    fn note_news(&mut self, node: NodeId) {
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
        if peer.mine.is_some() {
            return;
        }
        peer.mine = Some(offer);
        match peer.theirs {
            Some(theirs) => self.send_welcome(to, offer, theirs),
            None => self.hello(to),
        }
    }

    fn offer(&self, session: u64, area_bytes: u64) -> Offer {
        Offer { session, area_bytes, max_record_bytes: self.config.max_record_bytes, window: self.config.window }
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

    fn send_welcome(&mut self, to: NodeId, mine: Offer, theirs: Offer) {
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
            self.post(to, envelope::bye(tag_of(mine.session)));
            self.reset(to, CallError::Closed);
        }
    }

    /// Ends all connections.
    pub fn close_all(&mut self) {
        for index in 0..self.peers.len() {
            self.close(NodeId(index as u16));
        }
    }

    fn reset(&mut self, node: NodeId, error: CallError) {
        self.calls.end_all(node, error);
        self.outbox.retain(|(to, message)| *to != node || !message.is_record);
        if let Some((to, message)) = &mut self.sending
            && *to == node
        {
            message.is_reply = false;
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
}
