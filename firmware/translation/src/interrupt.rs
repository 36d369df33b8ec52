//! The baseline of UTLB §6.2: every NIC miss interrupts the host, which pins the page and passes on the translation; a page whose
//! translation leaves the NIC is unpinned.

use crate::Counters;
use crate::cache::{CacheConfig, CacheError, SharedCache};
use crate::design::{HostRequest, Lookup, Pinning, TranslationDesign, TranslationError};
use crate::opened::Opened;
use crate::page::{Frame, PAGE_NUMBER_END, Page, PageRange, Process};
use crate::table::TranslationTable;
use crate::waiting::{Asking, Waiting};
use alloc::vec::Vec;

/// Most pages that one interrupt requests.
pub const MAX_FILL_PAGES: u32 = 512;

/// Shape of an [`Interrupt`] design.
///
/// ```
/// use mapwire_translation::InterruptConfig;
/// assert_eq!(InterruptConfig::default().fill_pages, 1);
/// assert_eq!((InterruptConfig::VMMC.cache.entries, InterruptConfig::VMMC.cache.ways), (2048, 2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct InterruptConfig {
    /// The cache: one for all processes, or one for each. Its lines have one entry.
    pub cache: CacheConfig,
    /// Whether each process has a cache of its own. Off by default.
    pub cache_per_process: bool,
    /// Pages that an interrupt requests: the missed one and those that follow it. From 1, the default, to [`MAX_FILL_PAGES`].
    pub fill_pages: u32,
}

impl Default for InterruptConfig {
    fn default() -> Self {
        InterruptConfig { cache: CacheConfig::default(), cache_per_process: false, fill_pages: 1 }
    }
}

impl InterruptConfig {
    /// The first VMMC on Myrinet (VMMC §4.5): a two-way software TLB for each process, for 8 MiB of its memory; an interrupt fills up to
    /// 32 translations.
    pub const VMMC: InterruptConfig = InterruptConfig {
        cache: CacheConfig { entries: 2048, ways: 2, line_entries: 1, offset_per_process: true },
        cache_per_process: true,
        fill_pages: 32,
    };

    /// The same with another cache.
    #[must_use]
    pub const fn with_cache(self, cache: CacheConfig) -> Self {
        InterruptConfig { cache, ..self }
    }

    /// The same with another number of pages that an interrupt requests.
    #[must_use]
    pub const fn with_fill_pages(self, fill_pages: u32) -> Self {
        InterruptConfig { fill_pages, ..self }
    }

    /// Checks that such a design can be built.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub const fn checked(self) -> Result<Self, CacheError> {
        let InterruptConfig { cache, fill_pages, .. } = self;
        if fill_pages == 0 || fill_pages > MAX_FILL_PAGES {
            return Err(CacheError::Fill { fill_pages });
        }
        if cache.line_entries != 1 {
            return Err(CacheError::Line { line_entries: cache.line_entries, entries: 1 });
        }
        match cache.checked() {
            Ok(_) => Ok(self),
            Err(error) => Err(error),
        }
    }
}

#[derive(Clone, Debug)]
struct Tables {
    /// The host's own record of what it has pinned and passed on.
    sent: TranslationTable,
    /// Exported pages, in NIC memory, so that a receive never waits.
    exported: TranslationTable,
    /// `None` in a design with a shared cache.
    cache: Option<SharedCache>,
}

/// UTLB §6.2. A hit reads one cache entry. A miss interrupts the host, whatever it has pinned.
///
/// * Receives are translated by a table in NIC memory with all exported pages: they never miss.
/// * The pages that an interrupt requests are inserted in reverse order, so that the missed one becomes the most recently used; those
///   already in the cache stay as they are.
#[derive(Clone, Debug)]
pub struct Interrupt {
    config: InterruptConfig,
    /// `None` in a design with a cache for each process.
    shared: Option<SharedCache>,
    processes: Opened<Tables>,
    waiting: Waiting,
    counters: Counters,
}

impl Interrupt {
    /// No process, an empty cache.
    ///
    /// # Errors
    /// The cache cannot be built, or the fill is too large.
    pub fn new(config: InterruptConfig) -> Result<Self, CacheError> {
        let config = config.checked()?;
        let shared = match config.cache_per_process {
            true => None,
            false => Some(SharedCache::new(config.cache)?),
        };
        Ok(Interrupt {
            config,
            shared,
            processes: Opened::new(),
            waiting: Waiting::default(),
            counters: Counters::default(),
        })
    }

    #[inline]
    fn cache_mut(&mut self, process: Process) -> Option<&mut SharedCache> {
        match &mut self.shared {
            Some(cache) => Some(cache),
            None => self.processes.get_mut(process).ok()?.cache.as_mut(),
        }
    }

    fn cache(&self, process: Process) -> Option<&SharedCache> {
        match &self.shared {
            Some(cache) => Some(cache),
            None => self.processes.get(process)?.cache.as_ref(),
        }
    }

    #[inline(never)]
    fn miss(&mut self, process: Process, page: Page) -> Lookup {
        if !page.in_address_space() || self.processes.get(process).is_none() {
            self.counters.lookups += 1;
            self.counters.nic_misses += 1;
            return Lookup::Miss(Frame::GARBAGE);
        }
        let pages = PageRange { first: page, count: u64::from(self.config.fill_pages).min(PAGE_NUMBER_END - page.0) };
        match self.waiting.ask(process, pages, page, self.counters.nic_misses) {
            Asking::Refused => {
                self.counters.lookups += 1;
                return Lookup::Hit(Frame::GARBAGE);
            }
            Asking::New => {
                self.counters.nic_misses += 1;
                self.counters.interrupts += 1;
            }
            Asking::Again => {}
        }
        Lookup::Host(HostRequest::Fill { process, pages, wanted: page })
    }
}

impl TranslationDesign for Interrupt {
    fn name(&self) -> &'static str {
        "interrupt"
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        let cache = match self.shared {
            Some(_) => None,
            // The shape has been checked.
            None => SharedCache::new(self.config.cache).ok(),
        };
        let fresh = Tables { sent: TranslationTable::new(), exported: TranslationTable::new(), cache };
        self.processes.open(process, fresh)
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.processes.close(process)?;
        if let Some(cache) = &mut self.shared {
            cache.invalidate_process(process);
        }
        self.waiting.forget(process);
        Ok(())
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        self.processes.get_mut(process)?.sent.install(page, frame)?;
        if let Some(cache) = self.cache_mut(process) {
            cache.invalidate(process, page);
        }
        Ok(())
    }

    fn install_receive(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        Ok(self.processes.get_mut(process)?.exported.install(page, frame)?)
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        let tables = self.processes.get_mut(process)?;
        tables.sent.remove(page);
        tables.exported.remove(page);
        if let Some(cache) = self.cache_mut(process) {
            cache.invalidate(process, page);
        }
        Ok(())
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        let cache = self.cache_mut(process);
        match cache.and_then(|cache| cache.lookup(process, page)) {
            Some(frame) => {
                self.counters.lookups += 1;
                Lookup::Hit(frame)
            }
            None => self.miss(process, page),
        }
    }

    fn lookup_receive(&mut self, process: Process, page: Page) -> Lookup {
        self.counters.lookups += 1;
        let tables = self.processes.get(process);
        Lookup::Hit(tables.map_or(Frame::GARBAGE, |tables| tables.exported.walk(page)))
    }

    fn pinning(&self) -> Pinning {
        Pinning::OnMiss
    }

    fn pinning_receive(&self) -> Pinning {
        Pinning::BeforeTransfer
    }

    fn unpins_evicted(&self) -> bool {
        true
    }

    fn fill(&mut self, process: Process, pages: PageRange, evicted: &mut Vec<(Process, Page)>) {
        let Interrupt { shared, processes, waiting, counters, .. } = self;
        let Ok(Tables { sent, cache, .. }) = processes.get_mut(process) else {
            return;
        };
        if let Some(cache) = shared.as_mut().or(cache.as_mut()) {
            for page in pages.iter().rev() {
                if cache.peek(process, page).is_none() {
                    cache.fill_evicting(process, page, sent.walk(page), |process, page| {
                        evicted.push((process, page));
                    });
                }
            }
        }
        waiting.answer(process, pages, counters.nic_misses, |page| !sent.walk(page).is_garbage());
    }

    fn displaced_by(&self, process: Process, page: Page) -> Option<(Process, Page)> {
        self.cache(process)?.displaced_by(process, page)
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        let cache = self.cache(process);
        cache.is_some_and(|cache| cache.peek(process, page).is_some())
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        let Some(tables) = self.processes.get(process) else {
            return Frame::GARBAGE;
        };
        match tables.sent.walk(page) {
            Frame::GARBAGE => tables.exported.walk(page),
            frame => frame,
        }
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let own: usize =
            self.processes.iter().filter_map(|tables| tables.cache.as_ref()).map(SharedCache::memory_bytes).sum();
        let shared = self.shared.as_ref().map_or(0, SharedCache::memory_bytes);
        let exported =
            self.processes.iter().map(|tables| tables.exported.directory_bytes() + tables.exported.host_bytes()).sum();
        [
            ("translation cache", shared + own),
            ("translations of exports", exported),
            ("translation process list", self.processes.list_bytes()),
        ]
        .into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        self.processes.iter().map(|tables| tables.sent.host_bytes() + tables.sent.directory_bytes()).sum()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
