//! A process's full translation table: a directory in NIC memory over second-level tables in host memory
//! (UTLB §3.3, Figure 4).
//!
//! * A second-level table has 1024 frames of 8 bytes, 8 KiB, and covers 4 MiB of address space. Every entry starts as the garbage frame
//!   (UTLB §4.2). A table whose last page is removed is freed.
//! * The paper's directory has a slot for each possible second-level table: 1024 for 32-bit addresses. For 48 bits that would be 2²⁶
//!   slots, so here the directory is a hash table of 16-byte slots: 64 at first, 1 KiB, later two to four times the peak number of
//!   second-level tables. 1 GiB of contiguous pinned pages costs 8 KiB of NIC memory. A walk reads 1.5 slots on average where the paper's
//!   reads one, and then one entry in host memory.
//! * A second-level table can be paged out (UTLB §3.3): one bit of its directory slot then says so, and the others are the number of the
//!   host's block that holds it.

use crate::page::{Frame, Page, PageRange, RangeError};
use crate::sparse::{SLOT_BYTES, SparseIndex};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// log₂ of the entries of a second-level table.
pub const TABLE_SHIFT: u32 = 10;
/// Entries of a second-level table.
pub const TABLE_ENTRIES: usize = 1 << TABLE_SHIFT;
const TABLE_BYTES: usize = TABLE_ENTRIES * size_of::<Frame>();
const FIRST_SLOTS: usize = 64;

#[derive(Clone, Debug)]
struct SecondLevel {
    frames: Box<[Frame; TABLE_ENTRIES]>,
    installed: u32,
    /// When the NIC or the host last read it; only kept if the tables in memory are limited.
    used: u64,
    /// Number of table loads up to which it stays in memory because the NIC has asked for it and not yet walked it; 0 if it does not wait.
    awaited_until: u64,
}

/// Loads after which a requested table may be paged out although nobody has walked it: the most that can be requested at once.
const AWAITED_FOR_LOADS: u64 = 64;

/// A paged-out second-level table.
#[derive(Clone, Debug)]
struct Block {
    table: SecondLevel,
    /// Whether the NIC has asked for it.
    asked: bool,
}

/// Marks a directory slot that names a block.
const OUT: usize = 1 << (usize::BITS - 1);

/// Result of a walk by the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walk {
    Frame(Frame),
    /// The second-level table is paged out; `asked` says whether the NIC has asked for it before.
    Out {
        asked: bool,
    },
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
    blocks: Vec<Option<Block>>,
    spare_blocks: Vec<usize>,
    /// Most second-level tables in memory.
    most_tables: Option<u32>,
    clock: u64,
    /// Tables loaded so far.
    loads: u64,
    installed: u64,
}

impl Default for TranslationTable {
    fn default() -> Self {
        Self::new()
    }
}

impl TranslationTable {
    /// An empty directory whose second-level tables stay in memory unless they are paged out.
    pub fn new() -> Self {
        Self::with_most_tables(None)
    }

    /// An empty directory that keeps at most this many second-level tables, at least one, in memory: beyond that, the least recently used
    /// is paged out. Those that the NIC has asked for and not yet walked do not count.
    pub fn with_most_tables(most_tables: Option<u32>) -> Self {
        TranslationTable {
            directory: SparseIndex::with_slots(FIRST_SLOTS),
            tables: Vec::new(),
            spare: Vec::new(),
            blocks: Vec::new(),
            spare_blocks: Vec::new(),
            most_tables: most_tables.map(|most| most.max(1)),
            clock: 0,
            loads: 0,
            installed: 0,
        }
    }

    /// Records the frame of `page`. [`Frame::GARBAGE`] removes it.
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
        let at = match self.in_memory(number) {
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

    /// Removes `page`. Returns its frame, the garbage frame if it had none.
    pub fn remove(&mut self, page: Page) -> Frame {
        let number = page.0 >> TABLE_SHIFT;
        if self.walk(page).is_garbage() {
            return Frame::GARBAGE;
        }
        let Some(at) = self.in_memory(number) else {
            return Frame::GARBAGE;
        };
        let Some(table) = &mut self.tables[at] else {
            return Frame::GARBAGE;
        };
        let old = core::mem::replace(&mut table.frames[entry_in_table(page)], Frame::GARBAGE);
        table.installed -= 1;
        self.installed -= 1;
        if table.installed == 0 {
            self.tables[at] = None;
            self.spare.push(at);
            self.directory.remove(number);
        }
        old
    }

    /// The frame of `page` as the host knows it, even if the second-level table is paged out; the garbage frame if the page is not pinned.
    #[inline]
    pub fn walk(&self, page: Page) -> Frame {
        let table = match self.directory.get(page.0 >> TABLE_SHIFT) {
            Some(at) if at & OUT == 0 => self.tables[at].as_ref(),
            Some(at) => self.blocks[at & !OUT].as_ref().map(|block| &block.table),
            None => None,
        };
        table.map_or(Frame::GARBAGE, |table| table.frames[entry_in_table(page)])
    }

    /// The frame of `page`, if its second-level table is in memory. Does not count as a use.
    #[inline]
    pub(crate) fn walk_in_memory(&self, page: Page) -> Option<Frame> {
        let at = self.directory.get(page.0 >> TABLE_SHIFT)?;
        // The number of a block exceeds that of any table.
        let table = self.tables.get(at)?.as_ref()?;
        Some(table.frames[entry_in_table(page)])
    }

    /// The NIC's read on a miss: counts as a use of the second-level table.
    #[inline]
    pub(crate) fn walk_by_nic(&mut self, page: Page) -> Walk {
        match self.directory.get(page.0 >> TABLE_SHIFT) {
            Some(at) if at & OUT == 0 => {
                if self.most_tables.is_some() {
                    self.note_use(at);
                    if let Some(table) = &mut self.tables[at] {
                        table.awaited_until = 0;
                    }
                }
                let table = self.tables[at].as_ref();
                let frame = table.map_or(Frame::GARBAGE, |table| table.frames[entry_in_table(page)]);
                Walk::Frame(frame)
            }
            Some(at) => self.ask_for(at & !OUT),
            None => Walk::Frame(Frame::GARBAGE),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_for(&mut self, block: usize) -> Walk {
        match &mut self.blocks[block] {
            Some(block) => Walk::Out { asked: core::mem::replace(&mut block.asked, true) },
            None => Walk::Frame(Frame::GARBAGE),
        }
    }

    /// Moves the second-level table with this number, page number / 1024, out of memory. Returns whether it was in memory.
    pub fn page_out(&mut self, number: u64) -> bool {
        let Some(at) = self.directory.get(number).filter(|at| at & OUT == 0) else {
            return false;
        };
        let Some(mut table) = self.tables[at].take() else {
            return false;
        };
        table.awaited_until = 0;
        self.spare.push(at);
        let block = Some(Block { table, asked: false });
        let to = put(&mut self.blocks, &mut self.spare_blocks, block);
        self.directory.replace(number, to | OUT);
        true
    }

    /// Moves the second-level table with this number back into memory. Returns whether it was paged out.
    pub fn load(&mut self, number: u64) -> bool {
        let out = self.directory.get(number).filter(|at| at & OUT != 0);
        let Some(block) = out.map(|at| at & !OUT) else {
            return false;
        };
        let Some(Block { mut table, asked }) = self.blocks[block].take() else {
            return false;
        };
        self.loads += 1;
        if asked {
            table.awaited_until = self.loads + AWAITED_FOR_LOADS;
        }
        self.spare_blocks.push(block);
        let at = put(&mut self.tables, &mut self.spare, Some(table));
        self.directory.replace(number, at);
        self.note_use(at);
        self.keep_to_most(at);
        true
    }

    /// Number of installed pages.
    pub fn installed_pages(&self) -> u64 {
        self.installed
    }

    /// Bytes of the directory, in NIC memory.
    pub fn directory_bytes(&self) -> usize {
        self.directory.slots() * SLOT_BYTES
    }

    /// Bytes of the second-level tables in host memory.
    pub fn host_bytes(&self) -> usize {
        self.tables_in_memory() * TABLE_BYTES
    }

    /// Bytes of the second-level tables that are paged out.
    pub fn paged_out_bytes(&self) -> usize {
        (self.blocks.len() - self.spare_blocks.len()) * TABLE_BYTES
    }

    fn tables_in_memory(&self) -> usize {
        self.tables.len() - self.spare.len()
    }

    /// Index of the second-level table, for the host: loads it if necessary.
    fn in_memory(&mut self, number: u64) -> Option<usize> {
        let at = self.directory.get(number)?;
        if at & OUT != 0 {
            self.load(number);
        }
        let at = self.directory.get(number)?;
        if self.most_tables.is_some() {
            self.note_use(at);
        }
        Some(at)
    }

    fn add_table(&mut self, number: u64) -> usize {
        let table =
            SecondLevel { frames: Box::new([Frame::GARBAGE; TABLE_ENTRIES]), installed: 0, used: 0, awaited_until: 0 };
        let at = put(&mut self.tables, &mut self.spare, Some(table));
        self.directory.insert(number, at);
        self.note_use(at);
        self.keep_to_most(at);
        at
    }

    #[inline(never)]
    fn note_use(&mut self, at: usize) {
        self.clock += 1;
        if let Some(table) = &mut self.tables[at] {
            table.used = self.clock;
        }
    }

    /// Pages out the least recently used tables beyond the limit, but none that the NIC has asked for and not yet walked: otherwise two
    /// transfers would page out each other's for ever. Scans the directory.
    fn keep_to_most(&mut self, keep: usize) {
        while self.most_tables.is_some_and(|most| self.tables_in_memory() > most as usize) {
            let in_memory = self.directory.iter().filter(|(_, at)| at & OUT == 0);
            let used = |(number, at): (u64, usize)| {
                let table = self.tables[at].as_ref()?;
                let may_go = at != keep && (table.awaited_until == 0 || table.awaited_until < self.loads);
                may_go.then_some((table.used, number))
            };
            let Some((_, oldest)) = in_memory.filter_map(used).min() else {
                return;
            };
            self.page_out(oldest);
        }
    }
}

/// Stores a value in a spare slot or a new one. Returns its index.
fn put<T>(places: &mut Vec<Option<T>>, spare: &mut Vec<usize>, value: Option<T>) -> usize {
    match spare.pop() {
        Some(at) => {
            places[at] = value;
            at
        }
        None => {
            places.push(value);
            places.len() - 1
        }
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
    use std::collections::{BTreeMap, BTreeSet};

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

    #[test]
    fn a_table_that_is_paged_out_is_asked_for_once_and_then_walked_again() {
        let mut table = TranslationTable::new();
        table.install(Page(5), Frame(50)).unwrap();
        table.install(Page(1024), Frame(60)).unwrap();
        assert!(!table.page_out(2) && !table.load(0));
        assert!(table.page_out(0) && !table.page_out(0));
        assert_eq!((table.host_bytes(), table.paged_out_bytes()), (8192, 8192));
        for asked in [false, true] {
            assert_eq!(table.walk_by_nic(Page(6)), Walk::Out { asked });
        }
        assert_eq!(table.walk_by_nic(Page(1024)), Walk::Frame(Frame(60)));
        assert_eq!(table.walk(Page(5)), Frame(50), "the host knows what it keeps");
        assert!(table.load(0));
        assert_eq!(table.walk_by_nic(Page(5)), Walk::Frame(Frame(50)));
        table.page_out(0);
        assert_eq!(table.walk_by_nic(Page(5)), Walk::Out { asked: false });
        // The host changes tables in memory.
        assert_eq!(table.remove(Page(6)), Frame::GARBAGE);
        assert_eq!(table.paged_out_bytes(), 8192);
        assert_eq!(table.remove(Page(5)), Frame(50));
        assert_eq!((table.host_bytes(), table.paged_out_bytes()), (8192, 0));
    }

    #[test]
    fn of_a_limited_number_the_table_used_least_recently_is_paged_out() {
        let mut table = TranslationTable::with_most_tables(Some(2));
        table.install(Page(0), Frame(0)).unwrap();
        table.install(Page(1024), Frame(1)).unwrap();
        table.walk_by_nic(Page(7));
        table.install(Page(2048), Frame(2)).unwrap();
        assert_eq!(table.walk_by_nic(Page(1024)), Walk::Out { asked: false });
        assert_eq!(table.walk_by_nic(Page(0)), Walk::Frame(Frame(0)));
        assert!(table.load(1));
        assert_eq!(table.walk_by_nic(Page(2048)), Walk::Out { asked: false });
        assert_eq!(table.host_bytes(), 2 * 8192);
    }

    #[test]
    fn a_table_that_was_asked_for_stays_until_it_is_walked_or_nobody_comes_for_it() {
        let mut table = TranslationTable::with_most_tables(Some(1));
        for number in 0..3 {
            table.install(Page(number << 10), Frame(number)).unwrap();
        }
        for asked in [0, 1] {
            let walk = table.walk_by_nic(Page(asked << 10));
            assert_eq!(walk, Walk::Out { asked: false });
        }
        assert!(table.load(0) && table.load(1));
        assert_eq!(table.walk_by_nic(Page(0)), Walk::Frame(Frame(0)));
        assert_eq!(table.walk_by_nic(Page(1 << 10)), Walk::Frame(Frame(1)));
        table.walk_by_nic(Page(2 << 10));
        assert!(table.load(2));
        assert_eq!(table.host_bytes(), 8192);
        // Nobody walks it while others are loaded and paged out.
        for turn in 0..=AWAITED_FOR_LOADS {
            assert_eq!(table.walk_in_memory(Page(2 << 10)), Some(Frame(2)), "{turn}");
            assert!(table.load(turn % 2));
        }
        assert_eq!(table.walk_in_memory(Page(2 << 10)), None);
        assert_eq!(table.host_bytes(), 8192);
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_agrees_with_an_ordered_map(
            most in prop::option::of(1u32..4),
            ops in prop::collection::vec((0u64..6, 0u64..6, prop::option::of(0u64..9), 0u8..6), 0..300)
        ) {
            let mut table = TranslationTable::with_most_tables(most);
            let mut oracle = BTreeMap::new();
            for (high, low, frame, paging) in ops {
                let page = Page((high << 33) | (high << 10) | (low * 200));
                match paging {
                    0 => {
                        table.page_out(page.0 >> TABLE_SHIFT);
                    }
                    1 => {
                        table.load(page.0 >> TABLE_SHIFT);
                    }
                    _ => {}
                }
                match table.walk_by_nic(page) {
                    Walk::Frame(frame) => prop_assert_eq!(frame, oracle.get(&page).copied().unwrap_or(Frame::GARBAGE)),
                    Walk::Out { .. } => {
                        prop_assert!(table.load(page.0 >> TABLE_SHIFT));
                        let frame = oracle.get(&page).copied().unwrap_or(Frame::GARBAGE);
                        prop_assert_eq!(table.walk_by_nic(page), Walk::Frame(frame));
                    }
                }
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
                let tables: BTreeSet<_> = oracle.keys().map(|page| page.0 >> TABLE_SHIFT).collect();
                prop_assert_eq!(table.host_bytes() + table.paged_out_bytes(), tables.len() * TABLE_BYTES);
                prop_assert!(table.host_bytes() <= most.map_or(usize::MAX, |most| most as usize * TABLE_BYTES));
            }
            for (high, low) in (0..6).flat_map(|high| (0..6).map(move |low| (high, low))) {
                let page = Page((high << 33) | (high << 10) | (low * 200));
                prop_assert_eq!(table.walk(page), oracle.get(&page).copied().unwrap_or(Frame::GARBAGE));
            }
        }
    }
}
