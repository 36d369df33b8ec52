//! The shape of an allocation of several minipages: a closed formula for the place of each.

use crate::address::Key;
use crate::{Address, Minipage, PAGE_BYTES};

/// Minipages of one allocation, one after the other from its first page on.
///
/// Where a unit is whole pages, they are adjacent, and the last may be shorter. Units of other lengths are *rows*, all equally long: above a
/// page each starts on a page of its own; below, as many share a page as its bytes and the views from [`view`](Self::view) on allow, each in
/// the next view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Units {
    /// View of the first.
    pub view: u16,
    /// Page on which the first starts.
    pub first_page: u32,
    /// Bytes of all of them.
    pub length_bytes: u64,
    /// Bytes of each.
    pub unit_bytes: u64,
}

/// Alignment in bytes: allocations shorter than a cache line are as close as with `malloc`; others have lines of their own.
pub(crate) fn align(bytes: u64) -> u64 {
    if bytes < 64 { 16 } else { 64 }
}

impl Units {
    /// Bytes from a row to the next where several share a page.
    fn stride_bytes(&self) -> u64 {
        self.unit_bytes.next_multiple_of(align(self.unit_bytes))
    }

    /// Number of them that share a page, in a segment of `views` views.
    #[must_use]
    pub fn per_page(&self, views: u16) -> u16 {
        let views = views.saturating_sub(self.view).max(1);
        if self.unit_bytes >= PAGE_BYTES {
            return 1;
        }
        // At most 256, since strides are at least 16.
        views.min((PAGE_BYTES / self.stride_bytes().max(1)) as u16)
    }

    /// Pages of one above a page, 1 below.
    fn unit_pages(&self) -> u64 {
        self.unit_bytes.div_ceil(PAGE_BYTES)
    }

    /// Number of minipages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.length_bytes.div_ceil(self.unit_bytes.max(1))
    }

    /// Number of pages on which they lie, in a segment of `views` views.
    #[must_use]
    pub fn pages(&self, views: u16) -> u64 {
        if self.unit_bytes.is_multiple_of(PAGE_BYTES) {
            return self.length_bytes.div_ceil(PAGE_BYTES);
        }
        self.count().div_ceil(u64::from(self.per_page(views))).saturating_mul(self.unit_pages())
    }

    /// Whether they lie within a segment of this size, keep the rules of their shape, and are more than one or longer than a page.
    pub(crate) fn are_well_formed(&self, pages: u32, views: u16) -> bool {
        let are_equal =
            self.unit_bytes.is_multiple_of(PAGE_BYTES) || self.length_bytes.is_multiple_of(self.unit_bytes.max(1));
        self.view < views
            && (1..=self.length_bytes).contains(&self.unit_bytes)
            && self.length_bytes <= u64::from(pages) * PAGE_BYTES * u64::from(views)
            && are_equal
            && (self.count() > 1 || self.pages(views) > 1)
            && u64::from(self.first_page) + self.pages(views) <= u64::from(pages)
    }

    /// The minipage with that number; `None` beyond the last.
    #[must_use]
    pub fn unit(&self, number: u64, views: u16) -> Option<Minipage> {
        let start = number.checked_mul(self.unit_bytes).filter(|&start| start < self.length_bytes)?;
        let per_page = u64::from(self.per_page(views));
        let (run, within) = (number / per_page, number % per_page);
        let page = u64::from(self.first_page) + run * self.unit_pages();
        Some(Minipage {
            view: self.view + within as u16,
            offset_bytes: page * PAGE_BYTES + within * if per_page > 1 { self.stride_bytes() } else { 0 },
            length_bytes: self.unit_bytes.min(self.length_bytes - start),
        })
    }

    /// Number of the minipage that covers a page of a view, if one does.
    fn number_at(&self, view: u16, page: u32, views: u16) -> Option<u64> {
        let per_page = self.per_page(views);
        let within = view.checked_sub(self.view).filter(|&within| within < per_page)?;
        let run = u64::from(page.checked_sub(self.first_page)?) / self.unit_pages();
        let number = run * u64::from(per_page) + u64::from(within);
        (number < self.count()).then_some(number)
    }

    /// The minipage that covers a page of a view.
    pub(crate) fn at(&self, view: u16, page: u32, views: u16) -> Option<Minipage> {
        let minipage = self.unit(self.number_at(view, page, views)?, views)?;
        // The last of an array may be pages shorter.
        (u64::from(page) < minipage.first_page() + minipage.pages()).then_some(minipage)
    }

    /// The minipage with that key.
    pub(crate) fn with_key(&self, key: Key, views: u16) -> Option<Minipage> {
        self.at(key.view, key.page, views).filter(|minipage| minipage.key() == key)
    }

    /// The address of the first.
    #[must_use]
    pub fn address(&self) -> Address {
        Address { view: self.view, offset_bytes: u64::from(self.first_page) * PAGE_BYTES }
    }
}

impl From<Minipage> for Units {
    /// A minipage that starts on a page, as one unit.
    fn from(minipage: Minipage) -> Self {
        let Minipage { view, length_bytes, .. } = minipage;
        Units { view, first_page: minipage.first_page() as u32, length_bytes, unit_bytes: length_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn units() -> impl Strategy<Value = Units> {
        let unit = prop_oneof![1u64..5000, (1u64..4).prop_map(|pages| pages * PAGE_BYTES), 1u64..20_000];
        (0u16..4, 0u32..20, unit, 1u64..60, any::<u64>()).prop_map(|(view, first_page, unit_bytes, count, cut)| {
            let cut = if unit_bytes.is_multiple_of(PAGE_BYTES) { cut % unit_bytes } else { 0 };
            Units { view, first_page, length_bytes: unit_bytes * count - cut, unit_bytes }
        })
    }

    proptest! {
        #[test]
        fn every_byte_belongs_to_exactly_one_unit_which_is_found_from_each_page_it_touches(
            units in units(), views in 1u16..9,
        ) {
            prop_assume!(units.are_well_formed(100_000, views));
            let mut bytes = BTreeMap::new();
            let mut pages = BTreeMap::new();
            let mut length = 0;
            for number in 0..units.count() {
                let minipage = units.unit(number, views).unwrap();
                prop_assert!(minipage.is_well_formed(100_000, views), "{:?}", minipage);
                // So no aligned word of up to 16 bytes lies across two.
                prop_assert!(minipage.offset_bytes.is_multiple_of(align(units.unit_bytes)));
                length += minipage.length_bytes;
                let before = bytes.range(..=minipage.offset_bytes).next_back();
                prop_assert!(before.is_none_or(|(_, end)| *end <= minipage.offset_bytes), "{:?}", minipage);
                bytes.insert(minipage.offset_bytes, minipage.offset_bytes + minipage.length_bytes);
                for page in minipage.first_page()..minipage.first_page() + minipage.pages() {
                    prop_assert_eq!(pages.insert((minipage.view, page as u32), minipage), None);
                }
                prop_assert_eq!(units.with_key(minipage.key(), views), Some(minipage));
            }
            prop_assert_eq!(length, units.length_bytes);
            prop_assert_eq!(units.unit(units.count(), views), None);
            let end = u64::from(units.first_page) + units.pages(views);
            for view in 0..views {
                for page in 0..end as u32 + 2 {
                    prop_assert_eq!(units.at(view, page, views), pages.get(&(view, page)).copied());
                }
            }
            prop_assert_eq!(pages.keys().map(|&(_, page)| u64::from(page) + 1).max(), Some(end));
        }

        #[test]
        fn any_numbers_are_shapes_or_not_without_overflow(
            view in 0u16..600, first_page: u32, length_bytes: u64, unit_bytes: u64, views in 1u16..=512, pages in 1u32..1 << 28,
        ) {
            let units = Units { view, first_page, length_bytes, unit_bytes };
            if units.are_well_formed(pages, views) {
                let last = units.unit(units.count() - 1, views).unwrap();
                prop_assert!(last.is_well_formed(pages, views));
            }
        }
    }

    #[test]
    fn rows_share_a_page_while_it_has_bytes_and_views() {
        let rows = |unit_bytes| Units { view: 1, first_page: 0, length_bytes: 100 * unit_bytes, unit_bytes };
        assert_eq!(rows(100).per_page(33), 32);
        assert_eq!(rows(100).per_page(5), 4);
        assert_eq!(rows(2000).per_page(33), 2);
        assert_eq!(rows(2049).per_page(33), 1);
        assert_eq!(rows(1).per_page(512), 256);
        assert_eq!((rows(100).pages(5), rows(5000).pages(5), rows(8192).pages(5)), (25, 200, 200));
        let row = rows(100).unit(6, 5).unwrap();
        assert_eq!((row.view, row.offset_bytes, row.length_bytes), (3, 4096 + 2 * 128, 100));
    }

    #[test]
    fn what_would_be_one_minipage_within_a_page_or_rows_of_two_lengths_are_none() {
        let units =
            |length_bytes, unit_bytes| Units { view: 0, first_page: 0, length_bytes, unit_bytes }.are_well_formed(8, 4);
        assert!(units(200, 100) && units(4097, 4097) && units(5000, 4096));
        assert!(!units(100, 100) && !units(4096, 4096) && !units(0, 0) && !units(100, 0) && !units(100, 101));
        assert!(!units(250, 100) && !units(12_000, 5000));
        assert!(units(8 * 4096, 4096) && !units(8 * 4096 + 1, 4096));
    }
}
