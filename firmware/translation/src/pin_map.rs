//! The library's record of pinned pages: one bit a page (UTLB §3.3, the *check* of §5.1).
//!
//! Sparse over the 48-bit address space: a leaf of 512 bytes covers 16 MiB, and only leaves with a pinned page exist. The last leaf used
//! is remembered, so a check near the previous one reads one word for every 64 pages and searches nothing.

use crate::leaves::Leaves;
use crate::page::{PAGE_NUMBER_END, Page, PageRange, RangeError};

const WORD_SHIFT: u32 = 6;
const WORD_PAGES: u64 = 1 << WORD_SHIFT;
const LEAF_WORDS: usize = 64;
const LEAF_SHIFT: u32 = WORD_SHIFT + LEAF_WORDS.trailing_zeros();

/// Result of [`PinMap::check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Every page is pinned.
    AllPinned,
    /// The lowest unpinned page.
    FirstUnpinned(Page),
}

/// One bit for every page: pinned or not.
///
/// Pages outside the 48-bit address space are never pinned. Methods that search take `&mut self` to remember the last leaf.
///
/// ```
/// use mapwire_translation::{Check, Page, PageRange, PinMap};
/// let mut map = PinMap::new();
/// map.set(PageRange { first: Page(10), count: 4 })?;
/// assert_eq!(map.check(PageRange { first: Page(11), count: 2 }), Check::AllPinned);
/// assert_eq!(map.check(PageRange { first: Page(11), count: 9 }), Check::FirstUnpinned(Page(14)));
/// assert_eq!(map.count(), 4);
/// # Ok::<(), mapwire_translation::RangeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PinMap {
    leaves: Leaves<u64, LEAF_WORDS>,
    pinned: u64,
}

impl Default for PinMap {
    fn default() -> Self {
        Self::new()
    }
}

impl PinMap {
    /// A map without pinned pages.
    pub fn new() -> Self {
        PinMap { leaves: Leaves::new(0), pinned: 0 }
    }

    /// Checks whether every page of the range is pinned; true for an empty range.
    #[inline]
    pub fn check(&mut self, range: PageRange) -> Check {
        if self.pinned_nearby(range) { Check::AllPinned } else { self.check_words(range) }
    }

    /// Whether the range is pinned and lies in at most two words of the last leaf, as most transfers do.
    #[inline(always)]
    fn pinned_nearby(&self, range: PageRange) -> bool {
        let PageRange { first: Page(first), count } = range;
        let Some(base) = self.leaves.last(first >> LEAF_SHIFT) else {
            return false;
        };
        let (word, bit) = (word_in_leaf(first), first % WORD_PAGES);
        let Some(words) = self.leaves.cells().get(base + word..base + LEAF_WORDS) else {
            return false;
        };
        // For an empty range this is the largest number, which also falls through to the general search.
        let more = count.wrapping_sub(1);
        if more >= 2 * WORD_PAGES {
            return false;
        }
        let last = bit + more;
        let head = u64::MAX << bit;
        let tail = u64::MAX >> (WORD_PAGES - 1 - last % WORD_PAGES);
        match (last / WORD_PAGES, words) {
            (0, [one, ..]) => head & tail & !one == 0,
            (1, [one, two, ..]) => (head & !one) | (tail & !two) == 0,
            _ => false,
        }
    }

    /// [`check`](Self::check) of any range, word by word.
    #[inline(never)]
    fn check_words(&mut self, range: PageRange) -> Check {
        match self.find(range, false) {
            Some(page) => Check::FirstUnpinned(page),
            None => Check::AllPinned,
        }
    }

    /// The first run of unpinned pages in the range, which one call to the driver can pin.
    pub fn first_unpinned_run(&mut self, range: PageRange) -> Option<PageRange> {
        let first = self.find(range, false)?;
        let rest = PageRange { first, count: range.end().0 - first.0 };
        let end = self.find(rest, true).unwrap_or(range.end());
        Some(PageRange { first, count: end.0 - first.0 })
    }

    /// Whether the page is pinned.
    pub fn contains(&self, page: Page) -> bool {
        let base = self.leaves.peek(page.0 >> LEAF_SHIFT);
        base.is_some_and(|base| self.leaves.cells()[base + word_in_leaf(page.0)] >> (page.0 % WORD_PAGES) & 1 == 1)
    }

    /// Records the pages as pinned. Returns how many were not before.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn set(&mut self, range: PageRange) -> Result<u64, RangeError> {
        let mut fresh = 0;
        for_each_word(range.in_address_space()?, |leaf, word, mask| {
            let base = self.leaves.find_or_add(leaf);
            let cell = &mut self.leaves.cells_mut()[base + word];
            let added = (mask & !*cell).count_ones();
            *cell |= mask;
            self.leaves.occupy(base, added);
            fresh += u64::from(added);
        });
        self.pinned += fresh;
        Ok(fresh)
    }

    /// Records the pages as not pinned. Returns how many were pinned.
    pub fn clear(&mut self, range: PageRange) -> u64 {
        let end = range.end().0.min(PAGE_NUMBER_END);
        let inside = PageRange { first: range.first, count: end.saturating_sub(range.first.0) };
        let mut gone = 0;
        for_each_word(inside, |leaf, word, mask| {
            let Some(base) = self.leaves.find(leaf) else {
                return;
            };
            let cell = &mut self.leaves.cells_mut()[base + word];
            let removed = (mask & *cell).count_ones();
            *cell &= !mask;
            if removed > 0 {
                self.leaves.vacate(base, removed);
            }
            gone += u64::from(removed);
        });
        self.pinned -= gone;
        gone
    }

    /// Number of pinned pages.
    #[inline]
    pub fn count(&self) -> u64 {
        self.pinned
    }

    /// Host memory of the map, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.leaves.memory_bytes()
    }

    /// The first page of the range whose bit is `pinned`.
    fn find(&mut self, range: PageRange, pinned: bool) -> Option<Page> {
        let end = range.end().0;
        // Beyond the address space nothing is pinned: a search for a pinned page can stop there.
        let stop = if pinned { end.min(PAGE_NUMBER_END) } else { end };
        let flip = if pinned { 0 } else { u64::MAX };
        let mut at = range.first.0;
        while at < stop {
            let Some(base) = self.leaves.find(at >> LEAF_SHIFT) else {
                if !pinned {
                    return Some(Page(at));
                }
                at = (at | ((1 << LEAF_SHIFT) - 1)).saturating_add(1);
                continue;
            };
            let word = self.leaves.cells()[base + word_in_leaf(at)] ^ flip;
            let found = word & (u64::MAX << (at % WORD_PAGES));
            if found != 0 {
                let page = at - at % WORD_PAGES + u64::from(found.trailing_zeros());
                return (page < stop).then_some(Page(page));
            }
            at = (at | (WORD_PAGES - 1)).saturating_add(1);
        }
        None
    }
}

#[inline(always)]
fn word_in_leaf(page: u64) -> usize {
    (page >> WORD_SHIFT) as usize % LEAF_WORDS
}

/// Calls `visit(leaf number, word in the leaf, bits of the range in that word)`, in ascending order.
fn for_each_word(range: PageRange, mut visit: impl FnMut(u64, usize, u64)) {
    let end = range.end().0;
    let mut at = range.first.0;
    while at < end {
        let bit = at % WORD_PAGES;
        let pages = (WORD_PAGES - bit).min(end - at);
        visit(at >> LEAF_SHIFT, word_in_leaf(at), (u64::MAX >> (WORD_PAGES - pages)) << bit);
        at += pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range(first: u64, count: u64) -> PageRange {
        PageRange { first: Page(first), count }
    }

    #[test]
    fn an_empty_range_is_pinned() {
        assert_eq!(PinMap::new().check(range(5, 0)), Check::AllPinned);
        assert_eq!(PinMap::new().check(range(u64::MAX, 0)), Check::AllPinned);
    }

    #[test]
    fn pages_beyond_the_address_space_are_refused_and_never_pinned() {
        let mut map = PinMap::new();
        assert!(map.set(range(PAGE_NUMBER_END - 1, 2)).is_err());
        assert_eq!(map.count(), 0);
        assert_eq!(map.set(range(PAGE_NUMBER_END - 1, 1)), Ok(1));
        assert_eq!(map.check(range(PAGE_NUMBER_END - 1, 2)), Check::FirstUnpinned(Page(PAGE_NUMBER_END)));
        assert_eq!(map.check(range(u64::MAX - 3, 3)), Check::FirstUnpinned(Page(u64::MAX - 3)));
        for count in [u64::MAX, u64::MAX - 1, u64::MAX - 62] {
            assert_ne!(map.check(range(PAGE_NUMBER_END - 1, count)), Check::AllPinned);
            assert_ne!(map.check(range(PAGE_NUMBER_END - 62, count)), Check::AllPinned);
        }
        assert_eq!(map.clear(range(PAGE_NUMBER_END - 1, u64::MAX)), 1);
        assert!(!map.contains(Page(u64::MAX)));
    }

    #[test]
    fn a_leaf_lives_only_as_long_as_one_of_its_pages_is_pinned() {
        let mut map = PinMap::new();
        for leaf in 0..10 {
            map.set(range(leaf << LEAF_SHIFT, 2)).unwrap();
        }
        let bytes = map.memory_bytes();
        for leaf in 0..10 {
            map.clear(range(leaf << LEAF_SHIFT, 1));
            assert_eq!(map.leaves.leaf_count(), 10 - leaf as usize);
            map.clear(range((leaf << LEAF_SHIFT) + 1, 1));
        }
        assert_eq!(map.leaves.leaf_count(), 0);
        for leaf in 50..60 {
            map.set(range(leaf << LEAF_SHIFT, 2)).unwrap();
        }
        assert!(map.memory_bytes() <= bytes + 16 * 8, "leaves are used again");
    }

    #[test]
    fn setting_a_page_twice_counts_it_once() {
        let mut map = PinMap::new();
        assert_eq!(map.set(range(60, 10)), Ok(10));
        assert_eq!(map.set(range(65, 10)), Ok(5));
        assert_eq!(map.clear(range(0, 66)), 6);
        assert_eq!(map.count(), 9);
    }

    /// Page numbers near the boundaries of words and leaves.
    fn page() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..200, 4000u64..4200, 8100u64..8300, (PAGE_NUMBER_END - 70)..PAGE_NUMBER_END]
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_agrees_with_a_set_of_pages(
            ops in prop::collection::vec((page(), 0u64..150, any::<bool>()), 1..40),
            probes in prop::collection::vec((page(), 0u64..300), 20),
        ) {
            let mut map = PinMap::new();
            let mut oracle = BTreeSet::new();
            for (first, count, pin) in ops {
                let count = count.min(PAGE_NUMBER_END - first);
                let before = oracle.len();
                if pin {
                    oracle.extend(first..first + count);
                    prop_assert_eq!(map.set(range(first, count)), Ok((oracle.len() - before) as u64));
                } else {
                    oracle.retain(|page| !(first..first + count).contains(page));
                    prop_assert_eq!(map.clear(range(first, count)), (before - oracle.len()) as u64);
                }
                prop_assert_eq!(map.count(), oracle.len() as u64);
            }
            for (first, count) in probes {
                let unpinned = (first..first + count).find(|page| !oracle.contains(page));
                let expected = unpinned.map_or(Check::AllPinned, |page| Check::FirstUnpinned(Page(page)));
                prop_assert_eq!(map.check(range(first, count)), expected);
                let run = unpinned.map(|start| {
                    let end = (start..first + count).find(|page| oracle.contains(page)).unwrap_or(first + count);
                    range(start, end - start)
                });
                prop_assert_eq!(map.first_unpinned_run(range(first, count)), run);
                prop_assert_eq!(map.contains(Page(first)), oracle.contains(&first));
            }
        }
    }
}
