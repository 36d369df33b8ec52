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

/// Methods that are those of whichever design it is.
macro_rules! forward {
    ($(fn $name:ident(&mut self $(, $given:ident: $of:ty)*) $(-> $answer:ty)?;)*) => {
        $(#[inline]
        fn $name(&mut self $(, $given: $of)*) $(-> $answer)? {
            each!(self, design => design.$name($($given),*))
        })*
    };
    ($(fn $name:ident(&self $(, $given:ident: $of:ty)*) $(-> $answer:ty)?;)*) => {
        $(fn $name(&self $(, $given: $of)*) $(-> $answer)? {
            each!(self, design => design.$name($($given),*))
        })*
    };
}

impl TranslationDesign for AnyDesign {
    forward! {
        fn open(&mut self, process: Process) -> Result<(), TranslationError>;
        fn close(&mut self, process: Process) -> Result<(), TranslationError>;
        fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError>;
        fn install_run(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), TranslationError>;
        fn install_receive(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError>;
        fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError>;
        fn lookup(&mut self, process: Process, page: Page) -> Lookup;
        fn lookup_receive(&mut self, process: Process, page: Page) -> Lookup;
        fn lookup_buffer(&mut self, process: Process, buffer: u32) -> HandleLookup;
        fn lookup_process(&mut self, process: Process) -> HandleLookup;
        fn fill(&mut self, process: Process, pages: PageRange, evicted: &mut Vec<(Process, Page)>);
        fn fill_buffer(&mut self, process: Process, buffer: u32);
        fn forget_buffer(&mut self, process: Process, buffer: u32);
        fn fill_process(&mut self, process: Process);
        fn page_out(&mut self, process: Process, table: u64) -> bool;
        fn load_table(&mut self, process: Process, table: u64) -> bool;
    }
    forward! {
        fn name(&self) -> &'static str;
        fn pinning(&self) -> Pinning;
        fn pinning_receive(&self) -> Pinning;
        fn drops_on_miss(&self) -> bool;
        fn unpins_evicted(&self) -> bool;
        fn capacity_pages(&self) -> Option<u64>;
        fn high_water_pages(&self) -> Option<u64>;
        fn displaced_by(&self, process: Process, page: Page) -> Option<(Process, Page)>;
        fn is_cached(&self, process: Process, page: Page) -> bool;
        fn installed(&self, process: Process, page: Page) -> Frame;
        fn fragmented_pages(&self) -> u64;
        fn host_memory_bytes(&self) -> usize;
        fn counters(&self) -> Counters;
    }

    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let listed: Vec<_> = each!(self, design => design.nic_memory().collect());
        listed.into_iter()
    }
}
