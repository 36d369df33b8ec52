//! The table of a region's pages: 16 bytes each, in an array without reserved memory.
//!
//! An array, not a two-level table: the kernel's page tables are those levels already, and an untouched part costs nothing but address
//! space. Accessed under the pager's lock only.

use core::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::sparse::Sparse;

/// Bytes of an entry: one word with state, flags and index, and one with the checksum.
const ENTRY_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageState {
    /// Not in RAM or the store: all zeros, or as in its file.
    Empty,
    /// Mapped. The index is its position in the clock.
    Resident,
    /// Unmapped, in a frame of the pool. The index is its slot.
    Victim,
    /// Only in the backing store.
    Stored,
    /// Some thread works on it. Index and flags are as before.
    Busy,
    /// It could not be fetched: accesses raise SIGBUS.
    Poisoned,
}

const STATES: [PageState; 6] =
    [PageState::Empty, PageState::Resident, PageState::Victim, PageState::Stored, PageState::Busy, PageState::Poisoned];

/// The store has a copy with the checksum of the entry. The page itself may have changed since, unless it is stored.
pub(crate) const COPY: u64 = 1 << 4;
/// A page of a file: the file had bytes with the checksum of the entry. The page itself may have changed since, unless it is empty. Not
/// with [`COPY`].
pub(crate) const ORIGINAL: u64 = 1 << 9;
/// Read-ahead brought it, and nothing tells that it was used.
pub(crate) const AHEAD: u64 = 1 << 6;
/// The clock hand spares it once.
pub(crate) const REFERENCED: u64 = 1 << 7;
/// A thread sleeps on a fault until the page is no longer busy.
pub(crate) const WAITED: u64 = 1 << 8;

/// The first word of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) fn new(state: PageState) -> Self {
        Self(state as u64)
    }

    pub(crate) fn state(self) -> PageState {
        // The state's four bits come from `PageState` alone.
        STATES[(self.0 & 15) as usize % STATES.len()]
    }

    pub(crate) fn in_state(self, state: PageState) -> Self {
        Self(self.0 & !15 | state as u64)
    }

    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn with(self, flags: u64) -> Self {
        Self(self.0 | flags)
    }

    pub(crate) fn with_if(self, flags: u64, condition: bool) -> Self {
        if condition { self.with(flags) } else { self }
    }

    pub(crate) fn without(self, flags: u64) -> Self {
        Self(self.0 & !flags)
    }

    pub(crate) fn index(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn at(self, index: u32) -> Self {
        Self(self.0 & 0xffff_ffff | u64::from(index) << 32)
    }
}

/// The entries of one region. All are empty at first.
#[derive(Debug)]
pub(crate) struct PageTable {
    entries: Sparse,
}

impl PageTable {
    pub(crate) fn new(pages: usize) -> Result<Self, Errno> {
        let bytes = pages.checked_mul(ENTRY_BYTES).ok_or(Errno::NOMEM)?;
        Ok(Self { entries: Sparse::new(bytes)? })
    }

    pub(crate) fn get(&self, page: u64) -> Entry {
        let word = self.entries.word(page as usize * ENTRY_BYTES);
        Entry(word.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, page: u64, entry: Entry) {
        let word = self.entries.word_mut(page as usize * ENTRY_BYTES);
        word.store(entry.0, Ordering::Relaxed);
    }

    pub(crate) fn checksum(&self, page: u64) -> u64 {
        let word = self.entries.word(page as usize * ENTRY_BYTES + 8);
        word.load(Ordering::Relaxed)
    }

    pub(crate) fn set_checksum(&self, page: u64, sum: u64) {
        let word = self.entries.word_mut(page as usize * ENTRY_BYTES + 8);
        word.store(sum, Ordering::Relaxed);
    }

    /// In a forked child, which has no page in RAM: makes each page stored, if the store has a copy, or empty. Returns the number of
    /// stored pages, and the pages that the parent had lost.
    pub(crate) fn inherit(&self) -> (usize, Vec<u64>) {
        let (mut stored, mut lost) = (0, Vec::new());
        for bytes in self.entries.written() {
            for page in bytes.start / ENTRY_BYTES..bytes.end / ENTRY_BYTES {
                let page = page as u64;
                let before = self.get(page);
                let entry = match before.state() {
                    PageState::Poisoned => {
                        lost.push(page);
                        before
                    }
                    // Busy pages, too, have their flag as before.
                    _ if before.has(COPY) => {
                        stored += 1;
                        Entry::new(PageState::Stored).with(COPY)
                    }
                    _ => Entry::new(PageState::Empty).with_if(ORIGINAL, before.has(ORIGINAL)),
                };
                // Pages written to are no longer shared with the parent.
                if entry != before {
                    self.set(page, entry);
                }
            }
        }
        (stored, lost)
    }

    #[cfg(test)]
    pub(crate) fn address_range(&self) -> core::ops::Range<usize> {
        self.entries.address_range()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_state_flags_and_index_apart() {
        for state in STATES {
            let entry = Entry::new(PageState::Empty).with(COPY | WAITED).at(u32::MAX).in_state(state);
            assert_eq!(entry.state(), state);
            assert!(entry.has(COPY) && entry.has(WAITED) && !entry.has(AHEAD));
            assert_eq!(entry.index(), u32::MAX);
            assert!(!entry.without(COPY).at(3).has(COPY));
        }
    }

    #[test]
    fn pages_are_empty_until_set() {
        let table = PageTable::new(1 << 24).unwrap();
        assert_eq!(table.get((1 << 24) - 1), Entry::new(PageState::Empty));
        table.set(77, Entry::new(PageState::Stored).at(5));
        table.set_checksum(77, 9);
        assert_eq!(table.get(77).index(), 5);
        assert_eq!((table.checksum(77), table.checksum(76)), (9, 0));
        assert_eq!(table.get(78).state(), PageState::Empty);
    }

    #[test]
    fn a_child_inherits_what_has_a_copy_and_what_is_lost() {
        let table = PageTable::new(1 << 24).unwrap();
        for (page, state, flags) in [
            (0, PageState::Resident, COPY | AHEAD),
            (1, PageState::Resident, REFERENCED),
            (2, PageState::Victim, COPY),
            (3, PageState::Busy, COPY | WAITED),
            (4, PageState::Poisoned, 0),
            ((1 << 24) - 1, PageState::Stored, COPY),
        ] {
            table.set(page, Entry::new(state).with(flags).at(3));
        }
        assert_eq!(table.inherit(), (4, vec![4]));
        for page in [0, 2, 3, (1 << 24) - 1] {
            let entry = table.get(page);
            assert!(entry.state() == PageState::Stored && entry.has(COPY) && !entry.has(WAITED));
        }
        assert_eq!(table.get(1), Entry::new(PageState::Empty));
        assert_eq!(table.get(4).state(), PageState::Poisoned);
    }
}
