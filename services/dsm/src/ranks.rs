//! Sets of ranks.

use crate::{Rank, tables};
use alloc::vec::Vec;

/// A table of sets of ranks. Each set has a bit for each rank of the job, in words of 64.
#[derive(Debug)]
pub(crate) struct RankSets {
    words: Vec<u64>,
    words_per_set: usize,
}

impl RankSets {
    /// `sets` empty sets of ranks below `ranks`; `None` if the machine refuses memory for them. The memory is zeroed, so that the OS
    /// supplies it on first use.
    pub(crate) fn new(sets: usize, ranks: u16) -> Option<Self> {
        let words_per_set = usize::from(ranks).div_ceil(64);
        let words = tables::zeroes(sets.checked_mul(words_per_set)?)?;
        Some(RankSets { words, words_per_set })
    }

    fn words(&self, set: usize) -> &[u64] {
        &self.words[set * self.words_per_set..][..self.words_per_set]
    }

    /// Index and bit of a rank's word.
    fn bit(&self, set: usize, rank: Rank) -> (usize, u64) {
        let word = set * self.words_per_set + usize::from(rank / 64);
        (word, 1 << (rank % 64))
    }

    pub(crate) fn contains(&self, set: usize, rank: Rank) -> bool {
        let (word, bit) = self.bit(set, rank);
        self.words[word] & bit != 0
    }

    /// Adds a rank; false if it was present.
    pub(crate) fn insert(&mut self, set: usize, rank: Rank) -> bool {
        let (word, bit) = self.bit(set, rank);
        let before = self.words[word];
        self.words[word] = before | bit;
        before & bit == 0
    }

    pub(crate) fn remove(&mut self, set: usize, rank: Rank) {
        let (word, bit) = self.bit(set, rank);
        self.words[word] &= !bit;
    }

    pub(crate) fn count(&self, set: usize) -> u16 {
        let ones = |word: &u64| word.count_ones() as u16;
        self.words(set).iter().map(ones).sum()
    }

    pub(crate) fn clear(&mut self, set: usize) {
        self.words[set * self.words_per_set..][..self.words_per_set].fill(0);
    }

    /// The members in ascending order; takes time proportional to words and members.
    pub(crate) fn members(&self, set: usize) -> impl Iterator<Item = Rank> + '_ {
        let words = self.words(set).iter().zip((0..).step_by(64));
        words.flat_map(|(&word, first): (_, Rank)| bits(word).map(move |bit| first + bit))
    }

    /// The lowest rank that is not in the set.
    pub(crate) fn first_absent(&self, set: usize) -> Rank {
        let mut first = 0;
        for &word in self.words(set) {
            if word != u64::MAX {
                return first + word.trailing_ones() as Rank;
            }
            first += 64;
        }
        first
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = Rank> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.checked_sub(1)?;
        Some(bit as Rank)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_RANKS;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_holds_what_was_put_in_and_its_neighbours_nothing(
            ranks in 1..=MAX_RANKS,
            inserted in proptest::collection::vec(any::<Rank>(), 0..200),
        ) {
            let mut sets = RankSets::new(3, ranks).unwrap();
            let mut model = BTreeSet::new();
            for rank in inserted {
                let rank = rank % ranks;
                prop_assert_eq!(sets.insert(1, rank), model.insert(rank));
            }
            prop_assert!(sets.members(1).eq(model.iter().copied()));
            for rank in 0..ranks {
                prop_assert_eq!(sets.contains(1, rank), model.contains(&rank));
                prop_assert!(!sets.contains(0, rank) && !sets.contains(2, rank));
            }
            let absent = (0..).find(|rank| !model.contains(rank));
            prop_assert_eq!(Some(sets.first_absent(1)), absent);
            prop_assert_eq!(usize::from(sets.count(1)), model.len());
            for rank in model.into_iter().step_by(2) {
                sets.remove(1, rank);
                prop_assert!(!sets.contains(1, rank));
            }
            sets.insert(2, 0);
            sets.clear(1);
            prop_assert_eq!(sets.count(1), 0);
            prop_assert!(sets.contains(2, 0));
        }
    }

    #[test]
    fn a_set_takes_a_word_for_each_64_ranks_of_the_job() {
        for (ranks, words) in [(1, 1), (4, 1), (64, 1), (65, 2), (MAX_RANKS, 16)] {
            assert_eq!(RankSets::new(10, ranks).unwrap().words.len(), 10 * words);
        }
        assert!(RankSets::new(usize::MAX, MAX_RANKS).is_none());
    }
}
