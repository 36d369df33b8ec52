//! Assigns pages to managers.

use crate::Rank;

/// Longest run of pages with one manager.
const MOST_TOGETHER: u32 = 64;
/// Runs that each rank manages at least, if the segment has as many pages.
const LEAST_RUNS: u32 = 4;

/// Spreads runs of pages over the ranks: of `ranks` consecutive runs each rank manages one, in an order rotated by a hash.
///
/// So consecutive runs have different managers, as have runs a constant stride apart (rows of a matrix), every rank manages its exact
/// share, and a manager's table is dense.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    ranks: u32,
    /// Pages of a run.
    together: u32,
}

impl Spread {
    /// Runs of one page.
    pub(crate) fn new(ranks: u16) -> Self {
        Spread { ranks: u32::from(ranks), together: 1 }
    }

    /// Runs of up to 64 pages, fewer in a segment that has few.
    pub(crate) fn in_runs(ranks: u16, pages: u32) -> Self {
        let ranks = u32::from(ranks);
        Spread { ranks, together: (pages / (LEAST_RUNS * ranks)).clamp(1, MOST_TOGETHER) }
    }

    pub(crate) fn manager(self, page: u32) -> Rank {
        let number = page / self.together;
        let turn = number / self.ranks;
        // Fibonacci hashing; the high half is well mixed.
        let mixed = (u64::from(turn).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32;
        ((number % self.ranks + mixed) % self.ranks) as Rank
    }

    /// The row of a page in the table of its manager.
    pub(crate) fn row(self, page: u32) -> u32 {
        page / (self.together * self.ranks) * self.together + page % self.together
    }

    /// Rows of the table of a manager.
    pub(crate) fn rows(self, pages: u32) -> u32 {
        pages.div_ceil(self.together * self.ranks) * self.together
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
            for spread in [Spread::new(ranks), Spread::in_runs(ranks, 10_000)] {
                let mut seen = HashSet::new();
                for page in 0..10_000 {
                    assert!(spread.manager(page) < ranks);
                    assert!(spread.row(page) < spread.rows(10_000));
                    assert!(seen.insert((spread.manager(page), spread.row(page))));
                }
            }
        }
    }

    #[test]
    fn pages_of_a_run_have_one_manager_and_small_segments_are_spread_too() {
        for (pages, together) in [(1 << 20, 64), (64, 4), (24, 1), (1, 1)] {
            let spread = Spread::in_runs(4, pages);
            let mut count = [0u32; 4];
            for page in 0..pages {
                assert_eq!(spread.manager(page), spread.manager(page / together * together));
                count[usize::from(spread.manager(page))] += 1;
            }
            assert!(pages < 4 || count == [pages / 4; 4], "{count:?}");
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
