//! The shared cache over user-managed tables (UTLB §3.2): the library names pages by the index of their entry in its process's table,
//! which is in host memory and has no fixed size; the NIC caches entries of all tables.

use crate::Counters;
use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::design::{Lookup, TranslationDesign, TranslationError};
use crate::opened::Opened;
use crate::page::{Frame, Page, Process};
use crate::slots::SlotTable;
use crate::table::TABLE_ENTRIES;

/// Most entries that a miss fetches: as many as with tables of two levels.
pub const MAX_PREFETCH: u32 = TABLE_ENTRIES as u32;

/// Shape of an [`Indexed`] design.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct IndexedConfig {
    /// The shared cache. Its sets and lines consist of table entries, not pages: pass [`CacheConfig::set_of`] the index.
    pub cache: CacheConfig,
    /// Entries that a miss fetches: the missed one and those that follow it in the table. From 1, the default, to [`MAX_PREFETCH`].
    pub prefetch: u32,
}

impl Default for IndexedConfig {
    fn default() -> Self {
        CacheConfig::default().into()
    }
}

impl From<CacheConfig> for IndexedConfig {
    fn from(cache: CacheConfig) -> Self {
        IndexedConfig { cache, prefetch: 1 }
    }
}

impl IndexedConfig {
    /// The same with another number of entries fetched by a miss.
    #[must_use]
    pub const fn with_prefetch(self, prefetch: u32) -> Self {
        IndexedConfig { prefetch, ..self }
    }

    /// Checks that such a design can be built.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub const fn checked(self) -> Result<Self, CacheError> {
        let prefetch = self.prefetch;
        if prefetch == 0 || prefetch > MAX_PREFETCH {
            return Err(CacheError::Prefetch { prefetch });
        }
        match self.cache.checked() {
            Ok(_) => Ok(self),
            Err(error) => Err(error),
        }
    }
}

/// UTLB §3.2. Both halves: the library's tree from page to index, and the NIC's cache with the tables behind it. A hit reads two
/// words of the tree and one cache entry; a miss reads one or several entries of a table in host memory besides.
///
/// * A page that is not pinned has no index. Its lookup is a miss that fills nothing.
/// * What a miss fetches is inserted as in [`Hierarchical`](crate::Hierarchical), by index: adjacent entries of the table may belong to
///   distant pages.
#[derive(Clone, Debug)]
pub struct Indexed {
    cache: SharedCache,
    prefetch: u32,
    processes: Opened<SlotTable>,
    counters: Counters,
}

impl Indexed {
    /// No process, an empty cache.
    ///
    /// # Errors
    /// The cache cannot be built, or the prefetch is too large.
    pub fn new(config: impl Into<IndexedConfig>) -> Result<Self, CacheError> {
        let IndexedConfig { cache, prefetch } = config.into().checked()?;
        Ok(Indexed {
            cache: SharedCache::new(cache)?,
            prefetch,
            processes: Opened::new(),
            counters: Counters::default(),
        })
    }

    /// The index of the page's entry in the table of its process.
    pub fn index_of(&self, process: Process, page: Page) -> Option<u32> {
        self.processes.get(process)?.peek_slot(page)
    }

    #[inline(never)]
    fn miss(&mut self, process: Process, index: Option<u32>) -> Frame {
        self.counters.nic_misses += 1;
        let (Some(table), Some(index)) = (self.processes.get(process), index) else {
            return Frame::GARBAGE;
        };
        let frame_of = |entry: Page| table.frame(entry.0 as u32);
        let entry = Page(u64::from(index));
        let last = (index.saturating_add(self.prefetch - 1)).min(table.slots().max(1) - 1);
        self.cache.fetch(process, entry, Page(u64::from(last)), frame_of);
        table.frame(index)
    }
}

impl TranslationDesign for Indexed {
    fn name(&self) -> &'static str {
        "shared-cache"
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        self.processes.open(process, SlotTable::growing())
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.processes.close(process)?;
        self.cache.invalidate_process(process);
        Ok(())
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        if frame.is_garbage() {
            return self.remove(process, page);
        }
        self.install_run(process, page, &[frame])
    }

    fn install_run(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), TranslationError> {
        let Indexed { cache, processes, .. } = self;
        let table = processes.get_mut(process)?;
        let done = table.install_run(first, frames, |slot| {
            cache.invalidate(process, Page(u64::from(slot)));
        })?;
        done.map_err(|full| full.of(process, u32::MAX))
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        if let Some(slot) = self.processes.get_mut(process)?.remove(page) {
            self.cache.invalidate(process, Page(u64::from(slot)));
        }
        Ok(())
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        self.counters.lookups += 1;
        let table = self.processes.get_mut(process).ok();
        let index = table.and_then(|table| table.slot(page));
        let cached = index.and_then(|index| self.cache.lookup(process, Page(u64::from(index))));
        match cached {
            Some(frame) => Lookup::Hit(frame),
            None => Lookup::Miss(self.miss(process, index)),
        }
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        let index = self.index_of(process, page);
        let cached = |index| self.cache.peek(process, Page(u64::from(index)));
        index.and_then(cached).is_some()
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        self.processes.frame_of(process, page)
    }

    fn fragmented_pages(&self) -> u64 {
        self.processes.fragmented_pages()
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        [
            ("shared translation cache", self.cache.memory_bytes()),
            ("translation process list", self.processes.list_bytes()),
        ]
        .into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        let of_each = |table: &SlotTable| table.tree_bytes() + table.table_bytes();
        self.processes.iter().map(of_each).sum()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
