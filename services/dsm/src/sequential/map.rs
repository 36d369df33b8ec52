//! The minipages that this rank knows: their location and the application's access to them here.
//!
//! One 32-bit word per page and view, zero at the start, view after view so that a long minipage touches few
//! pages of the table. Low to high: 2 bits kind, 2 bits protection, 28 bits payload:
//!
//! | kind | where | payload |
//! |---|---|---|
//! | small | the page of a minipage of at most a page | 12 bits offset, 12 bits length − 1 |
//! | head | first page of a longer one | bytes on its last page − 1 |
//! | body, after the head | second page | number of pages |
//! | body, others | later pages | distance to the first page |
//!
//! Only the small or head word has the protection.

use crate::address::Key;
use crate::{Minipage, PAGE_BYTES, Protection, tables};
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Map {
    words: Vec<u32>,
    pages: usize,
}

const KIND: u32 = 0b11;
const SMALL: u32 = 1;
const HEAD: u32 = 2;
const BODY: u32 = 3;

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
    /// An empty map; `None` if the machine refuses memory for its table.
    pub(super) fn new(pages: u32, views: u16) -> Option<Self> {
        let words = tables::zeroes(tables::entries(pages, views)?)?;
        Some(Map { words, pages: pages as usize })
    }

    fn index(&self, view: u16, page: u32) -> usize {
        usize::from(view) * self.pages + page as usize
    }

    /// The key of the minipage that covers the page: the page itself if none is known, since only minipages of one page are not known
    /// everywhere.
    pub(super) fn key(&self, view: u16, page: u32) -> Key {
        let at = self.index(view, page);
        let word = self.words[at];
        if word & KIND != BODY {
            return Key { view, page };
        }
        let back = if self.words[at - 1] & KIND == HEAD { 1 } else { payload(word) as u32 };
        Key { view, page: page - back }
    }

    /// The application's access to the minipage with that key; none if it is not known.
    pub(super) fn protection(&self, key: Key) -> Protection {
        protection(self.words[self.index(key.view, key.page)])
    }

    pub(super) fn set_protection(&mut self, key: Key, protection: Protection) {
        let at = self.index(key.view, key.page);
        self.words[at] = self.words[at] & !0b1100 | protection_bits(protection);
    }

    pub(super) fn minipage(&self, key: Key) -> Option<Minipage> {
        let at = self.index(key.view, key.page);
        let word = self.words[at];
        let start = u64::from(key.page) * PAGE_BYTES;
        let (offset_bytes, length_bytes) = match word & KIND {
            SMALL => (start + payload(word) % PAGE_BYTES, payload(word) / PAGE_BYTES + 1),
            HEAD => (start, (payload(self.words[at + 1]) - 1) * PAGE_BYTES + payload(word) + 1),
            _ => return None,
        };
        Some(Minipage { view: key.view, offset_bytes, length_bytes })
    }

    /// The minipage that covers the page, and its protection.
    pub(super) fn lookup(&self, view: u16, page: u32) -> Option<(Minipage, Protection)> {
        let key = self.key(view, page);
        self.minipage(key).map(|minipage| (minipage, self.protection(key)))
    }

    /// Whether no known minipage of the same view overlaps the pages of this well-formed one.
    pub(super) fn is_free(&self, minipage: &Minipage) -> bool {
        let at = self.index(minipage.view, minipage.first_page() as u32);
        self.words[at..at + minipage.pages() as usize].iter().all(|&word| word == 0)
    }

    /// Adds a well-formed minipage whose pages must be free in its view.
    pub(super) fn insert(&mut self, minipage: &Minipage, protection: Protection) {
        let at = self.index(minipage.view, minipage.first_page() as u32);
        let pages = minipage.pages() as usize;
        let last = ((minipage.length_bytes - 1) % PAGE_BYTES) as u32;
        let bits = protection_bits(protection);
        if pages == 1 {
            let offset = (minipage.offset_bytes % PAGE_BYTES) as u32;
            self.words[at] = SMALL | bits | (offset | last << 12) << 4;
            return;
        }
        self.words[at] = HEAD | bits | last << 4;
        self.words[at + 1] = BODY | (pages as u32) << 4;
        for distance in 2..pages {
            self.words[at + distance] = BODY | (distance as u32) << 4;
        }
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
            let mut map = Map::new(64, 3).unwrap();
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
    }

    #[test]
    fn two_long_minipages_that_touch_are_told_apart() {
        let mut map = Map::new(8, 1).unwrap();
        let a = Minipage { view: 0, offset_bytes: 0, length_bytes: 8192 };
        let b = Minipage { view: 0, offset_bytes: 8192, length_bytes: 3 * 4096 };
        map.insert(&a, Protection::None);
        map.insert(&b, Protection::Write);
        assert_eq!(map.key(0, 1), a.key());
        assert_eq!(map.key(0, 2), b.key());
        assert_eq!(map.key(0, 4), b.key());
        assert_eq!(map.lookup(0, 1), Some((a, Protection::None)));
        assert_eq!(map.lookup(0, 4), Some((b, Protection::Write)));
    }
}
