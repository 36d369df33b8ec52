//! What a node knows of one peer.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use mapwire_service::Broken;

use crate::answers::Answers;
use crate::area::Area;
use crate::auth::PeerCredentials;
use crate::envelope::{Offer, Progress, Stored, tag_of};
use crate::outcome::Incoming;

/// A message that waits to be sent.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    /// The body is moved into the peer's memory first.
    pub(crate) moves: Option<Stored>,
    /// Progress is written into it.
    pub(crate) is_record: bool,
    /// It answers this call, and is kept.
    pub(crate) keeps: Option<u32>,
}

/// A peer, as far as it has to do with calls.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// What this node has told of itself, in this session.
    pub(crate) mine: Option<Offer>,
    /// What the peer has told.
    pub(crate) theirs: Option<Offer>,
    /// Both have told.
    pub(crate) is_open: bool,
    /// Its process is gone. Only one of a node that has started anew says hello again.
    pub(crate) is_gone: bool,
    /// The host has not looked since something changed.
    pub(crate) has_news: bool,
    /// The kernel's word.
    pub(crate) credentials: Option<PeerCredentials>,
    /// The peer's memory.
    pub(crate) area: Area,
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
    pub(crate) is_owed: bool,
    /// Calls that nobody has taken.
    pub(crate) calls: VecDeque<Incoming>,
    /// Waits in the queue of those whose calls can be taken.
    pub(crate) is_ready: bool,
    pub(crate) answers: Answers,
    /// Calls that were taken and wait for their replies.
    pub(crate) in_progress: usize,
    /// Where records lie here that are not given back, and how long they are.
    pub(crate) lent: BTreeMap<u64, u64>,
}

impl Peer {
    /// Forgets a connection; the kernel's word stays.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            is_gone: self.is_gone,
            has_news: self.has_news,
            is_owed: self.is_owed,
            is_ready: self.is_ready,
            credentials: self.credentials,
            ..Self::default()
        };
    }

    /// Both sides know each other: records may pass.
    pub(crate) fn open(&mut self) {
        if let Some(theirs) = self.theirs {
            self.area = Area::new(theirs.area_bytes);
            self.is_open = true;
        }
    }

    /// The peer's session.
    pub(crate) fn their_session(&self) -> u64 {
        self.theirs.map_or(0, |theirs| theirs.session)
    }

    /// Whether a message is of this connection. One that ends is heard of behind what was on its way before.
    pub(crate) fn is_addressed(&self, tag: u16) -> bool {
        let mine = self.mine.filter(|_| self.is_open);
        mine.is_some_and(|mine| tag_of(mine.session) == tag)
    }

    /// Whether the peer takes another call.
    pub(crate) fn has_window(&self) -> bool {
        let window = self.theirs.map_or(0, |theirs| theirs.window);
        self.sent.wrapping_sub(self.taken_there) < window
    }

    pub(crate) fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes the peer's word of what it has done with records.
    pub(crate) fn handle_progress(&mut self, progress: Progress) -> Result<(), Broken> {
        let more = progress.taken.wrapping_sub(self.taken_there);
        if more > self.sent.wrapping_sub(self.taken_there) {
            return Err(Broken);
        }
        self.taken_there = progress.taken;
        match progress.released {
            Some(at) if !self.area.release(at) => Err(Broken),
            _ => Ok(()),
        }
    }

    /// Notes where a record lies that came.
    pub(crate) fn note_stored(&mut self, stored: Stored) -> Result<(), Broken> {
        let mine = self.mine.ok_or(Broken)?;
        let Stored { at, bytes } = stored;
        let end = at.checked_add(bytes).ok_or(Broken)?;
        if end > mine.area_bytes || bytes > mine.max_record_bytes {
            return Err(Broken);
        }
        // Two records in one place would be given back once for both.
        match self.lent.insert(at, bytes) {
            None => Ok(()),
            Some(_) => Err(Broken),
        }
    }

    /// Counts a call that came.
    pub(crate) fn note_received(&mut self) -> Result<(), Broken> {
        let window = self.mine.map_or(0, |mine| mine.window);
        self.received = self.received.wrapping_add(1);
        match self.received.wrapping_sub(self.told) > window {
            true => Err(Broken),
            false => Ok(()),
        }
    }

    /// Counts a call that was taken.
    pub(crate) fn note_taken(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Lets the peer use memory of this node again.
    pub(crate) fn release(&mut self, at: u64) {
        if self.lent.remove(&at).is_some() {
            self.released.push_back(at);
        }
    }

    /// Whether the peer must be told of progress by a message of its own.
    pub(crate) fn owes_word(&self) -> bool {
        let window = self.mine.map_or(0, |mine| mine.window);
        let untold = self.taken.wrapping_sub(self.told);
        self.is_open && (!self.released.is_empty() || untold > 0 && untold >= window.div_ceil(2))
    }

    /// What is told of progress by the message that goes now.
    pub(crate) fn tell(&mut self) -> Progress {
        self.told = self.taken;
        Progress {
            taken: self.taken,
            released: self.released.pop_front(),
        }
    }
}
