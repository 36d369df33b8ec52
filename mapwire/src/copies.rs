//! Copies of what goes to ranks of other hosts.
//!
//! A packet to another host may be lost, so its source must stay as it is until the peer has acked it: a round trip. A send of
//! moderate length is copied instead, and returns at once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, TryLockError};

use mapwire_driver::completions::CompletionWords;
use mapwire_translation::PAGE_BYTES;

/// Bytes of the longest send that is copied. A longer one takes longer than a round trip.
pub(crate) const LONGEST_BYTES: usize = 64 << 10;

const ALL_BYTES: usize = 1 << 20;

/// The copies of a process, oldest first, in a ring of pages.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<Ring>);

impl Copies {
    /// `None` while another thread copies, or this one does and a signal handler of the program interrupts it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Ring>> {
        match self.0.try_lock() {
            Ok(ring) => Some(ring),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Empty before the first copy.
    memory: Vec<u8>,
    /// The completion word of each, and where it ends.
    under_way: VecDeque<(u32, usize)>,
    /// Where the oldest begins, and where the next may.
    start: usize,
    end: usize,
}

impl Ring {
    /// Where a copy of `bytes` begins, and memory for it, if there is room. `prepin` is given all memory when it is taken.
    pub(crate) fn room(
        &mut self,
        words: &CompletionWords,
        bytes: usize,
        prepin: impl FnOnce(&[u8]),
    ) -> Option<(usize, &mut [u8])> {
        if self.memory.is_empty() {
            self.memory = vec![0; ALL_BYTES + PAGE_BYTES];
            prepin(&self.memory);
        }
        self.reap(words);
        let at = self.place(bytes)?;
        let first = self.memory.as_ptr().align_offset(PAGE_BYTES);
        Some((at, &mut self.memory[first + at..][..bytes]))
    }

    /// The copy of `bytes` at `at` is under way, until the completion word says that it is over.
    pub(crate) fn begin(&mut self, word: u32, at: usize, bytes: usize) {
        self.end = at + bytes.next_multiple_of(PAGE_BYTES);
        self.under_way.push_back((word, self.end));
    }

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
            ring.begin(word, at, bytes);
            taken.push_back((word, range));
        }
        assert!(refused > 100 && refused < 19_000, "{refused}");
    }
}
