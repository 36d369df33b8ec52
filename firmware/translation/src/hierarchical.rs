//! The hierarchical design (UTLB §3.3): processes name buffers by virtual address, and the NIC translates through one shared cache over a
//! two-level table for each process.

use crate::Counters;
use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::design::{HostRequest, Lookup, TranslationDesign, TranslationError};
use crate::opened::Opened;
use crate::page::{Frame, Page, Process};
use crate::table::{TABLE_ENTRIES, TranslationTable, Walk};

/// Shape of a [`Hierarchical`] design.
///
/// ```
/// use mapwire_translation::{CacheConfig, HierarchicalConfig};
/// let config = HierarchicalConfig::from(CacheConfig::default().with_entries(1024)).with_prefetch(8);
/// assert_eq!((config.cache.entries, config.prefetch), (1024, 8));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct HierarchicalConfig {
    /// The shared cache.
    pub cache: CacheConfig,
    /// Entries that a miss fetches: that of the missed page and those that follow it (UTLB §3.2), up to the end of the second-level table.
    /// From 1, the default, to [`TABLE_ENTRIES`].
    pub prefetch: u32,
    /// Most second-level tables of a process in memory; beyond that, the least recently used one is paged out (UTLB §3.3). `None`, the
    /// default, if all stay.
    pub tables_in_memory: Option<u32>,
}

impl Default for HierarchicalConfig {
    fn default() -> Self {
        CacheConfig::default().into()
    }
}

impl From<CacheConfig> for HierarchicalConfig {
    fn from(cache: CacheConfig) -> Self {
        HierarchicalConfig { cache, prefetch: 1, tables_in_memory: None }
    }
}

impl HierarchicalConfig {
    /// The same with another number of entries fetched by a miss.
    #[must_use]
    pub const fn with_prefetch(self, prefetch: u32) -> Self {
        HierarchicalConfig { prefetch, ..self }
    }

    /// The same with another number of second-level tables in memory.
    #[must_use]
    pub const fn with_tables_in_memory(self, tables_in_memory: Option<u32>) -> Self {
        HierarchicalConfig { tables_in_memory, ..self }
    }

    /// Checks that such a design can be built.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub const fn checked(self) -> Result<Self, CacheError> {
        let prefetch = self.prefetch;
        if prefetch == 0 || prefetch as usize > TABLE_ENTRIES {
            return Err(CacheError::Prefetch { prefetch });
        }
        if let Some(0) = self.tables_in_memory {
            return Err(CacheError::NoTables);
        }
        match self.cache.checked() {
            Ok(_) => Ok(self),
            Err(error) => Err(error),
        }
    }
}

/// UTLB §3.3. A hit reads one cache entry. A miss reads the directory in NIC memory, then one or several entries of a
/// second-level table in host memory, which fill the cache.
///
/// * A miss fetches the lines of the missed page and of those that are prefetched. They are entered in reverse order, so that the line of
///   the missed page becomes the most recently used; of the others, those already cached stay as they are.
/// * The garbage frame is never cached: a process that names unpinned pages takes no entry from the others, and a later `install` finds
///   nothing stale.
/// * A miss that needs a paged-out second-level table asks the host for it. Its translations in the cache stay there.
/// * The process list is as long as the highest process number that was opened.
#[derive(Clone, Debug)]
pub struct Hierarchical {
    cache: SharedCache,
    prefetch: u32,
    /// Whether a miss only fills one entry.
    simple: bool,
    tables_in_memory: Option<u32>,
    tables: Opened<TranslationTable>,
    counters: Counters,
}

impl Hierarchical {
    /// No process, an empty cache.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub fn new(config: impl Into<HierarchicalConfig>) -> Result<Self, CacheError> {
        let HierarchicalConfig { cache, prefetch, tables_in_memory } = config.into().checked()?;
        Ok(Hierarchical {
            cache: SharedCache::new(cache)?,
            prefetch,
            simple: prefetch == 1 && cache.line_entries == 1 && tables_in_memory.is_none(),
            tables_in_memory,
            tables: Opened::new(),
            counters: Counters::default(),
        })
    }

    /// The table of the process, for reports.
    pub fn table(&self, process: Process) -> Option<&TranslationTable> {
        self.tables.get(process)
    }

    /// `None` if the second-level table is not in memory.
    #[inline(never)]
    fn miss(&mut self, process: Process, page: Page) -> Option<Frame> {
        if self.simple
            && let Some(table) = self.tables.get(process)
            && let Some(frame) = table.walk_in_memory(page)
        {
            self.counters.nic_misses += 1;
            self.cache.fill(process, page, frame);
            return Some(frame);
        }
        self.miss_in_general(process, page)
    }

    #[inline(never)]
    fn miss_in_general(&mut self, process: Process, page: Page) -> Option<Frame> {
        let walked = match self.tables.get_mut(process) {
            Ok(table) => table.walk_by_nic(page),
            Err(_) => Walk::Frame(Frame::GARBAGE),
        };
        match walked {
            Walk::Frame(frame) => {
                self.counters.nic_misses += 1;
                if !frame.is_garbage() {
                    self.fetch(process, page);
                }
                Some(frame)
            }
            Walk::Out { asked } => {
                // It counts when it is asked again.
                self.counters.lookups -= 1;
                self.counters.interrupts += u64::from(!asked);
                None
            }
        }
    }

    /// Inserts what a miss of an installed page fetches.
    fn fetch(&mut self, process: Process, page: Page) {
        let Hierarchical { cache, tables, .. } = self;
        let Some(table) = tables.get(process) else {
            return;
        };
        let table_end = (page.0 / TABLE_ENTRIES as u64 + 1) * TABLE_ENTRIES as u64;
        let last = (page.0 + u64::from(self.prefetch)).min(table_end) - 1;
        cache.fetch(process, page, Page(last), |page| table.walk(page));
    }
}

impl TranslationDesign for Hierarchical {
    fn name(&self) -> &'static str {
        "hierarchical"
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        let fresh = TranslationTable::with_most_tables(self.tables_in_memory);
        self.tables.open(process, fresh)
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.tables.close(process)?;
        self.cache.invalidate_process(process);
        Ok(())
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        self.tables.get_mut(process)?.install(page, frame)?;
        self.cache.invalidate(process, page);
        Ok(())
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        self.tables.get_mut(process)?.remove(page);
        self.cache.invalidate(process, page);
        Ok(())
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        self.counters.lookups += 1;
        match self.cache.lookup(process, page) {
            Some(frame) => Lookup::Hit(frame),
            None => match self.miss(process, page) {
                Some(frame) => Lookup::Miss(frame),
                None => Lookup::Host(HostRequest::LoadTable { process, table: page.0 / TABLE_ENTRIES as u64 }),
            },
        }
    }

    #[inline]
    fn installed(&self, process: Process, page: Page) -> Frame {
        self.table(process).map_or(Frame::GARBAGE, |table| table.walk(page))
    }

    fn page_out(&mut self, process: Process, table: u64) -> bool {
        let tables = self.tables.get_mut(process);
        tables.is_ok_and(|tables| tables.page_out(table))
    }

    fn load_table(&mut self, process: Process, table: u64) -> bool {
        let tables = self.tables.get_mut(process);
        tables.is_ok_and(|tables| tables.load(table))
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        self.cache.peek(process, page).is_some()
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let directories = self.tables.iter().map(TranslationTable::directory_bytes).sum();
        [
            ("shared translation cache", self.cache.memory_bytes()),
            ("translation directories", directories),
            ("translation process list", self.tables.list_bytes()),
        ]
        .into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        self.tables.iter().map(TranslationTable::host_bytes).sum()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Op};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn design(entries: usize, offset: bool) -> Hierarchical {
        let config = CacheConfig::default().with_entries(entries).with_offset_per_process(offset);
        Hierarchical::new(config).unwrap()
    }

    #[test]
    fn it_conforms_with_the_default_cache() {
        conformance::suite(|| Hierarchical::new(CacheConfig::default()).unwrap());
    }

    #[test]
    fn it_conforms_when_all_processes_share_the_same_places() {
        conformance::suite(|| design(16, false));
    }

    #[test]
    fn it_conforms_with_a_cache_of_one_entry() {
        conformance::suite(|| design(1, true));
    }

    #[test]
    fn it_conforms_with_sets_of_lines_and_with_prefetch() {
        for (ways, line, prefetch) in [(4, 1, 1), (1, 4, 1), (2, 4, 8), (8, 1, 32), (16, 2, 3)] {
            let cache = CacheConfig::default().with_entries(32).with_ways(ways).with_line_entries(line);
            let config = HierarchicalConfig::from(cache).with_prefetch(prefetch);
            conformance::suite(|| Hierarchical::new(config).unwrap());
        }
    }

    #[test]
    fn a_miss_fetches_the_pages_that_follow_up_to_the_end_of_the_table() {
        let cache = CacheConfig::default().with_entries(8).with_offset_per_process(false);
        let mut nic = Hierarchical::new(HierarchicalConfig::from(cache).with_prefetch(4)).unwrap();
        let process = Process(0);
        nic.open(process).unwrap();
        for page in [1020, 1021, 1023, 1024, 1025] {
            nic.install(process, Page(page), Frame(page)).unwrap();
        }
        let trace = [
            (1021, false), // brings 1021 and 1023; 1022 is not pinned, 1024 is of the next table
            (1023, true),
            (1022, false), // not pinned: brings nothing
            (1024, false), // brings 1024 and 1025
            (1025, true),
            (1020, false), // brings 1020; 1021 and 1023 are there
            (1021, true),
        ];
        for (page, hit) in trace {
            assert_eq!(nic.lookup(process, Page(page)).is_hit(), hit, "page {page}");
        }
        assert_eq!(nic.counters().nic_misses, 4);
    }

    #[test]
    fn the_missed_page_is_never_evicted_by_what_is_fetched_with_it() {
        let cache = CacheConfig::default().with_entries(2).with_ways(2);
        let mut nic = Hierarchical::new(HierarchicalConfig::from(cache).with_prefetch(8)).unwrap();
        let process = Process(0);
        nic.open(process).unwrap();
        for page in 0..8 {
            nic.install(process, Page(page), Frame(page)).unwrap();
        }
        assert_eq!(nic.lookup(process, Page(0)), Lookup::Miss(Frame(0)));
        assert_eq!(nic.lookup(process, Page(0)), Lookup::Hit(Frame(0)));
        // Of the others, the adjacent one was entered last.
        assert_eq!(nic.lookup(process, Page(1)), Lookup::Hit(Frame(1)));
        assert_eq!(nic.lookup(process, Page(2)), Lookup::Miss(Frame(2)));
    }

    #[test]
    fn a_hand_computed_trace_gives_its_golden_counts() {
        // Four entries, no offset: page n lives in slot n % 4.
        let mut nic = design(4, false);
        let (a, b) = (Process(0), Process(1));
        nic.open(a).unwrap();
        nic.open(b).unwrap();
        for page in 0..6 {
            nic.install(a, Page(page), Frame(page)).unwrap();
            nic.install(b, Page(page), Frame(page + 100)).unwrap();
        }
        let trace = [
            (a, 0, false), // compulsory
            (a, 1, false), // compulsory
            (a, 0, true),
            (a, 4, false), // takes place 0 from page 0
            (a, 0, false), // conflict, takes it back
            (a, 1, true),
            (b, 1, false), // the other process takes place 1
            (a, 1, false), // and loses it again
            (b, 3, false), // compulsory
            (b, 3, true),
            (b, 9, false), // not pinned: a miss that takes no place
            (a, 1, true),
        ];
        for (step, (process, page, hit)) in trace.into_iter().enumerate() {
            assert_eq!(nic.lookup(process, Page(page)).is_hit(), hit, "step {step}");
        }
        assert_eq!(nic.counters(), Counters { lookups: 12, nic_misses: 8, ..Counters::default() });
    }

    #[test]
    fn a_table_that_is_out_is_asked_for_and_the_lookup_counts_once_it_is_in() {
        let mut nic = design(4, false);
        let process = Process(0);
        nic.open(process).unwrap();
        for page in [0, 1, 1024] {
            nic.install(process, Page(page), Frame(page)).unwrap();
        }
        assert_eq!(nic.lookup(process, Page(0)), Lookup::Miss(Frame(0)));
        assert!(nic.page_out(process, 0) && !nic.page_out(Process(1), 0));
        assert_eq!(nic.lookup(process, Page(0)), Lookup::Hit(Frame(0)));
        assert_eq!(nic.lookup(process, Page(1025)), Lookup::Miss(Frame::GARBAGE));
        let asked = Lookup::Host(HostRequest::LoadTable { process, table: 0 });
        assert_eq!(nic.lookup(process, Page(1)), asked);
        assert_eq!(nic.lookup(process, Page(1)), asked);
        assert!(nic.load_table(process, 0) && !nic.load_table(process, 0));
        assert_eq!(nic.lookup(process, Page(1)), Lookup::Miss(Frame(1)));
        let counters = nic.counters();
        let counted = (counters.lookups, counters.nic_misses, counters.interrupts);
        assert_eq!(counted, (4, 3, 1));
    }

    #[test]
    fn offsets_make_equal_pages_of_two_processes_coexist() {
        let misses = |offset| {
            let mut nic = design(1024, offset);
            for process in [Process(0), Process(1)] {
                nic.open(process).unwrap();
                for page in 0..100 {
                    nic.install(process, Page(page), Frame(page)).unwrap();
                }
            }
            for _ in 0..10 {
                for page in 0..100 {
                    nic.lookup(Process(0), Page(page));
                    nic.lookup(Process(1), Page(page));
                }
            }
            nic.counters().nic_misses
        };
        assert_eq!((misses(true), misses(false)), (200, 2000));
    }

    #[test]
    fn memory_is_charged_to_the_level_that_it_is_in() {
        let mut nic = design(8192, true);
        nic.open(Process(0)).unwrap();
        nic.open(Process(3)).unwrap();
        nic.install(Process(3), Page(0), Frame(0)).unwrap();
        let listed: Vec<_> = nic.nic_memory().collect();
        assert_eq!(listed[0], ("shared translation cache", 131_072));
        assert_eq!(listed[1], ("translation directories", 2048));
        assert_eq!(nic.host_memory_bytes(), 8192);
        nic.close(Process(3)).unwrap();
        assert_eq!(nic.host_memory_bytes(), 0);
    }

    fn op() -> impl Strategy<Value = Op> {
        let process = (0u16..3).prop_map(Process);
        let page = prop_oneof![0u64..40, 1020u64..1030, (1u64 << 35)..(1 << 35) + 5].prop_map(Page);
        (process, page, 0u64..1000, 0u8..20).prop_map(|(process, page, frame, kind)| match kind {
            0..2 => Op::Open(process),
            2 => Op::Close(process),
            3..9 => Op::Install(process, page, Frame(frame)),
            9..12 => Op::Remove(process, page),
            _ => Op::Lookup(process, page),
        })
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn any_sequence_of_requests_agrees_with_a_plain_map(
            shift in 0u32..7,
            offset in any::<bool>(),
            ops in prop::collection::vec(op(), 0..300),
        ) {
            conformance::agrees_with_oracle(&mut design(1 << shift, offset), &ops, 0);
        }
    }
}
