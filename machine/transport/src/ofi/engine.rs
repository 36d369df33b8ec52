//! Packets over an endpoint: windows, order, ends of peers.

use std::collections::HashMap;
use std::time::Duration;

use mapwire_wire::{Header, NodeId};
use zerocopy::{FromBytes, IntoBytes};

use super::frame::{FRAME_BYTES, Frame, Kind};
use super::name::Name;
use super::operations::Operations;
use super::peer::Peer;
use super::rma::{Direction, LocalPiece, RemoteMemory, RmaDone, RmaError};
use super::sys::{Endpoint, Event, PostError, Slot};
use super::{MAX_PAYLOAD, OfiError};
use crate::payload::{Payload, Received};
use crate::shm::PeerCorrupt;
use crate::transport::{Packet, ReceiveError, SendError};

/// Buffers of each peer that only words are sent from.
pub(super) const WORD_SLOTS: usize = 2;
/// Peers at most that have been heard of before they were connected.
const MAX_EARLY: usize = 4096;
/// Bytes of a frame and a packet's header.
pub(super) const HEAD_BYTES: usize = FRAME_BYTES + size_of::<Header>();

#[derive(Debug)]
enum State {
    Absent,
    Connected(Box<Peer>),
    Gone,
}

/// See [the module](self).
#[derive(Debug)]
pub(super) struct Engine {
    endpoint: Endpoint,
    /// Stamp and number of this end.
    own: (u64, NodeId),
    window: u16,
    peers: Vec<State>,
    connected: Vec<NodeId>,
    /// Index in `connected` of the peer to be looked at first.
    next: usize,
    /// A packet was shown and not released: those behind it must not keep others from being seen.
    is_held: bool,
    by_stamp: HashMap<u64, NodeId>,
    /// First words of peers that are not connected yet, by stamp.
    early: HashMap<u64, Frame>,
    /// Who they claim to be, as long as nobody has asked.
    strangers: Vec<NodeId>,
    /// Whose buffer for sending it is.
    owners: Vec<Option<NodeId>>,
    /// Buffers for sending whose peer is gone.
    spare: Vec<Slot>,
    /// Buffers to be given to the endpoint.
    idle: Vec<Slot>,
    events: Vec<Event>,
    sending: usize,
    operations: Operations,
}

impl Engine {
    pub(super) fn new(endpoint: Endpoint, own: (u64, NodeId), window: u16, patience: Option<Duration>) -> Self {
        Self {
            endpoint,
            own,
            window,
            peers: Vec::new(),
            connected: Vec::new(),
            next: 0,
            is_held: false,
            by_stamp: HashMap::new(),
            early: HashMap::new(),
            strangers: Vec::new(),
            owners: Vec::new(),
            spare: Vec::new(),
            idle: Vec::new(),
            events: Vec::with_capacity(64),
            sending: 0,
            operations: Operations::new(patience),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn connected(&self) -> &[NodeId] {
        &self.connected
    }

    pub(super) fn connect(&mut self, id: NodeId, name: &Name) -> Result<(), OfiError> {
        if self.by_stamp.get(&name.stamp).is_some_and(|&other| other != id) {
            return Err(OfiError::BadName("another peer has this stamp"));
        }
        let address =
            self.endpoint.insert(&name.address).ok_or(OfiError::BadName("the provider refuses its address"))?;
        if matches!(self.peers.get(usize::from(id.0)), Some(State::Connected(_))) {
            self.forget(id);
        }
        let mut peer = Box::new(Peer::new(address, name.stamp, self.window));
        let each = usize::from(self.window) + WORD_SLOTS;
        if self.spare.len() < each {
            let grown = self.endpoint.grow()?;
            self.owners.resize(grown.end, None);
            let (sends, receives) = (grown.start..grown.start + each, grown.start + each..grown.end);
            self.spare.extend(sends);
            self.idle.extend(receives);
        }
        peer.free = self.spare.split_off(self.spare.len() - each);
        for &slot in &peer.free {
            self.owners[slot] = Some(id);
        }
        if let Some(frame) = self.early.remove(&name.stamp)
            && let Err(corrupt) = peer.handle_frame(&frame, 0, 0)
        {
            peer.corrupt = Some(corrupt);
        }
        let index = usize::from(id.0);
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || State::Absent);
        }
        self.peers[index] = State::Connected(peer);
        self.connected.push(id);
        self.by_stamp.insert(name.stamp, id);
        self.progress();
        Ok(())
    }

    pub(super) fn peer(&self, id: NodeId) -> Option<&Peer> {
        match self.peers.get(usize::from(id.0)) {
            Some(State::Connected(peer)) => Some(peer),
            _ => None,
        }
    }

    fn peer_mut(&mut self, id: NodeId) -> Result<&mut Peer, SendError> {
        match self.peers.get_mut(usize::from(id.0)) {
            Some(State::Connected(peer)) => Ok(peer),
            Some(State::Gone) => Err(SendError::PeerGone(id)),
            Some(State::Absent) | None => Err(SendError::NotConnected(id)),
        }
    }

    /// The peer, if something can be sent to it.
    fn open_peer(&mut self, id: NodeId) -> Result<&mut Peer, SendError> {
        let peer = self.peer_mut(id)?;
        if let Some(corrupt) = peer.fault() {
            return Err(SendError::PeerCorrupt { peer: id, corrupt });
        }
        if peer.is_closed() {
            return Err(SendError::PeerGone(id));
        }
        Ok(peer)
    }

    pub(super) fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        let len_bytes = payload.len_bytes();
        if len_bytes > MAX_PAYLOAD {
            return Err(SendError::TooLong { len_bytes, max_bytes: MAX_PAYLOAD });
        }
        for attempt in 0..2 {
            if attempt > 0 {
                self.progress();
            }
            let own = self.own;
            let peer = self.open_peer(to)?;
            if !peer.has_room() || peer.free.len() <= WORD_SLOTS {
                if attempt > 0 {
                    peer.handle_waited_for();
                }
                continue;
            }
            let Some(slot) = peer.free.pop() else {
                continue;
            };
            let (frame, address) = (peer.frame(true, own), peer.address);
            let buffer = self.endpoint.buffer_mut(slot);
            buffer[..FRAME_BYTES].copy_from_slice(frame.as_bytes());
            buffer[FRAME_BYTES..HEAD_BYTES].copy_from_slice(header.as_bytes());
            let mut at = HEAD_BYTES;
            for piece in payload.pieces() {
                piece.copy_to_slice(&mut buffer[at..at + piece.len()]);
                at += piece.len();
            }
            let begun = self.endpoint.send(slot, at, address);
            let peer = self.peer_mut(to)?;
            match begun {
                Ok(()) => {
                    peer.handle_transmitted(true);
                    self.sending += 1;
                    return Ok(());
                }
                Err(PostError::Again) => {
                    peer.free.push(slot);
                    self.handle_refused(to);
                }
                Err(PostError::Failed(_)) => {
                    peer.free.push(slot);
                    peer.handle_lost();
                    return Err(SendError::PeerGone(to));
                }
            }
        }
        Err(SendError::WouldBlock(to))
    }

    /// The provider refuses to send to a peer for now. That says nothing of the peer while others fill the provider's queue.
    fn handle_refused(&mut self, to: NodeId) {
        let has_room = self.sending < self.endpoint.info().transmits() / 2;
        if let Ok(peer) = self.peer_mut(to)
            && has_room
        {
            peer.handle_refused();
        }
    }

    /// Lets the library work, takes what has come, and sends words that are owed.
    pub(super) fn progress(&mut self) {
        self.post_receives();
        let mut events = core::mem::take(&mut self.events);
        for _ in 0..4 {
            let more = self.endpoint.poll(&mut events);
            for event in events.drain(..) {
                self.handle_event(event);
            }
            if !more {
                break;
            }
        }
        self.events = events;
        for index in 0..self.connected.len() {
            let id = self.connected[index];
            if self.peer(id).is_some_and(Peer::may_speak) {
                self.speak(id);
            }
        }
        self.post_receives();
    }

    fn post_receives(&mut self) {
        while let Some(slot) = self.idle.pop() {
            if self.endpoint.receive(slot).is_err() {
                // All that the provider has room for are posted, or the endpoint is of no use.
                self.idle.push(slot);
                return;
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Received(slot, bytes) => {
                if !self.handle_received(slot, bytes) {
                    self.idle.push(slot);
                }
            }
            Event::ReceiveFailed(slot, _) => {
                // It is not told whose message it was. A peer that went is found by speaking to it.
                self.idle.push(slot);
                for index in 0..self.connected.len() {
                    if let Ok(peer) = self.peer_mut(self.connected[index]) {
                        peer.owes_word = true;
                    }
                }
            }
            Event::Moved(number, error) => self.operations.handle_moved(number, error),
            Event::Sent(slot) => self.take_back(slot),
            Event::SendFailed(slot, _) => {
                let owner = self.owners[slot];
                self.take_back(slot);
                if let Some(id) = owner
                    && let Ok(peer) = self.peer_mut(id)
                {
                    peer.handle_lost();
                }
            }
        }
    }

    fn take_back(&mut self, slot: Slot) {
        self.sending -= 1;
        if let Some(id) = self.owners[slot]
            && let Ok(peer) = self.peer_mut(id)
        {
            peer.free.push(slot);
        } else {
            self.owners[slot] = None;
            self.spare.push(slot);
        }
    }

    /// Whether a packet of a peer lies in the buffer and stays there.
    fn handle_received(&mut self, slot: Slot, bytes: usize) -> bool {
        let message = &self.endpoint.buffer(slot)[..bytes];
        // Whoever is not of the job says things like this.
        let Ok((frame, rest)) = Frame::read_from_prefix(message) else {
            return false;
        };
        let Some(&id) = self.by_stamp.get(&frame.stamp.get()) else {
            if matches!(frame.kind(), Ok(Kind::Credit | Kind::Question)) && self.early.len() < MAX_EARLY {
                self.early.insert(frame.stamp.get(), frame);
                if let Ok(node) = u16::try_from(frame.node.get())
                    && !self.strangers.contains(&NodeId(node))
                {
                    self.strangers.push(NodeId(node));
                }
            }
            return false;
        };
        let wrong = check_packet(&frame, rest);
        let Ok(peer) = self.peer_mut(id) else {
            return false;
        };
        let kept = match wrong {
            Some(corrupt) => Err(corrupt),
            None => peer.handle_frame(&frame, slot, bytes),
        };
        kept.unwrap_or_else(|corrupt| {
            peer.corrupt = Some(corrupt);
            false
        })
    }

    /// Sends a frame without a packet.
    fn speak(&mut self, to: NodeId) {
        let own = self.own;
        let Ok(peer) = self.peer_mut(to) else {
            return;
        };
        let Some(slot) = peer.free.pop() else {
            return;
        };
        let (frame, address) = (peer.frame(false, own), peer.address);
        self.endpoint.buffer_mut(slot)[..FRAME_BYTES].copy_from_slice(frame.as_bytes());
        let begun = self.endpoint.send(slot, FRAME_BYTES, address);
        let Ok(peer) = self.peer_mut(to) else {
            return;
        };
        match begun {
            Ok(()) => {
                peer.handle_transmitted(false);
                self.sending += 1;
            }
            Err(PostError::Again) => {
                peer.free.push(slot);
                self.handle_refused(to);
            }
            Err(PostError::Failed(_)) => {
                peer.free.push(slot);
                peer.handle_lost();
            }
        }
    }

    /// The next peer in turn with a packet or an end to tell.
    fn turn(&self) -> Option<usize> {
        let count = self.connected.len();
        (0..count)
            .map(|step| (self.next + step) % count)
            .find(|&index| self.peer(self.connected[index]).is_some_and(|peer| peer.head().is_some() || peer.is_over()))
    }

    pub(super) fn has_input(&self) -> bool {
        self.turn().is_some()
    }

    pub(super) fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        if self.is_held || !self.has_input() {
            self.progress();
        }
        let Some(index) = self.turn() else {
            return Ok(None);
        };
        self.next = index + 1;
        let from = self.connected[index];
        let corrupt = self.peer(from).and_then(Peer::fault);
        if let Some(corrupt) = corrupt {
            self.forget(from);
            return Err(ReceiveError::PeerCorrupt { peer: from, corrupt });
        }
        let Some((slot, bytes)) = self.peer(from).and_then(Peer::head) else {
            self.forget(from);
            return Err(ReceiveError::PeerGone(from));
        };
        self.is_held = true;
        let message = &self.endpoint.buffer(slot)[FRAME_BYTES..bytes];
        // Checked when it came.
        Ok(Header::ref_from_prefix(message).ok().map(|(header, payload)| Packet {
            from,
            header,
            payload: Received::Inline(payload),
        }))
    }

    pub(super) fn release(&mut self, from: NodeId) {
        self.is_held = false;
        if let Ok(peer) = self.peer_mut(from)
            && let Some(slot) = peer.release()
        {
            let speaks = peer.may_speak();
            self.idle.push(slot);
            if speaks {
                self.speak(from);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        for index in 0..self.connected.len() {
            if let Ok(peer) = self.peer_mut(self.connected[index]) {
                peer.owe_releases();
            }
        }
        self.progress();
    }

    pub(super) fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        if self.open_peer(to)?.is_drained() {
            return Ok(true);
        }
        self.progress();
        let peer = self.open_peer(to)?;
        if peer.is_drained() {
            return Ok(true);
        }
        peer.handle_waited_for();
        peer.ask();
        if peer.may_speak() {
            self.speak(to);
        }
        Ok(false)
    }

    /// Asks with the next packet for word of its release.
    pub(super) fn ask_with_next(&mut self, to: NodeId) {
        if let Ok(peer) = self.open_peer(to) {
            peer.ask_with_next();
        }
    }

    pub(super) fn disconnect(&mut self, id: NodeId) {
        if self.close(id) {
            self.progress();
        }
    }

    /// As [`disconnect`](Self::disconnect), without a call of the library. Whether there was a connection.
    pub(super) fn close(&mut self, id: NodeId) -> bool {
        let peer = self.peer_mut(id);
        peer.map(Peer::close).is_ok()
    }

    /// The next node that somebody claims to be whose stamp is not known.
    pub(super) fn poll_stranger(&mut self) -> Option<NodeId> {
        self.strangers.pop()
    }

    pub(super) fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// Begins a store or fetch.
    pub(super) fn transfer(
        &mut self,
        direction: Direction,
        to: NodeId,
        remote: (&RemoteMemory, u64),
        pieces: &[LocalPiece<'_>],
        token: u64,
    ) -> Result<(), RmaError> {
        for attempt in 0..2 {
            if attempt > 0 {
                self.progress();
            }
            let address = match self.open_peer(to) {
                Ok(peer) => peer.address,
                Err(SendError::NotConnected(_)) => return Err(RmaError::NotConnected(to)),
                Err(_) => return Err(RmaError::PeerGone(to)),
            };
            let begun = self.operations.begin(&mut self.endpoint, direction, (to, address), remote, pieces, token);
            if begun != Err(RmaError::WouldBlock) {
                return begun;
            }
        }
        Err(RmaError::WouldBlock)
    }

    /// Whether operations are over that nobody has been told of.
    pub(super) fn has_moved(&self) -> bool {
        self.operations.has_over()
    }

    pub(super) fn poll_done(&mut self) -> Option<RmaDone> {
        if let Some(done) = self.operations.poll_done(&self.endpoint) {
            return Some(done);
        }
        self.progress();
        self.operations.poll_done(&self.endpoint)
    }

    /// Says to all peers that this end goes away.
    pub(super) fn leave(&mut self) {
        // Some may have said so before.
        self.progress();
        for index in 0..self.connected.len() {
            if let Ok(peer) = self.peer_mut(self.connected[index]) {
                peer.leave();
            }
        }
        self.progress();
    }

    /// Whether something is still to be sent.
    pub(super) fn is_sending(&self) -> bool {
        let speaks = |&id: &NodeId| self.peer(id).is_some_and(Peer::may_speak);
        self.sending > 0 || self.connected.iter().any(speaks)
    }

    #[cold]
    fn forget(&mut self, id: NodeId) {
        let state = core::mem::replace(&mut self.peers[usize::from(id.0)], State::Gone);
        self.connected.retain(|&other| other != id);
        self.next = 0;
        self.operations.handle_gone(id);
        if let State::Connected(peer) = state {
            self.by_stamp.remove(&peer.stamp);
            self.idle.extend(peer.kept());
            for slot in peer.free {
                self.owners[slot] = None;
                self.spare.push(slot);
            }
        }
    }
}

/// What is wrong with what follows a frame.
fn check_packet(frame: &Frame, rest: &[u8]) -> Option<PeerCorrupt> {
    if !matches!(frame.kind(), Ok(Kind::Packet | Kind::AskingPacket)) {
        return None;
    }
    let Ok((header, payload)) = Header::ref_from_prefix(rest) else {
        return Some(PeerCorrupt { what: "packet's length", value: rest.len() as u64 });
    };
    (header.payload_bytes() as usize != payload.len())
        .then(|| PeerCorrupt { what: "payload length in its header", value: header.payload_bytes().into() })
}
