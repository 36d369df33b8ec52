//! A process's full translation table: a directory in NIC memory over second-level tables in host memory
//! (UTLB §3.3, Figure 4).
//!
//! * A second-level table has 1024 frames of 8 bytes, 8 KiB, and covers 4 MiB of address space. Every entry starts
//!   as the garbage frame (UTLB §4.2). A table whose last page is removed goes back to the host.
//! * The paper's directory has a slot for each possible second-level table: 1024 for 32-bit addresses. For 48 bits
//!   that would be 2²⁶ slots, so here the directory is a hash table of 16-byte slots: 64 at first, 1 KiB, later twice
//!   to four times as many as the most second-level tables there have been. 1 GiB of pinned neighbours costs 8 KiB
//!   of NIC memory.
//!   A walk reads 1.5 slots on average where the paper's reads one, and then one entry in host memory.

use crate::page::{Frame, Page, PageRange, RangeError};
use crate::sparse::{SLOT_BYTES, SparseIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// log₂ of the entries of a second-level table.
pub const TABLE_SHIFT: u32 = 10;
/// Entries of a second-level table.
pub const TABLE_ENTRIES: usize = 1 << TABLE_SHIFT;
const FIRST_SLOTS: usize = 64;

#[derive(Clone, Debug)]
struct SecondLevel {
    frames: Box<[Frame; TABLE_ENTRIES]>,
    installed: u32,
}

/// The frames of all pinned pages of one process.
///
/// ```
/// use mapwire_translation::{Frame, Page, TranslationTable};
/// let mut table = TranslationTable::new();
/// table.install(Page(5), Frame(77))?;
/// assert_eq!(table.walk(Page(5)), Frame(77));
/// assert_eq!(table.walk(Page(6)), Frame::GARBAGE);
/// assert_eq!(table.host_bytes(), 8192);
/// # Ok::<(), mapwire_translation::RangeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TranslationTable {
    directory: SparseIndex,
    tables: Vec<Option<SecondLevel>>,
    spare: Vec<usize>,
    installed: u64,
}

impl Default for TranslationTable {
    fn default() -> Self {
        Self::new()
    }
}

impl TranslationTable {
    /// A directory without second-level tables.
    pub fn new() -> Self {
        TranslationTable {
            directory: SparseIndex::with_slots(FIRST_SLOTS),
            tables: Vec::new(),
            spare: Vec::new(),
            installed: 0,
        }
    }

    /// Records where `page` lives. [`Frame::GARBAGE`] removes it.
    ///
    /// # Errors
    /// A page outside the 48-bit address space is refused.
    pub fn install(&mut self, page: Page, frame: Frame) -> Result<(), RangeError> {
        PageRange::single(page).in_address_space()?;
        if frame.is_garbage() {
            self.remove(page);
            return Ok(());
        }
        let number = page.0 >> TABLE_SHIFT;
        let at = match self.directory.get(number) {
            Some(at) => at,
            None => self.add_table(number),
        };
        if let Some(table) = &mut self.tables[at] {
            let entry = &mut table.frames[entry_in_table(page)];
            if entry.is_garbage() {
                table.installed += 1;
                self.installed += 1;
            }
            *entry = frame;
        }
        Ok(())
    }

    /// Forgets where `page` lives. Returns its frame, the garbage frame if it had none.
    pub fn remove(&mut self, page: Page) -> Frame {
        let number = page.0 >> TABLE_SHIFT;
        let Some(at) = self.directory.get(number) else {
            return Frame::GARBAGE;
        };
        let Some(table) = &mut self.tables[at] else {
            return Frame::GARBAGE;
        };
        let old = core::mem::replace(&mut table.frames[entry_in_table(page)], Frame::GARBAGE);
        if !old.is_garbage() {
            table.installed -= 1;
            self.installed -= 1;
            if table.installed == 0 {
                self.tables[at] = None;
                self.spare.push(at);
                self.directory.remove(number);
            }
        }
        old
    }

    /// Where `page` lives: what the NIC reads on a miss. Pages that are not pinned live in the garbage frame.
    #[inline]
    pub fn walk(&self, page: Page) -> Frame {
        match self.directory.get(page.0 >> TABLE_SHIFT) {
            Some(at) => match &self.tables[at] {
                Some(table) => table.frames[entry_in_table(page)],
                None => Frame::GARBAGE,
            },
            None => Frame::GARBAGE,
        }
    }

    /// Pages that have a frame.
    pub fn installed_pages(&self) -> u64 {
        self.installed
    }

    /// Bytes of the directory, in NIC memory.
    pub fn directory_bytes(&self) -> usize {
        self.directory.slots() * SLOT_BYTES
    }

    /// Bytes of the second-level tables, in host memory.
    pub fn host_bytes(&self) -> usize {
        (self.tables.len() - self.spare.len()) * TABLE_ENTRIES * size_of::<Frame>()
    }

    fn add_table(&mut self, number: u64) -> usize {
        let table = SecondLevel {
            frames: Box::new([Frame::GARBAGE; TABLE_ENTRIES]),
            installed: 0,
        };
        let at = match self.spare.pop() {
            Some(at) => {
                self.tables[at] = Some(table);
                at
            }
            None => {
                self.tables.push(Some(table));
                self.tables.len() - 1
            }
        };
        self.directory.insert(number, at);
        at
    }
}

#[inline(always)]
fn entry_in_table(page: Page) -> usize {
    page.0 as usize % TABLE_ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_NUMBER_END;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_page_of_a_new_table_lives_in_the_garbage_frame() {
        let table = TranslationTable::new();
        for page in [0, 1023, 1024, PAGE_NUMBER_END, u64::MAX] {
            assert_eq!(table.walk(Page(page)), Frame::GARBAGE);
        }
    }

    #[test]
    fn a_page_outside_the_address_space_is_refused() {
        let mut table = TranslationTable::new();
        assert!(table.install(Page(PAGE_NUMBER_END), Frame(1)).is_err());
        assert!(table.install(Page(u64::MAX), Frame(1)).is_err());
        assert_eq!(table.host_bytes(), 0);
        assert_eq!(table.remove(Page(u64::MAX)), Frame::GARBAGE);
    }

    #[test]
    fn neighbours_share_a_second_level_table_and_the_last_to_go_returns_it() {
        let mut table = TranslationTable::new();
        table.install(Page(1024), Frame(1)).unwrap();
        table.install(Page(2047), Frame(2)).unwrap();
        assert_eq!(table.host_bytes(), 8192);
        table.install(Page(2048), Frame(3)).unwrap();
        assert_eq!(table.host_bytes(), 2 * 8192);
        assert_eq!(table.remove(Page(1024)), Frame(1));
        assert_eq!(table.remove(Page(1024)), Frame::GARBAGE);
        assert_eq!(table.host_bytes(), 2 * 8192);
        table.install(Page(2047), Frame::GARBAGE).unwrap();
        assert_eq!(table.host_bytes(), 8192);
        assert_eq!(table.installed_pages(), 1);
    }

    #[test]
    fn a_gibibyte_of_neighbours_costs_eight_kibibytes_of_nic_memory() {
        let mut table = TranslationTable::new();
        assert_eq!(table.directory_bytes(), 1024);
        for page in 0..(1 << 30) / 4096 {
            table.install(Page(page), Frame(page)).unwrap();
        }
        assert_eq!(table.directory_bytes(), 8192);
        assert_eq!(table.host_bytes(), 256 * 8192);
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_agrees_with_an_ordered_map(
            ops in prop::collection::vec((0u64..6, 0u64..6, prop::option::of(0u64..9)), 0..300)
        ) {
            let mut table = TranslationTable::new();
            let mut oracle = BTreeMap::new();
            for (high, low, frame) in ops {
                let page = Page((high << 33) | (high << 10) | (low * 200));
                match frame {
                    Some(frame) => {
                        table.install(page, Frame(frame)).unwrap();
                        oracle.insert(page, Frame(frame));
                    }
                    None => {
                        prop_assert_eq!(table.remove(page), oracle.remove(&page).unwrap_or(Frame::GARBAGE));
                    }
                }
                prop_assert_eq!(table.installed_pages(), oracle.len() as u64);
            }
            for (high, low) in (0..6).flat_map(|high| (0..6).map(move |low| (high, low))) {
                let page = Page((high << 33) | (high << 10) | (low * 200));
                prop_assert_eq!(table.walk(page), oracle.get(&page).copied().unwrap_or(Frame::GARBAGE));
            }
        }
    }
}
