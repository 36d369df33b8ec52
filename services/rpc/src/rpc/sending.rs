//! Messages to peers, in the order in which they go.

use alloc::vec::Vec;

use mapwire_wire::{Endpoint, NodeId};

use super::{Message, Rpc};
use crate::envelope::{self, Draft, Placed, Stored};

/// Messages whose memory is kept to be used again.
const SPARE: usize = 64;

/// Most bytes of a message that is kept so.
const SPARE_BYTES: usize = 4096;

impl Rpc {
    /// Memory for a draft.
    pub fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn recycle(&mut self, memory: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=SPARE_BYTES).contains(&memory.capacity()) {
            self.spare.push(memory);
        }
    }

    /// Gives back memory of an inline body.
    pub fn give_spare(&mut self, memory: Vec<u8>) {
        self.recycle(memory);
    }

    pub(super) fn post(&mut self, to: NodeId, bytes: Vec<u8>) {
        let message = Message { bytes, moves: None, is_record: false, is_reply: false };
        self.outbox.push_back((to, message));
    }

    pub(super) fn post_record(&mut self, to: NodeId, mut draft: Draft, placed: Option<Placed>, is_reply: bool) {
        let Some(peer) = self.peer_mut(to) else { return };
        let stored = placed.map(|placed| Stored { at: placed.room.at, bytes: placed.bytes.min(placed.room.bytes) });
        if let Some(stored) = stored {
            draft.set_stored(stored);
            peer.area.shrink(stored.at, stored.bytes);
        }
        let message = Message {
            bytes: {
                let mut bytes = draft.into_message();
                envelope::address(&mut bytes, peer.their_session());
                bytes
            },
            moves: stored.filter(|_| placed.is_some_and(|placed| placed.moves)),
            is_record: true,
            is_reply,
        };
        self.outbox.push_back((to, message));
    }

    pub(super) fn note_owed(&mut self, node: NodeId) {
        if let Some(peer) = self.peer_mut(node)
            && !peer.is_owed
            && peer.owes_word()
        {
            peer.is_owed = true;
            self.owed.push_back(node);
        }
    }

    pub(super) fn has_messages(&self) -> bool {
        self.sending.is_some() || !self.outbox.is_empty() || !self.owed.is_empty()
    }

    /// The next message, with the newest progress in it.
    pub(super) fn next_message(&mut self) -> Option<(Endpoint, &Message)> {
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
                        bytes: envelope::release(peer.their_session(), peer.tell()),
                        moves: None,
                        is_record: false,
                        is_reply: false,
                    };
                    return Some((node, message));
                }
                Some(peer) => peer.is_owed = false,
                None => {}
            }
            self.owed.pop_front();
        }
    }

    /// The memory of what was sent is used again.
    fn end_sending(&mut self) {
        let Some((to, message)) = self.sending.take() else { return };
        if message.is_reply
            && let Some(peer) = self.peer_mut(to)
        {
            peer.in_progress = peer.in_progress.saturating_sub(1);
            self.note_ready(to);
        }
        self.recycle(message.bytes);
    }
}
