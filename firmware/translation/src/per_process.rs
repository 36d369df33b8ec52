//! A table of fixed size for each process in NIC memory (UTLB §3.1): the library chooses the entries, and has pages unpinned when the
//! table is full.

use crate::Counters;
use crate::cache::CacheError;
use crate::design::{Lookup, TranslationDesign, TranslationError};
use crate::opened::Opened;
use crate::page::{Frame, Page, Process};
use crate::slots::SlotTable;

/// Most entries of a table.
pub const MAX_TABLE_ENTRIES: usize = 1 << 28;

/// Shape of a [`PerProcess`] design.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PerProcessConfig {
    /// Entries of each process's table, from 1 to [`MAX_TABLE_ENTRIES`]. UTLB names no size; the default is 2048, for 8 MiB of its memory.
    pub entries: usize,
}

impl Default for PerProcessConfig {
    fn default() -> Self {
        PerProcessConfig { entries: 2048 }
    }
}

impl PerProcessConfig {
    /// The same with another number of entries.
    #[must_use]
    pub const fn with_entries(self, entries: usize) -> Self {
        let PerProcessConfig { .. } = self;
        PerProcessConfig { entries }
    }

    /// Checks that such a design can be built.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub const fn checked(self) -> Result<Self, CacheError> {
        match self.entries {
            1..=MAX_TABLE_ENTRIES => Ok(self),
            entries => Err(CacheError::Table { entries }),
        }
    }
}

/// UTLB §3.1. Both halves: the library's tree from page to entry, and the NIC's tables. There is no cache, and so no miss in the NIC: the
/// library unpins pages before the transfer if [`capacity_pages`](TranslationDesign::capacity_pages) says that the table is full. A page
/// that is not pinned has no entry; a vacant entry has the garbage frame.
#[derive(Clone, Debug)]
pub struct PerProcess {
    entries: usize,
    processes: Opened<SlotTable>,
    counters: Counters,
}

impl PerProcess {
    /// Without processes.
    ///
    /// # Errors
    /// The tables cannot be built.
    pub fn new(config: PerProcessConfig) -> Result<Self, CacheError> {
        let PerProcessConfig { entries } = config.checked()?;
        Ok(PerProcess { entries, processes: Opened::new(), counters: Counters::default() })
    }

    /// The entry of the page in the table of its process.
    pub fn index_of(&self, process: Process, page: Page) -> Option<u32> {
        self.processes.get(process)?.peek_slot(page)
    }
}

impl TranslationDesign for PerProcess {
    fn name(&self) -> &'static str {
        "per-process"
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        if self.processes.get(process).is_some() {
            return Err(TranslationError::AlreadyOpen(process));
        }
        let table = SlotTable::fixed(self.entries as u32);
        self.processes.open(process, table)
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.processes.close(process).map(drop)
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        if frame.is_garbage() {
            return self.remove(process, page);
        }
        self.install_run(process, page, &[frame])
    }

    fn install_run(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), TranslationError> {
        let entries = self.entries as u32;
        let table = self.processes.get_mut(process)?;
        let done = table.install_run(first, frames, |_| ())?;
        done.map_err(|full| full.of(process, entries))
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        self.processes.get_mut(process)?.remove(page);
        Ok(())
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        self.counters.lookups += 1;
        let table = self.processes.get_mut(process).ok();
        let frame = table.and_then(|table| {
            let slot = table.slot(page)?;
            Some(table.frame(slot))
        });
        Lookup::Hit(frame.unwrap_or(Frame::GARBAGE))
    }

    fn capacity_pages(&self) -> Option<u64> {
        Some(self.entries as u64)
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        self.index_of(process, page).is_some()
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        self.processes.frame_of(process, page)
    }

    fn fragmented_pages(&self) -> u64 {
        self.processes.fragmented_pages()
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let tables = self.processes.iter().map(SlotTable::table_bytes).sum();
        [("translation tables", tables), ("translation process list", self.processes.list_bytes())].into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        self.processes.iter().map(SlotTable::tree_bytes).sum()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
