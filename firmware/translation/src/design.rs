//! What every translation design can do: the NIC's side of translation.

use crate::{Counters, Frame, Page, Process, RangeError};

/// The NIC's answer to "where does this page live?".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Where DMA goes. [`Frame::GARBAGE`] if the page is not pinned.
    pub frame: Frame,
    /// Whether the NIC's cache had it. A miss costs a read of host memory.
    pub hit: bool,
}

/// A request that a design refuses; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TranslationError {
    /// No table belongs to the process.
    #[error("{0} has no translation table; open the process first")]
    NotOpen(Process),
    /// The process has a table.
    #[error("{0} already has a translation table; close it before opening it anew")]
    AlreadyOpen(Process),
    /// The page can never be translated.
    #[error(transparent)]
    Range(#[from] RangeError),
}

/// A translation design, as the NIC uses it.
///
/// * Set up by the driver: [`open`](Self::open), [`close`](Self::close).
/// * Kept up to date by the driver: [`install`](Self::install) after a page has been pinned,
///   [`remove`](Self::remove) *before* it is unpinned, so that the NIC never holds the frame of an unpinned page.
/// * Used on the way of a transfer: [`lookup`](Self::lookup).
/// * Getters: [`installed`](Self::installed), [`counters`](Self::counters), [`nic_memory`](Self::nic_memory),
///   [`host_memory_bytes`](Self::host_memory_bytes).
///
/// The suite in `conformance` (feature `conformance`) says the same as tests.
pub trait TranslationDesign {
    /// The name by which users choose the design.
    const NAME: &'static str;

    /// Gives the process an empty table.
    fn open(&mut self, process: Process) -> Result<(), TranslationError>;

    /// Forgets the process and every translation of it.
    fn close(&mut self, process: Process) -> Result<(), TranslationError>;

    /// Records that `page` of `process` is pinned as `frame`, in place of any earlier frame. Installing
    /// [`Frame::GARBAGE`] is removing.
    fn install(
        &mut self,
        process: Process,
        page: Page,
        frame: Frame,
    ) -> Result<(), TranslationError>;

    /// Forgets the frame of `page`, in every table and cache. A page that has none stays without.
    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError>;

    /// Where `page` lives. Never fails: an unpinned page, a page outside the address space and a process that is
    /// not open all give the garbage frame (UTLB §4.2).
    fn lookup(&mut self, process: Process, page: Page) -> Lookup;

    /// The frame under which `page` is installed, the garbage frame if it is not: what [`lookup`](Self::lookup) would
    /// find, asked by the host. Counts nothing and leaves every cache as it is.
    fn installed(&self, process: Process, page: Page) -> Frame;

    /// Every structure in NIC memory by name, with its bytes: what a memory budget charges.
    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)>;

    /// Bytes of host memory that the tables of all processes take.
    fn host_memory_bytes(&self) -> usize;

    /// Lookups and misses since the start, of all processes.
    fn counters(&self) -> Counters;
}
