//! Detects repeated datagrams of a session: a sliding window of bits (RFC 6479).

/// Words of the ring: a power of two, so that indexing needs no division.
const WORDS: usize = 128;
const WORD_BITS: u64 = u64::BITS as u64;
/// How far behind the highest counter a datagram may arrive. One word is being emptied, and does not count (RFC 6479 §3).
pub const WINDOW: u64 = (WORDS as u64 - 1) * WORD_BITS;

#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Highest counter received, plus one.
    next: u64,
    words: [u64; WORDS],
}

impl Window {
    pub(crate) const fn new() -> Self {
        Self { next: 0, words: [0; WORDS] }
    }

    /// Whether `counter` has not been received and is not too old to tell.
    #[inline]
    pub(crate) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return counter != u64::MAX;
        }
        self.next - 1 - counter < WINDOW && self.words[word(counter)] & bit(counter) == 0
    }

    /// Marks `counter`, for which [`is_new`](Self::is_new) must be true, as received.
    #[inline]
    pub(crate) fn mark(&mut self, counter: u64) {
        if counter >= self.next {
            // Words above the highest hold bits of counters that are WORDS words older.
            let highest = self.next.saturating_sub(1) / WORD_BITS;
            let ahead = (counter / WORD_BITS - highest).min(WORDS as u64);
            for step in 1..=ahead {
                self.words[word((highest + step) * WORD_BITS)] = 0;
            }
            self.next = counter + 1;
        }
        self.words[word(counter)] |= bit(counter);
    }
}

#[inline]
const fn word(counter: u64) -> usize {
    (counter / WORD_BITS) as usize % WORDS
}

#[inline]
const fn bit(counter: u64) -> u64 {
    1 << (counter % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_is_at_least_4096_wide() {
        const { assert!(WINDOW >= 4_096) };
        let mut window = Window::new();
        window.mark(10_000);
        assert!(window.is_new(10_001 - WINDOW));
        assert!(!window.is_new(10_000 - WINDOW));
    }

    #[test]
    fn the_highest_counters_neither_overflow_nor_repeat() {
        let mut window = Window::new();
        assert!(window.is_new(u64::MAX - 1));
        window.mark(u64::MAX - 1);
        assert!(!window.is_new(u64::MAX - 1));
        assert!(!window.is_new(u64::MAX));
        assert!(!window.is_new(0));
        assert!(window.is_new(u64::MAX - 2));
    }

    proptest! {
        #[test]
        fn a_window_agrees_with_the_set_of_all_that_came(
            steps in proptest::collection::vec((0u64..4, 0u64..20_000), 1..400)
        ) {
            let (mut window, mut came, mut highest) = (Window::new(), BTreeSet::new(), 0u64);
            for (kind, distance) in steps {
                let counter = match kind {
                    0 => highest + distance % 3,
                    1 => highest + distance,
                    2 => highest.saturating_sub(distance % 200),
                    _ => highest.saturating_sub(distance),
                };
                let old = !came.is_empty() && highest.saturating_sub(counter) >= WINDOW;
                prop_assert_eq!(window.is_new(counter), !old && !came.contains(&counter));
                if window.is_new(counter) {
                    window.mark(counter);
                    came.insert(counter);
                    highest = highest.max(counter);
                }
            }
        }
    }
}
