//! Dynamic handle lookup: tables on the host hold the translations of all pinned pages, and the NIC caches those in use, of sends and
//! receives alike; a miss drops the request or packet, and the host loads the line.

mod handles;

pub use handles::{CBH_ENTRY_BYTES, PCH_ENTRY_BYTES};

use self::handles::HandleCache;
use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::counters::Counters;
use crate::design::{HandleLookup, HostRequest, Lookup, Pinning, TranslationDesign, TranslationError};
use crate::opened::Opened;
use crate::page::{Frame, PAGE_BYTES, Page, PageRange, Process};
use crate::pin_map::PinMap;
use crate::table::TranslationTable;
use crate::waiting::{Asking, Waiting};
use alloc::vec::Vec;

/// Shape of a [`DynamicHandle`] design.
///
/// ```
/// use mapwire_translation::DynamicHandleConfig;
/// let config = DynamicHandleConfig::default();
/// assert_eq!((config.cache.entries, config.cache.line_entries, config.cache.ways), (16384, 64, 4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct DynamicHandleConfig {
    /// The cache of translations, VMH. By default 16 K entries, lines of 64, 4 ways, which dynamic handle lookup §V.C found best, and no
    /// offset: the paper mentions none.
    pub cache: CacheConfig,
    /// Entries of the cache of buffers, CBH: a power of two, 1024 by default. Four ways.
    pub cbh_entries: usize,
    /// Entries of the cache of processes, PCH: a power of two, 64 by default. Four ways.
    pub pch_entries: usize,
    /// Bytes of pinned pages of a process above which pages that have left the cache are unpinned from time to time; `None`, the default,
    /// if they stay pinned.
    pub high_water_bytes: Option<u64>,
}

impl Default for DynamicHandleConfig {
    fn default() -> Self {
        DynamicHandleConfig {
            cache: CacheConfig { entries: 16384, ways: 4, line_entries: 64, offset_per_process: false },
            cbh_entries: 1024,
            pch_entries: 64,
            high_water_bytes: None,
        }
    }
}

impl DynamicHandleConfig {
    /// The same with another cache of translations.
    #[must_use]
    pub const fn with_cache(self, cache: CacheConfig) -> Self {
        DynamicHandleConfig { cache, ..self }
    }

    /// The same with other numbers of cached buffers and processes.
    #[must_use]
    pub const fn with_handles(self, cbh_entries: usize, pch_entries: usize) -> Self {
        DynamicHandleConfig { cbh_entries, pch_entries, ..self }
    }

    /// The same with another high-water mark.
    #[must_use]
    pub const fn with_high_water_bytes(self, high_water_bytes: Option<u64>) -> Self {
        DynamicHandleConfig { high_water_bytes, ..self }
    }

    /// Checks that such a design can be built.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub const fn checked(self) -> Result<Self, CacheError> {
        let caches = [self.cache, handles::shape(self.cbh_entries), handles::shape(self.pch_entries)];
        let mut at = 0;
        while at < caches.len() {
            if let Err(error) = caches[at].checked() {
                return Err(error);
            }
            at += 1;
        }
        Ok(self)
    }
}

/// The host's tables of a process.
#[derive(Clone, Debug)]
struct Tables {
    /// The VMH table: all pinned pages.
    vmh: TranslationTable,
    /// Lines, by number, that have been requested.
    seen: PinMap,
}

/// Dynamic handle lookup §IV. A hit reads the tags of a set and one entry.
///
/// * The least recently used line of a set is evicted without informing the host: its pages stay pinned (§IV.B).
/// * The host pins all pages of a line that it can; the others have no translation.
/// * Buffers and processes have caches of their own; their data is in the NIC's export and process tables.
#[derive(Clone, Debug)]
pub struct DynamicHandle {
    cache: SharedCache,
    buffers: HandleCache,
    process_handles: HandleCache,
    processes: Opened<Tables>,
    waiting: Waiting,
    high_water_pages: Option<u64>,
    counters: Counters,
}

impl DynamicHandle {
    /// No process, empty caches.
    ///
    /// # Errors
    /// The cache cannot be built.
    pub fn new(config: DynamicHandleConfig) -> Result<Self, CacheError> {
        let config = config.checked()?;
        Ok(DynamicHandle {
            cache: SharedCache::new(config.cache)?,
            buffers: HandleCache::new(config.cbh_entries)?,
            process_handles: HandleCache::new(config.pch_entries)?,
            processes: Opened::new(),
            waiting: Waiting::default(),
            high_water_pages: config.high_water_bytes.map(|bytes| bytes / PAGE_BYTES as u64),
            counters: Counters::default(),
        })
    }

    #[inline(never)]
    fn miss(&mut self, process: Process, page: Page, receives: bool) -> Lookup {
        let Ok(tables) = self.processes.get_mut(process) else {
            return self.miss_nowhere();
        };
        if !page.in_address_space() {
            return self.miss_nowhere();
        }
        let line = self.cache.line_of(page);
        match self.waiting.ask(process, line, page, self.counters.nic_misses) {
            Asking::Refused => {
                self.counters.lookups += 1;
                return Lookup::Hit(Frame::GARBAGE);
            }
            Asking::New => {
                self.counters.nic_misses += 1;
                self.counters.interrupts += 1;
                let number = Page(line.first.0 / line.count);
                // A page of the address space has a line that can be marked.
                let cold = tables.seen.set(PageRange::single(number)) == Ok(1);
                let handles = &mut self.counters.handles;
                *match (receives, cold) {
                    (false, true) => &mut handles.send_cold_misses,
                    (false, false) => &mut handles.send_other_misses,
                    (true, true) => &mut handles.receive_cold_misses,
                    (true, false) => &mut handles.receive_other_misses,
                } += 1;
            }
            Asking::Again => {}
        }
        Lookup::Host(HostRequest::Fill { process, pages: line, wanted: page })
    }

    /// A miss of a page that nobody can pin.
    fn miss_nowhere(&mut self) -> Lookup {
        self.counters.lookups += 1;
        self.counters.nic_misses += 1;
        Lookup::Miss(Frame::GARBAGE)
    }

    #[inline(always)]
    fn lookup_for(&mut self, process: Process, page: Page, receives: bool) -> Lookup {
        match self.cache.lookup(process, page) {
            Some(frame) => {
                self.counters.lookups += 1;
                Lookup::Hit(frame)
            }
            None => self.miss(process, page, receives),
        }
    }
}

impl TranslationDesign for DynamicHandle {
    fn name(&self) -> &'static str {
        "dynamic-handle"
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        let fresh = Tables { vmh: TranslationTable::new(), seen: PinMap::new() };
        self.processes.open(process, fresh)
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.processes.close(process)?;
        self.cache.invalidate_process(process);
        self.buffers.forget_process(process);
        self.process_handles.forget(Process(0), u32::from(process.0));
        self.waiting.forget(process);
        Ok(())
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        self.processes.get_mut(process)?.vmh.install(page, frame)?;
        self.cache.invalidate(process, page);
        Ok(())
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        self.processes.get_mut(process)?.vmh.remove(page);
        self.cache.invalidate(process, page);
        Ok(())
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        self.lookup_for(process, page, false)
    }

    #[inline]
    fn lookup_receive(&mut self, process: Process, page: Page) -> Lookup {
        self.lookup_for(process, page, true)
    }

    fn lookup_buffer(&mut self, process: Process, buffer: u32) -> HandleLookup {
        let handles = &mut self.counters.handles;
        let counts = (&mut handles.buffer_lookups, &mut handles.buffer_misses);
        self.buffers.lookup(process, buffer, HostRequest::FillBuffer { process, buffer }, counts)
    }

    fn lookup_process(&mut self, process: Process) -> HandleLookup {
        let handles = &mut self.counters.handles;
        let counts = (&mut handles.process_lookups, &mut handles.process_misses);
        let request = HostRequest::FillProcess { process };
        self.process_handles.lookup(Process(0), u32::from(process.0), request, counts)
    }

    fn pinning(&self) -> Pinning {
        Pinning::OnMiss
    }

    fn drops_on_miss(&self) -> bool {
        true
    }

    fn high_water_pages(&self) -> Option<u64> {
        self.high_water_pages
    }

    fn fill(&mut self, process: Process, pages: PageRange, evicted: &mut Vec<(Process, Page)>) {
        let DynamicHandle { cache, processes, waiting, counters, .. } = self;
        let Ok(Tables { vmh, .. }) = processes.get_mut(process) else {
            return;
        };
        let mut next = pages.first;
        while pages.contains(next) {
            cache.fill_line(process, next, |page| vmh.walk(page), |process, page| evicted.push((process, page)));
            next = cache.line_of(next).end();
        }
        waiting.answer(process, pages, counters.nic_misses, |page| !vmh.walk(page).is_garbage());
    }

    fn fill_buffer(&mut self, process: Process, buffer: u32) {
        self.buffers.fill(process, buffer);
    }

    fn forget_buffer(&mut self, process: Process, buffer: u32) {
        self.buffers.forget(process, buffer);
    }

    fn fill_process(&mut self, process: Process) {
        if self.processes.get(process).is_some() {
            self.process_handles.fill(Process(0), u32::from(process.0));
        }
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        self.cache.peek(process, page).is_some()
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        let tables = self.processes.get(process);
        tables.map_or(Frame::GARBAGE, |tables| tables.vmh.walk(page))
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        [
            ("VMH cache", self.cache.memory_bytes()),
            ("CBH cache", self.buffers.entries() * CBH_ENTRY_BYTES),
            ("PCH cache", self.process_handles.entries() * PCH_ENTRY_BYTES),
        ]
        .into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        let of_each =
            |tables: &Tables| tables.vmh.host_bytes() + tables.vmh.directory_bytes() + tables.seen.memory_bytes();
        self.processes.iter().map(of_each).sum()
    }

    fn counters(&self) -> Counters {
        let Counters { interrupts, handles, .. } = self.counters;
        let interrupts = interrupts + handles.buffer_misses + handles.process_misses;
        Counters { interrupts, ..self.counters }
    }
}
