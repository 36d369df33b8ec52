//! Assigns pages to managers.

use crate::Rank;

/// Spreads the pages over the ranks: each run of `ranks` consecutive pages has one page for every rank, in an order rotated by a hash of
/// the run.
///
/// So consecutive pages have different managers, as have pages a constant stride apart (rows of a matrix), every rank manages its exact
/// share, and a manager's table is dense: row = page ÷ ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    ranks: u32,
}

impl Spread {
    pub(crate) fn new(ranks: u16) -> Self {
        Spread { ranks: u32::from(ranks) }
    }

    pub(crate) fn manager(self, page: u32) -> Rank {
        let run = page / self.ranks;
        // Fibonacci hashing; the high half is well mixed.
        let mixed = (u64::from(run).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32;
        ((page % self.ranks + mixed) % self.ranks) as Rank
    }

    /// The row of a page in the table of its manager.
    pub(crate) fn row(self, page: u32) -> u32 {
        page / self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    extern crate std;

    #[test]
    fn no_two_pages_share_a_manager_and_a_row() {
        for ranks in [1, 2, 3, 7, 64, 1024] {
            let spread = Spread::new(ranks);
            let mut seen = HashSet::new();
            for page in 0..10_000 {
                assert!(spread.manager(page) < ranks);
                assert!(seen.insert((spread.manager(page), spread.row(page))));
            }
        }
    }

    #[test]
    fn pages_a_stride_apart_are_spread_over_all_ranks() {
        for ranks in [2u16, 4, 8] {
            let spread = Spread::new(ranks);
            for stride in 1..=64u32 {
                let mut count = [0u32; 8];
                for i in 0..1024 {
                    count[usize::from(spread.manager(i * stride))] += 1;
                }
                let fair = 1024 / u32::from(ranks);
                for share in &count[..usize::from(ranks)] {
                    assert!(*share > fair / 3 && *share < fair * 3, "{ranks} ranks, stride {stride}: {count:?}");
                }
            }
        }
    }
}
