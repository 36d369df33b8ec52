//! A design chosen at run time.

use crate::Counters;
use crate::cache::CacheError;
use crate::design::{HandleLookup, Lookup, Pinning, TranslationDesign, TranslationError};
use crate::dynamic_handle::{DynamicHandle, DynamicHandleConfig};
use crate::hierarchical::{Hierarchical, HierarchicalConfig};
use crate::indexed::{Indexed, IndexedConfig};
use crate::interrupt::{Interrupt, InterruptConfig};
use crate::page::{Frame, Page, PageRange, Process};
use crate::per_process::{PerProcess, PerProcessConfig};
use alloc::vec::Vec;

/// Choice and shape of a design.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DesignConfig {
    /// [`Hierarchical`].
    Hierarchical(HierarchicalConfig),
    /// [`Indexed`].
    SharedCache(IndexedConfig),
    /// [`PerProcess`].
    PerProcess(PerProcessConfig),
    /// [`Interrupt`].
    Interrupt(InterruptConfig),
    /// [`DynamicHandle`].
    DynamicHandle(DynamicHandleConfig),
}

impl Default for DesignConfig {
    fn default() -> Self {
        DesignConfig::Hierarchical(HierarchicalConfig::default())
    }
}

impl DesignConfig {
    /// The design's name.
    pub const fn name(&self) -> &'static str {
        match self {
            DesignConfig::Hierarchical(_) => "hierarchical",
            DesignConfig::SharedCache(_) => "shared-cache",
            DesignConfig::PerProcess(_) => "per-process",
            DesignConfig::Interrupt(_) => "interrupt",
            DesignConfig::DynamicHandle(_) => "dynamic-handle",
        }
    }

    /// Every design in its default shape.
    pub fn all() -> [DesignConfig; 5] {
        [
            DesignConfig::Hierarchical(HierarchicalConfig::default()),
            DesignConfig::SharedCache(IndexedConfig::default()),
            DesignConfig::PerProcess(PerProcessConfig::default()),
            DesignConfig::Interrupt(InterruptConfig::default()),
            DesignConfig::DynamicHandle(DynamicHandleConfig::default()),
        ]
    }

    /// Checks that such a design can be built.
    ///
    /// # Errors
    /// Names the number that must be changed.
    pub fn checked(self) -> Result<Self, CacheError> {
        match &self {
            DesignConfig::Hierarchical(config) => config.checked().map(drop)?,
            DesignConfig::SharedCache(config) => config.checked().map(drop)?,
            DesignConfig::PerProcess(config) => config.checked().map(drop)?,
            DesignConfig::Interrupt(config) => config.checked().map(drop)?,
            DesignConfig::DynamicHandle(config) => config.checked().map(drop)?,
        }
        Ok(self)
    }
}

/// One of the designs. A call costs one branch more than the design's own.
///
/// ```
/// use mapwire_translation::{AnyDesign, CacheConfig, DesignConfig, TranslationDesign};
/// let config = DesignConfig::Hierarchical(CacheConfig::default().with_entries(1024).with_ways(4).into());
/// assert_eq!(AnyDesign::new(&config)?.name(), "hierarchical");
/// # Ok::<(), mapwire_translation::CacheError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "a NIC has one, and a box would cost each lookup a load")]
pub enum AnyDesign {
    /// UTLB §3.3.
    Hierarchical(Hierarchical),
    /// UTLB §3.2.
    Indexed(Indexed),
    /// UTLB §3.1.
    PerProcess(PerProcess),
    /// UTLB §6.2.
    Interrupt(Interrupt),
    /// Dynamic handle lookup §IV.
    DynamicHandle(DynamicHandle),
}

impl AnyDesign {
    /// The configured design, without processes.
    ///
    /// # Errors
    /// The cache cannot be built.
    pub fn new(config: &DesignConfig) -> Result<Self, CacheError> {
        Ok(match *config {
            DesignConfig::Hierarchical(config) => AnyDesign::Hierarchical(Hierarchical::new(config)?),
            DesignConfig::SharedCache(config) => AnyDesign::Indexed(Indexed::new(config)?),
            DesignConfig::PerProcess(config) => AnyDesign::PerProcess(PerProcess::new(config)?),
            DesignConfig::Interrupt(config) => AnyDesign::Interrupt(Interrupt::new(config)?),
            DesignConfig::DynamicHandle(config) => AnyDesign::DynamicHandle(DynamicHandle::new(config)?),
        })
    }
}

/// Calls the method of the chosen design.
macro_rules! each {
    ($design:expr, $inner:ident => $call:expr) => {
        match $design {
            AnyDesign::Hierarchical($inner) => $call,
            AnyDesign::Indexed($inner) => $call,
            AnyDesign::PerProcess($inner) => $call,
            AnyDesign::Interrupt($inner) => $call,
            AnyDesign::DynamicHandle($inner) => $call,
        }
    };
}

impl TranslationDesign for AnyDesign {
    fn name(&self) -> &'static str {
        each!(self, design => design.name())
    }

    fn open(&mut self, process: Process) -> Result<(), TranslationError> {
        each!(self, design => design.open(process))
    }

    fn close(&mut self, process: Process) -> Result<(), TranslationError> {
        each!(self, design => design.close(process))
    }

    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        each!(self, design => design.install(process, page, frame))
    }

    fn install_run(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), TranslationError> {
        each!(self, design => design.install_run(process, first, frames))
    }

    fn install_receive(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        each!(self, design => design.install_receive(process, page, frame))
    }

    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError> {
        each!(self, design => design.remove(process, page))
    }

    #[inline]
    fn lookup(&mut self, process: Process, page: Page) -> Lookup {
        each!(self, design => design.lookup(process, page))
    }

    #[inline]
    fn lookup_receive(&mut self, process: Process, page: Page) -> Lookup {
        each!(self, design => design.lookup_receive(process, page))
    }

    #[inline]
    fn lookup_buffer(&mut self, process: Process, buffer: u32) -> HandleLookup {
        each!(self, design => design.lookup_buffer(process, buffer))
    }

    #[inline]
    fn lookup_process(&mut self, process: Process) -> HandleLookup {
        each!(self, design => design.lookup_process(process))
    }

    fn pinning(&self) -> Pinning {
        each!(self, design => design.pinning())
    }

    fn pinning_receive(&self) -> Pinning {
        each!(self, design => design.pinning_receive())
    }

    fn drops_on_miss(&self) -> bool {
        each!(self, design => design.drops_on_miss())
    }

    fn unpins_evicted(&self) -> bool {
        each!(self, design => design.unpins_evicted())
    }

    fn capacity_pages(&self) -> Option<u64> {
        each!(self, design => design.capacity_pages())
    }

    fn high_water_pages(&self) -> Option<u64> {
        each!(self, design => design.high_water_pages())
    }

    fn fill(&mut self, process: Process, pages: PageRange, evicted: &mut Vec<(Process, Page)>) {
        each!(self, design => design.fill(process, pages, evicted));
    }

    fn displaced_by(&self, process: Process, page: Page) -> Option<(Process, Page)> {
        each!(self, design => design.displaced_by(process, page))
    }

    fn fill_buffer(&mut self, process: Process, buffer: u32) {
        each!(self, design => design.fill_buffer(process, buffer));
    }

    fn forget_buffer(&mut self, process: Process, buffer: u32) {
        each!(self, design => design.forget_buffer(process, buffer));
    }

    fn fill_process(&mut self, process: Process) {
        each!(self, design => design.fill_process(process));
    }

    fn page_out(&mut self, process: Process, table: u64) -> bool {
        each!(self, design => design.page_out(process, table))
    }

    fn load_table(&mut self, process: Process, table: u64) -> bool {
        each!(self, design => design.load_table(process, table))
    }

    fn is_cached(&self, process: Process, page: Page) -> bool {
        each!(self, design => design.is_cached(process, page))
    }

    fn installed(&self, process: Process, page: Page) -> Frame {
        each!(self, design => design.installed(process, page))
    }

    fn fragmented_pages(&self) -> u64 {
        each!(self, design => design.fragmented_pages())
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let listed: Vec<_> = each!(self, design => design.nic_memory().collect());
        listed.into_iter()
    }

    fn host_memory_bytes(&self) -> usize {
        each!(self, design => design.host_memory_bytes())
    }

    fn counters(&self) -> Counters {
        each!(self, design => design.counters())
    }
}
