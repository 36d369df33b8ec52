//! The optimum: what is needed furthest in the future goes first (Belady). It knows the whole trace, as no program does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mapwire_translation::{Candidates, ChooseVictims, Page, PageRange};

use super::{Future, NEVER};

/// Unpins the page that is needed furthest in the future. No choice of victims pins or unpins less, where nothing is pinned ahead.
/// It does not look at the NIC's cache, so that another may have fewer NIC misses.
///
/// Of one process, all of whose uses of pages it must be told, and in their order.
#[derive(Debug)]
pub struct Optimum {
    future: Arc<Future>,
    at: usize,
    /// When each page that is pinned, or is about to be, is needed next.
    next: HashMap<Page, u32>,
    order: BTreeSet<(u32, Page)>,
}

impl Optimum {
    pub fn new(future: Arc<Future>) -> Self {
        Optimum { future, at: 0, next: HashMap::new(), order: BTreeSet::new() }
    }

    fn forget(&mut self, page: Page) {
        if let Some(next) = self.next.remove(&page) {
            self.order.remove(&(next, page));
        }
    }
}

impl ChooseVictims for Optimum {
    fn used(&mut self, pages: PageRange) {
        for page in pages {
            self.forget(page);
            // Beyond what is known nothing is needed.
            let next = self.future.next.get(self.at).copied().unwrap_or(NEVER);
            self.at += 1;
            self.next.insert(page, next);
            self.order.insert((next, page));
        }
    }

    fn unpinned(&mut self, page: Page) {
        self.forget(page);
    }

    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        let idle = self.order.iter().rev().map(|(_, page)| *page).filter(|page| candidates.contains(*page));
        victims.extend(idle.take(count as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::super::driven::unpinned;
    use super::super::knowledge::learned;
    use super::*;
    use crate::testing::sends;
    use mapwire_translation::Process;
    use proptest::prelude::*;

    fn future(operations: &[(u64, u64)]) -> Arc<Future> {
        let record = |(first, count): &(u64, u64)| (0, 0, *first, *count);
        let records: Vec<_> = operations.iter().map(record).collect();
        learned(&sends(&records), true).of(0, Process(0))
    }

    /// Fewest pins of all ways to choose, tried one by one. Pages are bits of a set.
    fn fewest_pins(limit: u32, operations: &[(u64, u64)]) -> u32 {
        let mut states = HashMap::from([(0_u32, 0_u32)]);
        for &(first, count) in operations {
            let needed = ((1_u32 << count) - 1) << first;
            let mut after: HashMap<u32, u32> = HashMap::new();
            for (pinned, pins) in states {
                let all = pinned | needed;
                let more = pins + (needed & !pinned).count_ones();
                // Every subset that keeps what the operation needs, even those that unpin without need.
                let others = all & !needed;
                let mut kept = others;
                loop {
                    if (kept | needed).count_ones() <= limit {
                        let best = after.entry(kept | needed).or_insert(more);
                        *best = more.min(*best);
                    }
                    if kept == 0 {
                        break;
                    }
                    kept = (kept - 1) & others;
                }
            }
            states = after;
        }
        states.into_values().min().unwrap_or(0)
    }

    #[test]
    fn the_page_that_is_needed_last_or_never_again_goes_first() {
        let operations = [(1, 1), (2, 1), (3, 1), (1, 1), (2, 1), (4, 1), (2, 1), (1, 1)];
        assert_eq!(future(&operations).next[2], NEVER);
        assert_eq!(unpinned(2, Some(Box::new(Optimum::new(future(&operations)))), &operations), [2, 3, 1, 4]);
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn nobody_who_tries_all_choices_pins_less(
            limit in 3_u32..6,
            operations in prop::collection::vec((0_u64..7, 1_u64..4), 1..25),
        ) {
            let unpins = unpinned(limit.into(), Some(Box::new(Optimum::new(future(&operations)))), &operations).len() as u32;
            let fewest = fewest_pins(limit, &operations);
            // Pages that stay pinned at the end were pinned besides those that were unpinned.
            let lru = unpinned(limit.into(), None, &operations).len() as u32;
            prop_assert!(unpins <= lru);
            let touched = operations.iter().fold(0_u32, |set, (first, count)| set | ((1 << count) - 1) << first).count_ones();
            prop_assert_eq!(unpins + touched.min(limit), fewest);
        }
    }
}
