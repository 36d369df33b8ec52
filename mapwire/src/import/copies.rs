//! Sends to ranks of other hosts that need not wait: of [copies](crate::copies).

use mapwire_host::memory::raw::Source;
use mapwire_translation::PageRange;

use super::Import;
use super::memory::{Memory, Then};
use crate::copies::LONGEST_BYTES;
use crate::error::Result;

impl Import {
    /// Sends a copy of `data`, which was checked. False when it is too long, or there is no room for a copy now.
    pub(super) fn send_copy(&self, data: Source<'_>, offset: u64, then: Then) -> Result<bool> {
        if data.len() > LONGEST_BYTES || !(self.held.is_remote || self.held.has_rma) {
            return Ok(false);
        }
        let Some(mut ring) = self.held.node.copies().try_lock() else { return Ok(false) };
        let room = ring.room(self.held.engine.words(), data.len(), |memory| self.prepin(memory));
        let Some((at, copy)) = room else { return Ok(false) };
        data.copy_to_slice(copy);
        let word = self.begin(&mut Memory::From((&*copy).into()), offset, then)?;
        ring.begin(word, at, data.len());
        Ok(true)
    }

    /// Pins `memory` as a whole, if the limit allows: pages that are pinned at one time lie in consecutive frames, which a packet can
    /// carry together.
    fn prepin(&self, memory: &[u8]) {
        let words = self.held.engine.words();
        let range = PageRange::covering(memory.as_ptr() as u64, memory.len() as u64);
        if let (Ok(range), Some(word)) = (range, words.take()) {
            let mut driver = self.held.engine.lock();
            if driver.hold(word, range).is_ok() {
                driver.unhold(word);
            }
            words.cancel(word);
        }
    }
}
