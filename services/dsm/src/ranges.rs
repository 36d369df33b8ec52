//! Allocations of several minipages, or of several pages: kept once for all, so that memory that nobody touches costs nothing.

use alloc::vec::Vec;

use crate::address::Key;
use crate::units::Units;
use crate::{Minipage, PAGE_BYTES, Rank, tables};

/// No two have a page in common, in whatever view. In the order of their pages.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// Never grows: there is room for one a page.
    all: Vec<Range>,
    views: u16,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    units: Units,
    end_page: u32,
    /// The rank that allocated it, and owns what nobody else has asked for.
    creator: Rank,
}

impl Ranges {
    /// An empty set. `None` if the machine refuses memory; only the used part is touched.
    pub(crate) fn new(pages: u32, views: u16) -> Option<Self> {
        let mut all = Vec::new();
        all.try_reserve_exact(pages as usize).ok()?;
        Some(Ranges { all, views })
    }

    /// The range on that page.
    fn on(&self, page: u32) -> Option<&Range> {
        let after = self.all.partition_point(|range| range.units.first_page <= page);
        self.all[..after].last().filter(|range| page < range.end_page)
    }

    /// Who allocated what lies on a page, in whatever view.
    pub(crate) fn creator(&self, page: u32) -> Option<Rank> {
        self.on(page).map(|range| range.creator)
    }

    /// The minipage that covers a page of a view.
    pub(crate) fn at(&self, view: u16, page: u32) -> Option<Minipage> {
        self.on(page)?.units.at(view, page, self.views)
    }

    /// The minipage with that key, and who allocated it.
    pub(crate) fn with_key(&self, key: Key) -> Option<(Minipage, Rank)> {
        let range = self.on(key.page)?;
        range.units.with_key(key, self.views).map(|minipage| (minipage, range.creator))
    }

    /// True if no range lies on these pages.
    pub(crate) fn are_free(&self, first: u32, end: u32) -> bool {
        let after = self.all.partition_point(|range| range.units.first_page < end);
        self.all[..after].last().is_none_or(|range| range.end_page <= first)
    }

    /// Adds well-formed units whose pages are free of others.
    pub(crate) fn insert(&mut self, units: Units, creator: Rank) {
        let end_page = units.first_page + units.pages(self.views) as u32;
        let at = self.all.partition_point(|range| range.units.first_page < units.first_page);
        self.all.insert(at, Range { units, end_page, creator });
    }

    /// The units of whole pages around one, for as long as they are of one allocation and `is_alike`, within an aligned run of `most` pages.
    pub(crate) fn around(&self, unit: Minipage, most: u32, is_alike: impl Fn(Key) -> bool) -> Minipage {
        let key = unit.key();
        let Some(range) = self.on(key.page).filter(|range| range.units.per_page(self.views) == 1) else {
            return unit;
        };
        let Units { view, first_page, .. } = range.units;
        let (first, end) = (key.page / most * most, (key.page / most + 1) * most);
        let (first, end) = (first.max(first_page), end.min(range.end_page));
        let at = |page| range.units.at(view, page, self.views);
        let (mut start, mut stop) = (unit.offset_bytes, unit.offset_bytes + unit.length_bytes);
        while let Some(before) = (start / PAGE_BYTES).checked_sub(1).and_then(|page| at(page as u32))
            && before.first_page() >= u64::from(first)
            && is_alike(before.key())
        {
            start = before.offset_bytes;
        }
        while let Some(after) = at(stop.div_ceil(PAGE_BYTES) as u32)
            && after.first_page() + after.pages() <= u64::from(end)
            && is_alike(after.key())
        {
            stop = after.offset_bytes + after.length_bytes;
        }
        Minipage { view, offset_bytes: start, length_bytes: stop - start }
    }
}

/// A set of pages.
#[derive(Debug)]
pub(crate) struct PageSet {
    /// A bit for each.
    words: Vec<u64>,
}

impl PageSet {
    /// Empty; `None` if the machine refuses memory.
    pub(crate) fn new(pages: u32) -> Option<Self> {
        Some(PageSet { words: tables::zeroes(pages.div_ceil(64) as usize)? })
    }

    pub(crate) fn insert(&mut self, page: u32) {
        self.words[page as usize / 64] |= 1 << (page % 64);
    }

    fn contains(&self, page: u32) -> bool {
        self.words[page as usize / 64] >> (page % 64) & 1 != 0
    }

    /// Whether some of these pages are in it.
    pub(crate) fn has_any(&self, first: u32, end: u32) -> bool {
        let whole = first.next_multiple_of(64)..end / 64 * 64;
        if whole.is_empty() {
            return (first..end).any(|page| self.contains(page));
        }
        (first..whole.start).chain(whole.end..end).any(|page| self.contains(page))
            || self.words[whole.start as usize / 64..whole.end as usize / 64].iter().any(|&word| word != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_has_pages_of_a_run_if_one_was_inserted(
            pages in proptest::collection::vec(0u32..500, 0..6), first in 0u32..500, count in 0u32..500,
        ) {
            let mut set = PageSet::new(1000).unwrap();
            pages.iter().for_each(|&page| set.insert(page));
            let oracle: BTreeSet<u32> = pages.into_iter().collect();
            prop_assert_eq!(set.has_any(first, first + count), oracle.range(first..first + count).next().is_some());
        }
    }
}
