//! A design whose NIC forgets: some lookups find nothing, and wait for the host.

use std::collections::BTreeSet;

use mapwire_translation::{
    CacheConfig, Counters, Frame, HandleLookup, Hierarchical, HostRequest, Lookup, Page, PageRange, Pinning, Process,
    TranslationDesign, TranslationError,
};

use super::random::Random;

/// The hierarchical design, whose NIC forgets what it looks up in `percent` of 100 cases.
#[derive(Clone, Debug)]
pub(crate) struct Forgetful {
    inner: Hierarchical,
    percent: u64,
    drops: bool,
    pinning: Pinning,
    random: Random,
    missing: BTreeSet<(Process, Page)>,
    missing_buffers: BTreeSet<u32>,
}

impl Forgetful {
    pub(crate) fn new(percent: u64, drops: bool, seed: u64) -> Self {
        let cache = CacheConfig::default().with_entries(64);
        Self {
            inner: Hierarchical::new(cache).unwrap(),
            percent,
            drops,
            pinning: Pinning::BeforeTransfer,
            random: Random::new(seed),
            missing: BTreeSet::new(),
            missing_buffers: BTreeSet::new(),
        }
    }

    /// From here on pages are pinned when they are missed: one that is not installed cannot be.
    pub(crate) fn pin_on_miss(&mut self) {
        self.pinning = Pinning::OnMiss;
    }

    pub(crate) fn forget(&mut self, process: u16, page: Page) {
        self.missing.insert((Process(process), page));
    }

    fn forgets(&mut self) -> bool {
        self.percent > 0 && self.random.below(100) < self.percent
    }
}

impl TranslationDesign for Forgetful {
    fn name(&self) -> &'static str {
        "forgetful"
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        self.inner.open(process)
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        self.missing.retain(|(of, _)| *of != process);
        self.inner.close(process)
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        self.inner.install(process, page, frame)
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        self.inner.remove(process, page)
    }

    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        if self.forgets() {
            self.missing.insert((process, page));
        }
        if self.missing.contains(&(process, page)) {
            let pages = PageRange::single(page);
            return Lookup::Host(HostRequest::Fill { process, pages, wanted: page });
        }
        self.inner.lookup(process, page)
    }

    fn lookup_buffer(&mut self, process: Process, buffer: u32) -> HandleLookup {
        if self.forgets() {
            self.missing_buffers.insert(buffer);
        }
        if self.missing_buffers.contains(&buffer) {
            return HandleLookup::Host(HostRequest::FillBuffer { process, buffer });
        }
        HandleLookup::Hit
    }

    fn pinning(&self) -> Pinning {
        self.pinning
    }

    fn drops_on_miss(&self) -> bool {
        self.drops
    }

    fn fill(&mut self, process: Process, pages: PageRange, _evicted: &mut Vec<(Process, Page)>) {
        for page in pages {
            self.missing.remove(&(process, page));
        }
    }

    fn fill_buffer(&mut self, _process: Process, buffer: u32) {
        self.missing_buffers.remove(&buffer);
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        self.inner.is_cached(process, page)
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        self.inner.installed(process, page)
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.inner.nic_memory()
    }

    fn host_memory_bytes(&self) -> usize {
        self.inner.host_memory_bytes()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
