//! What a node does with what it knows of one peer.

use mapwire_vmmc::service::Broken;

use super::Peer;
use crate::area::Area;
use crate::envelope::{Progress, Stored, tag_of};

impl Peer {
    /// Forgets a connection; the kernel's word stays.
    pub(super) fn reset(&mut self) {
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
    pub(super) fn open(&mut self) {
        if let Some(theirs) = self.theirs {
            self.area = Area::new(theirs.area_bytes);
            self.is_open = true;
        }
    }

    pub(super) fn their_session(&self) -> u64 {
        self.theirs.map_or(0, |theirs| theirs.session)
    }

    /// Whether a message is of this connection. One that ends is heard of behind what was on its way before.
    pub(super) fn is_addressed(&self, tag: u16) -> bool {
        let mine = self.mine.filter(|_| self.is_open);
        mine.is_some_and(|mine| tag_of(mine.session) == tag)
    }

    pub(super) fn has_window(&self) -> bool {
        let window = self.theirs.map_or(0, |theirs| theirs.window);
        self.sent.wrapping_sub(self.taken_there) < window
    }

    pub(super) fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes the peer's word of what it has done with records.
    pub(super) fn handle_progress(&mut self, progress: Progress) -> Result<(), Broken> {
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
    pub(super) fn note_stored(&mut self, stored: Stored) -> Result<(), Broken> {
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

    pub(super) fn note_received(&mut self) -> Result<(), Broken> {
        let window = self.mine.map_or(0, |mine| mine.window);
        self.received = self.received.wrapping_add(1);
        if self.received.wrapping_sub(self.told) > window { Err(Broken) } else { Ok(()) }
    }

    pub(super) fn note_taken(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Lets the peer use memory of this node again.
    pub(super) fn release(&mut self, at: u64) {
        if self.lent.remove(&at).is_some() {
            self.released.push_back(at);
        }
    }

    /// Whether the peer must be told of progress by a message of its own.
    pub(super) fn owes_word(&self) -> bool {
        let window = self.mine.map_or(0, |mine| mine.window);
        let untold = self.taken.wrapping_sub(self.told);
        self.is_open && (!self.released.is_empty() || untold > 0 && untold >= window.div_ceil(2))
    }

    /// What is told of progress by the message that goes now.
    pub(super) fn tell(&mut self) -> Progress {
        self.told = self.taken;
        Progress { taken: self.taken, released: self.released.pop_front() }
    }
}
