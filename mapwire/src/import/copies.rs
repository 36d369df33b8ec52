//! Sends to ranks of other hosts that need not wait: of copies.
//!
//! A packet to another host may be lost, so its source must stay as it is until the peer has acked it: a round trip. A send of
//! moderate length is copied instead, and returns at once.

use std::collections::VecDeque;
use std::sync::{Mutex, TryLockError};

use mapwire_driver::completions::CompletionWords;
use mapwire_host::memory::raw::Source;
use mapwire_translation::{PAGE_BYTES, PageRange};

use super::Import;
use super::transfer::{Memory, Then};
use crate::error::Result;

/// Bytes of the longest send that is copied. A longer one takes longer than a round trip.
const LONGEST_BYTES: usize = 64 << 10;

const ALL_BYTES: usize = 1 << 20;

/// The copies of a process, oldest first, in a ring of pages.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// Empty before the first copy.
    memory: Vec<u8>,
    /// The completion word of each, and where it ends.
    under_way: VecDeque<(u32, usize)>,
    /// Where the oldest begins, and where the next may.
    start: usize,
    end: usize,
}

impl Ring {
    fn reap(&mut self, words: &CompletionWords) {
        while let Some(&(word, end)) = self.under_way.front()
            && words.is_over(word)
        {
            // What failed is told by the calls that follow: the peer is gone, or the export is.
            let _ = words.finish(word);
            self.under_way.pop_front();
            self.start = end;
        }
        if self.under_way.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where `bytes` go, if there is room.
    fn place(&self, bytes: usize) -> Option<usize> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        // The next copy begins behind the newest, or at the start; it never catches up with the oldest.
        let wraps = self.end < self.start;
        if !wraps && self.end + bytes <= ALL_BYTES {
            return Some(self.end);
        }
        let at = if wraps { self.end } else { 0 };
        (at + bytes < self.start).then_some(at)
    }
}

impl Import {
    /// Sends a copy of `data`, which was checked. False when it is too long, or there is no room for a copy now.
    pub(super) fn send_copy(&self, data: Source<'_>, offset: u64, then: Then) -> Result<bool> {
        if data.len() > LONGEST_BYTES || !(self.held.is_remote || self.held.has_rma) {
            return Ok(false);
        }
        // Another thread copies, or this one does and a signal handler of the program interrupts it.
        let mut ring = match self.held.node.inner.copies.0.try_lock() {
            Ok(ring) => ring,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        if ring.memory.is_empty() {
            ring.memory = vec![0; ALL_BYTES + PAGE_BYTES];
            self.prepin(&ring.memory);
        }
        ring.reap(self.held.engine.words());
        let Some(at) = ring.place(data.len()) else { return Ok(false) };
        let first = ring.memory.as_ptr().align_offset(PAGE_BYTES);
        let copy = &mut ring.memory[first + at..][..data.len()];
        data.copy_to_slice(copy);
        let word = self.begin(&mut Memory::From((&*copy).into()), offset, then)?;
        ring.end = at + data.len().next_multiple_of(PAGE_BYTES);
        let end = ring.end;
        ring.under_way.push_back((word, end));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_never_overlap_while_they_are_under_way() {
        let words = CompletionWords::new();
        let mut ring = Ring::default();
        let mut taken: VecDeque<(u32, std::ops::Range<usize>)> = VecDeque::new();
        let mut state = 1_u64;
        let mut refused = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = state >> 33;
            if random.is_multiple_of(3)
                && let Some((word, _)) = taken.pop_front()
            {
                words.complete(word);
            }
            ring.reap(&words);
            let bytes = 1 + (random / 3) as usize % LONGEST_BYTES;
            let Some(at) = ring.place(bytes) else {
                refused += 1;
                continue;
            };
            let range = at..at + bytes.next_multiple_of(PAGE_BYTES);
            assert!(range.end <= ALL_BYTES);
            for (_, other) in &taken {
                assert!(range.end <= other.start || other.end <= range.start);
            }
            let word = words.take().unwrap();
            ring.end = range.end;
            ring.under_way.push_back((word, range.end));
            taken.push_back((word, range));
        }
        assert!(refused > 100 && refused < 19_000, "{refused}");
    }
}
