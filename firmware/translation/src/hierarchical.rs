//! The hierarchical design (UTLB §3.3): processes name buffers by virtual address, and the NIC translates through
//! one shared cache over a two-level table for each process.

use crate::Counters;
use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::design::{Lookup, TranslationDesign, TranslationError};
use crate::page::{Frame, Page, Process};
use crate::table::TranslationTable;
use alloc::vec::Vec;

/// UTLB §3.3. A hit reads one cache entry. A miss reads the directory in NIC memory, then one entry of a
/// second-level table in host memory, which fills the cache.
///
/// The garbage frame is never cached: a process that names unpinned pages takes no entry from the others, and
/// `install` has no stale entry to mend.
#[derive(Clone, Debug)]
pub struct Hierarchical {
    cache: SharedCache,
    tables: Vec<Option<TranslationTable>>,
    lookups: u64,
    misses: u64,
}

impl Hierarchical {
    /// No process, an empty cache.
    ///
    /// # Errors
    /// A cache that cannot be built.
    pub fn new(config: CacheConfig) -> Result<Self, CacheError> {
        Ok(Hierarchical {
            cache: SharedCache::new(config)?,
            tables: Vec::new(),
            lookups: 0,
            misses: 0,
        })
    }

    /// The table of the process, to report on.
    pub fn table(&self, process: Process) -> Option<&TranslationTable> {
        self.tables.get(usize::from(process.0))?.as_ref()
    }

    fn table_mut(&mut self, process: Process) -> Result<&mut TranslationTable, TranslationError> {
        let table = self
            .tables
            .get_mut(usize::from(process.0))
            .and_then(Option::as_mut);
        table.ok_or(TranslationError::NotOpen(process))
    }

    #[inline(never)]
    fn miss(&mut self, process: Process, page: Page) -> Lookup {
        self.misses += 1;
        let frame = self
            .table(process)
            .map_or(Frame::GARBAGE, |table| table.walk(page));
        if !frame.is_garbage() {
            self.cache.fill(process, page, frame);
        }
        Lookup { frame, hit: false }
    }
}

impl TranslationDesign for Hierarchical {
    const NAME: &'static str = "hierarchical";

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        let at = usize::from(process.0);
        if self.tables.len() <= at {
            self.tables.resize(at + 1, None);
        }
        match &mut self.tables[at] {
            Some(_) => Err(TranslationError::AlreadyOpen(process)),
            free => {
                *free = Some(TranslationTable::new());
                Ok(())
            }
        }
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.table_mut(process)?;
        self.tables[usize::from(process.0)] = None;
        self.cache.invalidate_process(process);
        Ok(())
    }

    fn install(
        &mut self,
        process: Process,
        page: Page,
        frame: Frame,
    ) -> Result<(), TranslationError> {
        self.table_mut(process)?.install(page, frame)?;
        self.cache.invalidate(process, page);
        Ok(())
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        self.table_mut(process)?.remove(page);
        self.cache.invalidate(process, page);
        Ok(())
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        self.lookups += 1;
        match self.cache.lookup(process, page) {
            Some(frame) => Lookup { frame, hit: true },
            None => self.miss(process, page),
        }
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let directories = self
            .tables
            .iter()
            .flatten()
            .map(TranslationTable::directory_bytes)
            .sum();
        let processes = self.tables.len() * size_of::<Option<TranslationTable>>();
        [
            ("shared translation cache", self.cache.memory_bytes()),
            ("translation directories", directories),
            ("translation process list", processes),
        ]
        .into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        self.tables
            .iter()
            .flatten()
            .map(TranslationTable::host_bytes)
            .sum()
    }

    fn counters(&self) -> Counters {
        Counters {
            lookups: self.lookups,
            nic_misses: self.misses,
            ..Counters::default()
        }
    }
}
