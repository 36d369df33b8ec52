//! The user-managed table of the indexed designs (UTLB §3.1): the library chooses the slot of a page's translation, and finds it again
//! through a two-level tree from page to slot.
//!
//! Slots are chosen so that a buffer stays contiguous: behind the preceding page's slot, before the following page's, else in the first
//! gap that fits the whole run. Only if there is none is the run spread over the first gaps, which causes fragments (UTLB §3.3).

use crate::design::TranslationError;
use crate::leaves::Leaves;
use crate::opened::Opened;
use crate::page::{Frame, Page, PageRange, Process, RangeError};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const LEAF_PAGES: usize = 512;
const LEAF_SHIFT: u32 = LEAF_PAGES.trailing_zeros();
const NO_SLOT: u32 = u32::MAX;

/// Slots for all pages that a growing table can have.
const MANY_SLOTS: u32 = u32::MAX - 1;

impl Full {
    pub(crate) fn of(self, process: Process, entries: u32) -> TranslationError {
        TranslationError::TableFull { process, needed_pages: self.needed_pages, entries: u64::from(entries) }
    }
}

/// One process's tree and table.
#[derive(Clone, Debug)]
pub(crate) struct SlotTable {
    slot_of: Leaves<u32, LEAF_PAGES>,
    frames: Vec<Frame>,
    /// Gaps below the first slot that was never used: first slot and length.
    gaps: BTreeMap<u32, u32>,
    /// First slot that was never used.
    fresh: u32,
    limit: u32,
    installed: u64,
    fragmented: u64,
}

/// There are more pages than free slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    pub needed_pages: u64,
}

impl SlotTable {
    /// A table that grows as needed.
    pub(crate) fn growing() -> Self {
        SlotTable {
            slot_of: Leaves::new(NO_SLOT),
            frames: Vec::new(),
            gaps: BTreeMap::new(),
            fresh: 0,
            limit: MANY_SLOTS,
            installed: 0,
            fragmented: 0,
        }
    }

    /// A table of this many slots, all allocated at once.
    pub(crate) fn fixed(slots: u32) -> Self {
        SlotTable {
            frames: alloc::vec![Frame::GARBAGE; slots as usize],
            limit: slots.min(MANY_SLOTS),
            ..Self::growing()
        }
    }

    #[inline]
    pub(crate) fn slot(&mut self, page: Page) -> Option<u32> {
        let base = self.slot_of.find(page.0 >> LEAF_SHIFT)?;
        let slot = self.slot_of.cells()[base + page_in_leaf(page)];
        (slot != NO_SLOT).then_some(slot)
    }

    pub(crate) fn peek_slot(&self, page: Page) -> Option<u32> {
        let base = self.slot_of.peek(page.0 >> LEAF_SHIFT)?;
        let slot = self.slot_of.cells()[base + page_in_leaf(page)];
        (slot != NO_SLOT).then_some(slot)
    }

    #[inline]
    pub(crate) fn frame(&self, slot: u32) -> Frame {
        let frame = self.frames.get(slot as usize);
        frame.copied().unwrap_or(Frame::GARBAGE)
    }

    /// Number of slots that the table has memory for.
    pub(crate) fn slots(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Stores the frames of consecutive pages in their slots; pages without a slot get one. Calls `written` with each slot. The frames
    /// must not include the garbage frame.
    pub(crate) fn install_run(
        &mut self,
        first: Page,
        frames: &[Frame],
        mut written: impl FnMut(u32),
    ) -> Result<Result<(), Full>, RangeError> {
        let count = frames.len() as u64;
        let run = PageRange { first, count }.in_address_space()?;
        let missing = run.iter().filter(|page| self.slot(*page).is_none()).count() as u64;
        if missing > u64::from(self.limit) - self.installed {
            return Ok(Err(Full { needed_pages: missing }));
        }
        let mut at = 0;
        while at < frames.len() {
            let page = Page(first.0 + at as u64);
            if let Some(slot) = self.slot(page) {
                self.frames[slot as usize] = frames[at];
                written(slot);
                at += 1;
                continue;
            }
            let rest = PageRange { first: page, count: count - at as u64 };
            let without = rest.iter().take_while(|page| self.peek_slot(*page).is_none());
            let piece = without.count() as u32;
            let (slot, length) = self.choose(page, piece);
            self.take(slot, length);
            for (n, frame) in frames[at..at + length as usize].iter().enumerate() {
                self.enter(Page(page.0 + n as u64), slot + n as u32, *frame);
                written(slot + n as u32);
            }
            at += length as usize;
        }
        Ok(Ok(()))
    }

    /// Frees and returns the page's slot.
    pub(crate) fn remove(&mut self, page: Page) -> Option<u32> {
        let slot = self.slot(page)?;
        self.fragmented -= self.breaks(page);
        let base = self.slot_of.find(page.0 >> LEAF_SHIFT)?;
        self.slot_of.cells_mut()[base + page_in_leaf(page)] = NO_SLOT;
        self.slot_of.vacate(base, 1);
        self.installed -= 1;
        self.frames[slot as usize] = Frame::GARBAGE;
        self.give_back(slot);
        Some(slot)
    }

    /// Number of pages whose slot does not follow that of the preceding page, if that has one.
    pub(crate) fn fragmented_pages(&self) -> u64 {
        self.fragmented
    }

    /// Size of the tree, in bytes.
    pub(crate) fn tree_bytes(&self) -> usize {
        self.slot_of.memory_bytes()
    }

    /// Size of the table, in bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.frames.len() * size_of::<Frame>()
    }

    /// Consecutive free slots for `count` pages from `first` on, or for as many as fit in the first gap.
    fn choose(&self, first: Page, count: u32) -> (u32, u32) {
        let before = first.0.checked_sub(1).and_then(|n| self.peek_slot(Page(n)));
        if let Some(slot) = before.map(|slot| slot + 1)
            && self.free_from(slot) >= count
        {
            return (slot, count);
        }
        let behind = self.peek_slot(Page(first.0 + u64::from(count)));
        if let Some(slot) = behind.and_then(|slot| slot.checked_sub(count))
            && self.free_from(slot) >= count
        {
            return (slot, count);
        }
        if let Some((&slot, _)) = self.gaps.iter().find(|gap| *gap.1 >= count) {
            return (slot, count);
        }
        if self.limit - self.fresh >= count {
            return (self.fresh, count);
        }
        let gap = self.gaps.iter().next();
        gap.map_or((self.fresh, count.min(self.limit - self.fresh)), |gap| (*gap.0, *gap.1))
    }

    /// Number of consecutive free slots from this one on.
    fn free_from(&self, slot: u32) -> u32 {
        let in_gap = match self.gaps.range(..=slot).next_back() {
            Some((&first, &length)) => (first + length).saturating_sub(slot),
            None => 0,
        };
        // No gap touches the never-used slots: it would have been merged with them.
        match slot {
            slot if slot == self.fresh => self.limit - slot,
            _ => in_gap,
        }
    }

    fn take(&mut self, slot: u32, count: u32) {
        let end = slot + count;
        if slot == self.fresh {
            self.fresh = end;
            if self.frames.len() < end as usize {
                self.frames.resize(end as usize, Frame::GARBAGE);
            }
            return;
        }
        let Some((&first, &length)) = self.gaps.range(..=slot).next_back() else {
            return;
        };
        self.gaps.remove(&first);
        if first < slot {
            self.gaps.insert(first, slot - first);
        }
        if first + length > end {
            self.gaps.insert(end, first + length - end);
        }
    }

    /// Frees a slot; merges adjacent gaps.
    fn give_back(&mut self, slot: u32) {
        let (mut first, mut end) = (slot, slot + 1);
        if let Some((&before, &length)) = self.gaps.range(..slot).next_back()
            && before + length == slot
        {
            self.gaps.remove(&before);
            first = before;
        }
        if let Some(length) = self.gaps.remove(&end) {
            end += length;
        }
        if end == self.fresh {
            self.fresh = first;
        } else {
            self.gaps.insert(first, end - first);
        }
    }

    fn enter(&mut self, page: Page, slot: u32, frame: Frame) {
        let base = self.slot_of.find_or_add(page.0 >> LEAF_SHIFT);
        self.slot_of.cells_mut()[base + page_in_leaf(page)] = slot;
        self.slot_of.occupy(base, 1);
        self.frames[slot as usize] = frame;
        self.installed += 1;
        self.fragmented += self.breaks(page);
    }

    /// How many of the page and its successor are not adjacent to their predecessor's slot.
    fn breaks(&self, page: Page) -> u64 {
        let apart = |page: u64| {
            let one = page.checked_sub(1).and_then(|n| self.peek_slot(Page(n)));
            let two = self.peek_slot(Page(page));
            matches!((one, two), (Some(one), Some(two)) if one + 1 != two)
        };
        u64::from(apart(page.0)) + u64::from(apart(page.0 + 1))
    }
}

#[inline(always)]
fn page_in_leaf(page: Page) -> usize {
    page.0 as usize % LEAF_PAGES
}

impl Opened<SlotTable> {
    /// The frame in the page's slot; the garbage frame if it has none.
    pub(crate) fn frame_of(&self, process: Process, page: Page) -> Frame {
        let table = self.get(process);
        let found = table.and_then(|table| Some(table.frame(table.peek_slot(page)?)));
        found.unwrap_or(Frame::GARBAGE)
    }

    /// Pages of all tables that are not adjacent to their predecessor's slot.
    pub(crate) fn fragmented_pages(&self) -> u64 {
        self.iter().map(SlotTable::fragmented_pages).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn install(table: &mut SlotTable, first: u64, count: u64) -> Vec<u32> {
        let frames: Vec<_> = (first..first + count).map(Frame).collect();
        let mut slots = Vec::new();
        let done = table.install_run(Page(first), &frames, |slot| slots.push(slot));
        done.unwrap().unwrap();
        slots
    }

    #[test]
    fn a_buffer_that_is_pinned_piece_by_piece_stays_in_one_piece() {
        let mut table = SlotTable::growing();
        assert_eq!(install(&mut table, 10, 2), [0, 1]);
        assert_eq!(install(&mut table, 12, 1), [2]);
        assert_eq!(install(&mut table, 50, 3), [3, 4, 5]);
        // Behind 12 there is no room; pages 13 and 14 begin a fragment of their own.
        assert_eq!(install(&mut table, 13, 2), [6, 7]);
        assert_eq!(table.fragmented_pages(), 1);
        table.remove(Page(50));
        table.remove(Page(51));
        // Before 52, which has slot 5.
        assert_eq!(install(&mut table, 50, 2), [3, 4]);
        assert_eq!(table.fragmented_pages(), 1);
    }

    #[test]
    fn the_first_gap_that_takes_the_whole_run_is_chosen_and_only_else_is_it_spread() {
        let mut table = SlotTable::fixed(10);
        for page in 0..10 {
            assert_eq!(install(&mut table, page * 100, 1), [page as u32]);
        }
        for page in [1, 3, 4, 7, 8, 9] {
            table.remove(Page(page * 100));
        }
        assert_eq!(install(&mut table, 5000, 2), [3, 4]);
        assert_eq!(install(&mut table, 6000, 3), [7, 8, 9]);
        table.remove(Page(6001));
        assert_eq!(install(&mut table, 7000, 2), [1, 8]);
        assert_eq!(table.fragmented_pages(), 1);
        let full = table.install_run(Page(1), &[Frame(1)], |_| ()).unwrap();
        assert_eq!(full, Err(Full { needed_pages: 1 }));
    }

    /// A naive model, page by page and slot by slot.
    struct Naive {
        slot_of: BTreeMap<u64, u32>,
        limit: u32,
    }

    impl Naive {
        fn free(&self, slot: i64) -> bool {
            let taken = self.slot_of.values().any(|taken| i64::from(*taken) == slot);
            (0..i64::from(self.limit)).contains(&slot) && !taken
        }

        fn gap(&self, slot: i64) -> i64 {
            (slot..).take_while(|slot| self.free(*slot)).count() as i64
        }

        fn choose(&self, first: u64, count: i64) -> (i64, i64) {
            let slot = |page| self.slot_of.get(&page).map(|slot| i64::from(*slot));
            let before = first.checked_sub(1).and_then(slot).map(|slot| slot + 1);
            let behind = slot(first + count as u64).map(|slot| slot - count);
            let everywhere = 0..i64::from(self.limit);
            let beside = [before, behind].into_iter().flatten().chain(everywhere.clone());
            let whole = beside.into_iter().find(|slot| self.gap(*slot) >= count);
            whole.map(|slot| (slot, count)).unwrap_or_else(|| {
                let first = everywhere.into_iter().find(|slot| self.free(*slot)).unwrap();
                (first, self.gap(first))
            })
        }

        fn install(&mut self, first: u64, count: u64) -> bool {
            let mut missing: Vec<_> = (first..first + count).filter(|page| !self.slot_of.contains_key(page)).collect();
            if self.slot_of.len() + missing.len() > self.limit as usize {
                return false;
            }
            while let Some(&page) = missing.first() {
                let piece = missing.iter().zip(page..).take_while(|(one, two)| *one == two).count();
                let (slot, length) = self.choose(page, piece as i64);
                for n in 0..length {
                    self.slot_of.insert(page + n as u64, (slot + n) as u32);
                }
                missing.drain(..length as usize);
            }
            true
        }

        fn fragmented(&self) -> u64 {
            let apart = |(page, slot): (&u64, &u32)| {
                let before = page.checked_sub(1).and_then(|page| self.slot_of.get(&page));
                before.is_some_and(|before| before + 1 != *slot)
            };
            self.slot_of.iter().filter(|it| apart(*it)).count() as u64
        }
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn slots_are_chosen_as_a_search_of_all_slots_would(
            limit in 4u32..40,
            ops in prop::collection::vec((0u64..60, 1u64..8, any::<bool>()), 0..120),
        ) {
            let mut table = SlotTable::fixed(limit);
            let mut naive = Naive { slot_of: BTreeMap::new(), limit };
            for (first, count, install) in ops {
                if install {
                    let frames: Vec<_> = (first..first + count).map(|page| Frame(page * 2)).collect();
                    let done = table.install_run(Page(first), &frames, |_| ()).unwrap();
                    prop_assert_eq!(done.is_ok(), naive.install(first, count));
                } else {
                    for page in first..first + count {
                        prop_assert_eq!(table.remove(Page(page)), naive.slot_of.remove(&page));
                    }
                }
                prop_assert_eq!(table.fragmented_pages(), naive.fragmented());
                for page in 0..70 {
                    prop_assert_eq!(table.slot(Page(page)), naive.slot_of.get(&page).copied());
                }
                let used: BTreeSet<_> = naive.slot_of.values().copied().collect();
                for slot in 0..limit {
                    prop_assert_eq!(table.frame(slot).is_garbage(), !used.contains(&slot));
                }
            }
            prop_assert!(table.frame(limit).is_garbage());
        }
    }
}
