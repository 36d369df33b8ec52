//! Round robin over a set of small numbers.

use alloc::vec::Vec;

const BITS: usize = u64::BITS as usize;

/// Numbers of nodes or processes that have something to do. Finding the next reads one word for each 64 of them, however many are
/// idle.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    words: Vec<u64>,
    members: usize,
    /// Member whose turn it is, or where the search for it starts.
    next: usize,
}

impl Turns {
    pub(crate) fn new(places: usize) -> Self {
        let mut turns = Self::default();
        turns.grow(places);
        turns
    }

    /// Makes room for numbers below `places`.
    pub(crate) fn grow(&mut self, places: usize) {
        let words = places.div_ceil(BITS);
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.members == 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, member: usize) {
        let word = &mut self.words[member / BITS];
        let bit = 1 << (member % BITS);
        self.members += usize::from(*word & bit == 0);
        *word |= bit;
    }

    #[inline]
    pub(crate) fn remove(&mut self, member: usize) {
        if let Some(word) = self.words.get_mut(member / BITS) {
            let bit = 1 << (member % BITS);
            self.members -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// The member whose turn it is.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        if self.members == 0 {
            return None;
        }
        Some(self.at_or_after(self.next))
    }

    /// The first member in turn for which `ready` is true.
    pub(crate) fn first_that(&self, mut ready: impl FnMut(usize) -> bool) -> Option<usize> {
        let first = self.first()?;
        let mut member = first;
        loop {
            if ready(member) {
                return Some(member);
            }
            member = self.at_or_after(member + 1);
            if member == first {
                return None;
            }
        }
    }

    /// Ends the turn of `member`: all others precede it.
    #[inline]
    pub(crate) fn served(&mut self, member: usize) {
        self.next = member + 1;
    }

    /// The first member from `from` on, around the end; there must be one.
    #[inline]
    fn at_or_after(&self, from: usize) -> usize {
        if let [word] = self.words[..] {
            // Up to 64 numbers, so that those before `from` are in the same word.
            let rest = word & u64::MAX.checked_shl(from as u32).unwrap_or(0);
            let some = if rest == 0 { word } else { rest };
            return some.trailing_zeros() as usize;
        }
        self.at_or_after_in_many(from)
    }

    fn at_or_after_in_many(&self, from: usize) -> usize {
        let (from_word, from_bit) = (from / BITS, from % BITS);
        if let Some(word) = self.words.get(from_word) {
            let rest = word & (u64::MAX << from_bit);
            if rest != 0 {
                return from_word * BITS + rest.trailing_zeros() as usize;
            }
        }
        let (before, behind) = self.words.split_at((from_word + 1).min(self.words.len()));
        let behind = (from_word + 1..).zip(behind);
        let before = (0..).zip(before);
        behind
            .chain(before)
            .find(|(_, word)| **word != 0)
            .map_or(0, |(at, word)| at * BITS + word.trailing_zeros() as usize)
    }

    /// Heap memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn members_are_served_in_turn_and_around_the_end() {
        let mut turns = Turns::new(200);
        assert_eq!(turns.first(), None);
        for member in [3, 64, 199] {
            turns.insert(member);
        }
        let mut order = Vec::new();
        for _ in 0..7 {
            let member = turns.first().unwrap();
            turns.served(member);
            order.push(member);
        }
        assert_eq!(order, [3, 64, 199, 3, 64, 199, 3]);
    }

    #[test]
    fn who_is_not_ready_is_passed_over_once() {
        let mut turns = Turns::new(10);
        turns.insert(2);
        turns.insert(7);
        let mut asked = Vec::new();
        let found = turns.first_that(|member| {
            asked.push(member);
            false
        });
        assert_eq!((found, asked), (None, alloc::vec![2, 7]));
        assert_eq!(turns.first_that(|member| member == 7), Some(7));
    }

    proptest! {
        #[test]
        fn the_next_member_is_the_one_a_sorted_set_gives(
            places in prop_oneof![Just(64usize), 1usize..64, Just(150)],
            steps in prop::collection::vec((0usize..150, 0u8..3), 1..200),
        ) {
            let mut turns = Turns::new(places);
            let mut oracle = BTreeSet::new();
            let mut next = 0;
            for (member, step) in steps {
                let member = member % places;
                match step {
                    0 => {
                        turns.insert(member);
                        oracle.insert(member);
                    }
                    1 => {
                        turns.remove(member);
                        oracle.remove(&member);
                    }
                    _ => {
                        turns.served(member);
                        next = member + 1;
                    }
                }
                let expected = oracle.range(next..).next().or(oracle.first()).copied();
                prop_assert_eq!(turns.first(), expected);
                prop_assert_eq!(turns.is_empty(), oracle.is_empty());
            }
        }
    }
}
