//! Packets over an endpoint: windows, order, ends of peers.

use core::convert::Infallible;

use mapwire_wire::{Header, NodeId};
use zerocopy::{FromBytes, IntoBytes};

use super::frame::{FRAME_BYTES, Frame, Kind};
use super::peer::Peer;
use super::sys::{BufferId, Event, PostError};
use super::{HEAD_BYTES, MAX_PAYLOAD, Ofi, WORD_SLOTS};
use crate::payload::{Payload, Received};
use crate::shm::PeerCorrupt;
use crate::transport::{Abilities, Packet, ReceiveError, SendError, Transport};

/// Most unconnected peers whose first frame is kept.
const MAX_EARLY: usize = 4096;

impl Ofi {
    /// The peer, if something can be sent to it.
    pub(super) fn open_peer(&mut self, id: NodeId) -> Result<&mut Peer, SendError> {
        let peer = self.peers.get_mut(id)?;
        if let Some(corrupt) = peer.fault() {
            return Err(SendError::PeerCorrupt { peer: id, corrupt });
        }
        if peer.is_closed() {
            return Err(SendError::PeerGone(id));
        }
        Ok(peer)
    }

    /// Puts a frame before what lies in a buffer of the peer, and begins to send its first `bytes`. `false`: the provider has no room.
    fn post(&mut self, to: NodeId, slot: BufferId, bytes: usize, is_packet: bool) -> Result<bool, SendError> {
        let peer = self.peers.get_mut(to)?;
        let frame = peer.frame(is_packet, self.own);
        self.endpoint.buffer_mut(slot)[..FRAME_BYTES].copy_from_slice(frame.as_bytes());
        match self.endpoint.send(slot, bytes, peer.address) {
            Ok(()) => {
                peer.handle_transmitted(is_packet);
                self.sending += 1;
                Ok(true)
            }
            Err(PostError::Again) => {
                peer.free.push(slot);
                // That says nothing of the peer while others fill the provider's queue.
                if self.sending < self.endpoint.info().transmits() / 2 {
                    peer.handle_refused();
                }
                Ok(false)
            }
            Err(PostError::Failed(_)) => {
                peer.free.push(slot);
                peer.handle_lost();
                Err(SendError::PeerGone(to))
            }
        }
    }

    /// Lets the library work, takes completions, and sends frames that are due.
    pub fn progress(&mut self) {
        if self.is_confined {
            return;
        }
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
        for index in 0..self.peers().len() {
            let id = self.peers()[index];
            if self.peers.get(id).is_some_and(Peer::may_speak) {
                self.speak(id);
            }
        }
        self.post_receives();
    }

    fn post_receives(&mut self) {
        while let Some(slot) = self.idle.pop() {
            if self.endpoint.receive(slot).is_err() {
                // The provider has no room for more, or the endpoint has failed.
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
            Event::ReceiveFailed(slot) => {
                // The sender is unknown. Sending to all peers finds one that is gone.
                self.idle.push(slot);
                self.peers.for_each(|peer| peer.owes_word = true);
            }
            Event::Moved(number, error) => self.operations.handle_moved(number, error),
            Event::Sent(slot) => self.take_back(slot),
            Event::SendFailed(slot) => {
                let owner = self.owners[slot];
                self.take_back(slot);
                if let Some(id) = owner
                    && let Ok(peer) = self.peers.get_mut(id)
                {
                    peer.handle_lost();
                }
            }
        }
    }

    fn take_back(&mut self, slot: BufferId) {
        self.sending -= 1;
        if let Some(id) = self.owners[slot]
            && let Ok(peer) = self.peers.get_mut(id)
        {
            peer.free.push(slot);
        } else {
            self.owners[slot] = None;
            self.spare.push(slot);
        }
    }

    /// Whether a packet of a peer lies in the buffer and stays there.
    fn handle_received(&mut self, slot: BufferId, bytes: usize) -> bool {
        let message = &self.endpoint.buffer(slot)[..bytes];
        // Not a frame: its sender is not of the job.
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
        let Ok(peer) = self.peers.get_mut(id) else {
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
        if let Ok(peer) = self.peers.get_mut(to)
            && let Some(slot) = peer.free.pop()
        {
            // A peer that is lost is reported when it is polled.
            let _ = self.post(to, slot, FRAME_BYTES, false);
        }
    }

    /// Whether a packet or the end of a peer has been seen, without a call of the library.
    fn has_received(&self) -> bool {
        self.peers.iter().any(|(_, peer)| peer.has_input())
    }

    /// Whether its next packet comes before one of rings; `rings`: whether they have one.
    #[inline]
    pub(crate) fn is_next(&mut self, rings: bool) -> bool {
        if !self.has_received() {
            self.progress();
        }
        if self.is_confined || !self.has_received() {
            return false;
        }
        self.is_first = !self.is_first;
        self.is_first || !rings
    }

    /// Whether a packet of this peer waits that has been seen.
    #[must_use]
    pub(crate) fn has_next(&self, from: NodeId) -> bool {
        !self.is_confined && self.peers.get(from).is_some_and(|peer| peer.head().is_some())
    }

    /// Whether something is still to be sent.
    pub(super) fn is_sending(&self) -> bool {
        self.sending > 0 || self.peers.iter().any(|(_, peer)| peer.may_speak())
    }
}

impl Transport for Ofi {
    #[inline]
    fn abilities(&self, _: NodeId) -> Abilities {
        Abilities { remote_access: self.reaches_memory, lossless: true, passes_memory: false, rings: false }
    }

    fn max_payload_bytes(&self) -> usize {
        MAX_PAYLOAD
    }

    #[inline]
    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        debug_assert_eq!(header.payload_bytes() as usize, payload.len_bytes());
        if self.is_confined {
            return Err(SendError::WouldBlock(to));
        }
        let len_bytes = payload.len_bytes();
        if len_bytes > MAX_PAYLOAD {
            return Err(SendError::TooLong { len_bytes, max_bytes: MAX_PAYLOAD });
        }
        for attempt in 0..2 {
            if attempt > 0 {
                self.progress();
            }
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
            let buffer = self.endpoint.buffer_mut(slot);
            buffer[FRAME_BYTES..HEAD_BYTES].copy_from_slice(header.as_bytes());
            let mut at = HEAD_BYTES;
            for piece in payload.pieces() {
                piece.copy_to_slice(&mut buffer[at..at + piece.len()]);
                at += piece.len();
            }
            if self.post(to, slot, at, true)? {
                return Ok(());
            }
        }
        Err(SendError::WouldBlock(to))
    }

    #[inline]
    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        if self.is_confined {
            return Ok(None);
        }
        if self.is_held || !self.has_received() {
            self.progress();
        }
        let Ok(Some(from)) = self.peers.poll(|peer| Ok::<_, Infallible>(peer.has_input())) else {
            return Ok(None);
        };
        let corrupt = self.peers.get(from).and_then(Peer::fault);
        if let Some(corrupt) = corrupt {
            self.forget(from);
            return Err(ReceiveError::PeerCorrupt { peer: from, corrupt });
        }
        let Some((slot, bytes)) = self.peers.get(from).and_then(Peer::head) else {
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

    /// The packet was taken while the fabric was not confined.
    #[inline]
    fn release(&mut self, from: NodeId) {
        self.is_held = false;
        if let Ok(peer) = self.peers.get_mut(from)
            && let Some(slot) = peer.release()
        {
            let speaks = peer.may_speak();
            self.idle.push(slot);
            if speaks {
                self.speak(from);
            }
        }
    }

    fn has_input(&mut self) -> bool {
        self.progress();
        !self.is_confined && (self.has_received() || self.operations.has_over() || !self.endpoint.may_sleep())
    }

    fn flush(&mut self) {
        self.peers.for_each(Peer::owe_releases);
        self.progress();
    }

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        if self.is_confined {
            return Ok(false);
        }
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

    fn disconnect(&mut self, peer: NodeId) {
        if let Ok(peer) = self.peers.get_mut(peer) {
            peer.close();
            self.progress();
        }
    }
}

/// What is wrong with the packet behind a frame.
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
