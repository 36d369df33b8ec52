//! The minipages that this rank knows: their location and the application's access to them here.
//!
//! One 32-bit word per page and view, zero at the start, view after view so that a long allocation touches few pages of the table. Low to
//! high: 2 bits kind, 2 bits protection, 24 bits payload:
//!
//! | kind | where | payload |
//! |---|---|---|
//! | small | the page of a minipage of at most a page that is alone | 12 bits offset, 12 bits length − 1 |
//! | unit | first page of one of a range | none |
//!
//! Longer minipages, and allocations of several, are [`Ranges`]. A word of theirs stays zero until a right to it changes: until then the
//! rank that allocated it has the right to write, and nobody else any.

use crate::address::Key;
use crate::ranges::{PageSet, Ranges};
use crate::units::Units;
use crate::{Minipage, PAGE_BYTES, Protection, Rank, tables};
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Map {
    words: Vec<u32>,
    pages: usize,
    rank: Rank,
    /// Pages on which a small minipage lies, in any view.
    smalls: PageSet,
    ranges: Ranges,
}

const KIND: u32 = 0b11;
const SMALL: u32 = 1;
const UNIT: u32 = 2;

/// Pages that a rank opens at once of what it has allocated and not touched.
const OPENED_PAGES: u32 = 16;

fn payload(word: u32) -> u64 {
    u64::from(word >> 4)
}

fn protection(word: u32) -> Protection {
    match (word >> 2) & 0b11 {
        0 => Protection::None,
        1 => Protection::Read,
        _ => Protection::Write,
    }
}

fn protection_bits(protection: Protection) -> u32 {
    (protection as u32) << 2
}

impl Map {
    /// An empty map; `None` if the machine refuses memory for its tables.
    pub(super) fn new(rank: Rank, pages: u32, views: u16) -> Option<Self> {
        let words = tables::zeroes(tables::entries(pages, views)?)?;
        let (smalls, ranges) = (PageSet::new(pages)?, Ranges::new(pages, views)?);
        Some(Map { words, pages: pages as usize, rank, smalls, ranges })
    }

    fn index(&self, view: u16, page: u32) -> usize {
        usize::from(view) * self.pages + page as usize
    }

    fn word(&self, key: Key) -> u32 {
        self.words[self.index(key.view, key.page)]
    }

    /// The key of the minipage that covers the page: the page itself if none is known, since only minipages of one page are not known
    /// everywhere.
    pub(super) fn key(&self, view: u16, page: u32) -> Key {
        let key = Key { view, page };
        if self.word(key) != 0 {
            return key;
        }
        self.ranges.at(view, page).map_or(key, |minipage| minipage.key())
    }

    /// The application's access to the minipage with that key; none if it is not known.
    pub(super) fn protection(&self, key: Key) -> Protection {
        match self.word(key) {
            0 if self.creator(key) == Some(self.rank) => Protection::Write,
            word => protection(word),
        }
    }

    pub(super) fn set_protection(&mut self, key: Key, protection: Protection) {
        let at = self.index(key.view, key.page);
        let word = if self.words[at] == 0 { UNIT } else { self.words[at] };
        self.words[at] = word & !0b1100 | protection_bits(protection);
    }

    pub(super) fn minipage(&self, key: Key) -> Option<Minipage> {
        let word = self.word(key);
        if word & KIND != SMALL {
            return self.ranges.with_key(key).map(|(minipage, _)| minipage);
        }
        let offset_bytes = u64::from(key.page) * PAGE_BYTES + payload(word) % PAGE_BYTES;
        Some(Minipage { view: key.view, offset_bytes, length_bytes: payload(word) / PAGE_BYTES + 1 })
    }

    /// The rank that allocated a minipage of a range.
    pub(super) fn creator(&self, key: Key) -> Option<Rank> {
        self.ranges.with_key(key).map(|(_, creator)| creator)
    }

    /// The minipage that covers the page, and its protection.
    pub(super) fn lookup(&self, view: u16, page: u32) -> Option<(Minipage, Protection)> {
        let key = self.key(view, page);
        self.minipage(key).map(|minipage| (minipage, self.protection(key)))
    }

    /// A run of what this rank has allocated and not yet opened, with the minipage of that key: from now on it is open. `None` if it was.
    pub(super) fn open(&mut self, key: Key) -> Option<Minipage> {
        let (minipage, creator) = self.ranges.with_key(key).filter(|_| self.word(key) == 0)?;
        if creator != self.rank {
            return None;
        }
        let run = self.ranges.around(minipage, OPENED_PAGES, |key| self.word(key) == 0);
        let first = run.first_page() as u32;
        for page in first..first + run.pages() as u32 {
            if self.key(run.view, page).page == page {
                self.set_protection(Key { view: run.view, page }, Protection::Write);
            }
        }
        Some(run)
    }

    /// Whether no known minipage of the same view overlaps the pages of this well-formed one.
    pub(super) fn is_free(&self, minipage: &Minipage) -> bool {
        if minipage.pages() > 1 {
            return self.are_free(&(*minipage).into());
        }
        let key = minipage.key();
        self.word(key) == 0 && self.ranges.at(key.view, key.page).is_none()
    }

    /// Whether no other range, and no small minipage, lies on the pages of these well-formed units; those in other views may share the last.
    pub(super) fn are_free(&self, units: &Units) -> bool {
        let views = (self.words.len() / self.pages) as u16;
        let (first, end) = (units.first_page, units.first_page + units.pages(views) as u32);
        let last = Key { view: units.view, page: end - 1 };
        let is_last_shared = units.per_page(views) == 1;
        self.ranges.are_free(first, end)
            && !self.smalls.has_any(first, if is_last_shared { end - 1 } else { end })
            && (!is_last_shared || self.word(last) == 0)
    }

    /// Adds a well-formed minipage whose pages must be free in its view.
    pub(super) fn insert(&mut self, minipage: &Minipage, protection: Protection) {
        let at = self.index(minipage.view, minipage.first_page() as u32);
        let bits = protection_bits(protection);
        if minipage.pages() > 1 {
            self.ranges.insert((*minipage).into(), self.rank);
            self.words[at] = UNIT | bits;
            return;
        }
        let (offset, last) = ((minipage.offset_bytes % PAGE_BYTES) as u32, (minipage.length_bytes - 1) as u32);
        self.words[at] = SMALL | bits | (offset | last << 12) << 4;
        self.smalls.insert(minipage.first_page() as u32);
    }

    /// Adds well-formed units that `creator` has allocated, whose pages must be free.
    pub(super) fn insert_units(&mut self, units: Units, creator: Rank) {
        self.ranges.insert(units, creator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn minipages() -> impl Strategy<Value = Minipage> {
        let small = (0u64..64, 0u64..4096, 1u64..=4096).prop_map(|(page, offset, length)| Minipage {
            view: 1,
            offset_bytes: page * 4096 + offset,
            length_bytes: length.min(4096 - offset),
        });
        let large = (0u64..32, 4096u64..32 * 4096).prop_map(|(page, length)| Minipage {
            view: 1,
            offset_bytes: page * 4096,
            length_bytes: length,
        });
        prop_oneof![small, large]
    }

    proptest! {
        #[test]
        fn what_is_inserted_is_found_from_every_page_it_touches(minipage in minipages()) {
            let mut map = Map::new(0, 64, 3).unwrap();
            prop_assume!(minipage.is_well_formed(64, 3));
            prop_assert!(map.is_free(&minipage));
            map.insert(&minipage, Protection::Read);
            prop_assert!(!map.is_free(&minipage));
            let first = minipage.first_page();
            for page in 0..64u32 {
                let inside = u64::from(page) >= first && u64::from(page) < first + minipage.pages();
                let found = map.lookup(1, page);
                prop_assert_eq!(found, inside.then_some((minipage, Protection::Read)));
                prop_assert_eq!(map.lookup(0, page), None);
                prop_assert_eq!(map.lookup(2, page), None);
            }
            map.set_protection(minipage.key(), Protection::Write);
            prop_assert_eq!(map.lookup(1, first as u32), Some((minipage, Protection::Write)));
            map.set_protection(minipage.key(), Protection::None);
            prop_assert_eq!(map.lookup(1, first as u32), Some((minipage, Protection::None)));
        }

        /// Against a table of the views' pages.
        #[test]
        fn ranges_and_small_minipages_are_free_where_no_page_of_a_view_has_another(
            asked in proptest::collection::vec((0u32..60, 1u64..6, 1u64..9000, 1u64..20, any::<bool>()), 1..40),
        ) {
            let mut map = Map::new(7, 64, 4).unwrap();
            let mut table = alloc::collections::BTreeMap::new();
            for (page, view, bytes, count, is_small) in asked {
                let view = (view % 4) as u16;
                let small = Minipage { view, offset_bytes: u64::from(page) * 4096, length_bytes: bytes % 4096 + 1 };
                let units = Units { view, first_page: page, length_bytes: bytes * count, unit_bytes: bytes };
                if is_small {
                    if map.is_free(&small) {
                        map.insert(&small, Protection::Read);
                        prop_assert_eq!(table.insert((view, page), (small, Protection::Read)), None);
                    } else {
                        prop_assert!(table.contains_key(&(view, page)));
                    }
                } else if units.are_well_formed(64, 4) && map.are_free(&units) {
                    let creator = if count % 2 == 0 { 7 } else { 1 };
                    map.insert_units(units, creator);
                    let right = if creator == 7 { Protection::Write } else { Protection::None };
                    for unit in (0..units.count()).map(|number| units.unit(number, 4).unwrap()) {
                        for page in unit.first_page()..unit.first_page() + unit.pages() {
                            prop_assert_eq!(table.insert((unit.view, page as u32), (unit, right)), None);
                        }
                    }
                }
            }
            for view in 0..4 {
                for page in 0..64 {
                    prop_assert_eq!(map.lookup(view, page), table.get(&(view, page)).copied());
                }
            }
        }
    }

    #[test]
    fn two_long_minipages_that_touch_are_told_apart() {
        let mut map = Map::new(0, 8, 1).unwrap();
        let a = Minipage { view: 0, offset_bytes: 0, length_bytes: 8192 };
        let b = Minipage { view: 0, offset_bytes: 8192, length_bytes: 3 * 4096 };
        map.insert(&b, Protection::Write);
        map.insert(&a, Protection::None);
        assert_eq!(map.key(0, 1), a.key());
        assert_eq!(map.key(0, 2), b.key());
        assert_eq!(map.key(0, 4), b.key());
        assert_eq!(map.lookup(0, 1), Some((a, Protection::None)));
        assert_eq!(map.lookup(0, 4), Some((b, Protection::Write)));
    }

    #[test]
    fn what_a_rank_has_allocated_opens_in_aligned_runs_of_units_that_are_as_they_were() {
        let mut map = Map::new(2, 100, 1).unwrap();
        map.insert_units(Units { view: 0, first_page: 3, length_bytes: 60 * 4096, unit_bytes: 8192 }, 2);
        let run =
            |first: u64, pages: u64| Some(Minipage { view: 0, offset_bytes: first * 4096, length_bytes: pages * 4096 });
        map.set_protection(Key { view: 0, page: 27 }, Protection::Read);
        assert_eq!(map.open(Key { view: 0, page: 5 }), run(3, 12));
        assert_eq!(map.open(Key { view: 0, page: 3 }), None, "it is open");
        assert_eq!(map.open(Key { view: 0, page: 21 }), run(17, 10));
        assert_eq!(map.open(Key { view: 0, page: 29 }), run(29, 2));
        assert_eq!(map.open(Key { view: 0, page: 15 }), run(15, 2), "it lies across");
        assert_eq!(map.open(Key { view: 0, page: 27 }), None, "another has it");
        map.insert_units(Units { view: 0, first_page: 70, length_bytes: 4 * 4096, unit_bytes: 4096 }, 1);
        assert_eq!(map.open(Key { view: 0, page: 70 }), None, "another rank's");
    }
}
