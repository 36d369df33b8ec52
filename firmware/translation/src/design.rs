//! The NIC's side of translation: the interface of every design.

use crate::{Counters, Frame, Page, PageRange, Process, RangeError};
use alloc::vec::Vec;

/// The NIC's answer to "where does this page live?".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// Found in the NIC's own memory. [`Frame::GARBAGE`] if the page is not pinned.
    Hit(Frame),
    /// Found in a table in host memory, at the cost of a read. [`Frame::GARBAGE`] if the page is not pinned.
    Miss(Frame),
    /// The host must act first. Ask again once it has; a lookup counts when it returns a frame.
    Host(HostRequest),
}

impl Lookup {
    /// The frame for DMA; `None` if the host must act first.
    #[inline]
    pub const fn frame(self) -> Option<Frame> {
        match self {
            Lookup::Hit(frame) | Lookup::Miss(frame) => Some(frame),
            Lookup::Host(_) => None,
        }
    }

    /// Whether the NIC's own memory had it.
    #[inline]
    pub const fn is_hit(self) -> bool {
        matches!(self, Lookup::Hit(_))
    }
}

/// The NIC's answer to "do you have what you need of this buffer or process?" (dynamic handle lookup §IV: CBH and PCH).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleLookup {
    /// The NIC has it.
    Hit,
    /// The host must bring it in first. Ask again then.
    Host(HostRequest),
}

/// A request of the NIC to the host, for [`HostSide::serve`](crate::HostSide::serve).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HostRequest {
    /// Pin those of these pages that are not pinned, install them, and tell the NIC.
    Fill {
        /// Process that owns the pages.
        process: Process,
        /// Pages to pin: `wanted` matters most, then the first ones.
        pages: PageRange,
        /// Page that was looked up.
        wanted: Page,
    },
    /// Bring a second-level table back into memory (UTLB §3.3).
    LoadTable {
        /// Process that owns the table.
        process: Process,
        /// Number of the table: page number / 1024.
        table: u64,
    },
    /// Bring in what the NIC must know of a buffer.
    FillBuffer {
        /// Process that exported it.
        process: Process,
        /// Number of the buffer.
        buffer: u32,
    },
    /// Bring in what the NIC must know of a process.
    FillProcess { process: Process },
}

impl HostRequest {
    /// The process that the request concerns.
    #[inline]
    pub const fn process(self) -> Process {
        match self {
            HostRequest::Fill { process, .. }
            | HostRequest::LoadTable { process, .. }
            | HostRequest::FillBuffer { process, .. }
            | HostRequest::FillProcess { process } => process,
        }
    }
}

/// When the pages of a transfer are pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinning {
    /// Before it starts: the library checks them, and has those pinned that are not (UTLB §3).
    BeforeTransfer,
    /// The host pins them when the NIC misses (UTLB §6.2, dynamic handle lookup §IV).
    OnMiss,
}

/// Why a design refused a request; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TranslationError {
    /// The process has no table.
    #[error("{0} has no translation table; open the process first")]
    NotOpen(Process),
    /// The process already has a table.
    #[error("{0} already has a translation table; close it before opening it anew")]
    AlreadyOpen(Process),
    /// The page can never be translated.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The process's table has a fixed size.
    #[error(
        "{needed_pages} more pages do not fit into the translation table of {process}, which has {entries} entries; remove \
         others first, or choose more entries"
    )]
    TableFull {
        /// Process that owns the table.
        process: Process,
        /// Number of pages to install.
        needed_pages: u64,
        /// Entries of the table.
        entries: u64,
    },
}

/// A translation design, as the NIC uses it.
///
/// * Set up by the driver: [`open`](Self::open), [`close`](Self::close).
/// * Kept up to date by the driver: [`install`](Self::install) after a page has been pinned,
///   [`remove`](Self::remove) *before* it is unpinned, so that the NIC never holds the frame of an unpinned page.
/// * Called during a transfer: [`lookup`](Self::lookup) and [`lookup_receive`](Self::lookup_receive). If one returns [`Lookup::Host`], the
///   host does what is asked and tells the NIC: [`fill`](Self::fill), [`load_table`](Self::load_table).
/// * Requirements on the library: [`pinning`](Self::pinning), [`capacity_pages`](Self::capacity_pages).
/// * Getters: [`installed`](Self::installed), [`counters`](Self::counters), [`nic_memory`](Self::nic_memory),
///   [`host_memory_bytes`](Self::host_memory_bytes).
///
/// The suite in `tests/conformance` says the same as tests.
///
/// # What is counted
///
/// A lookup counts once, when it returns a frame. [`Lookup::Miss`] counts a NIC miss. [`Lookup::Host`] counts an interrupt, and a NIC miss
/// if it requests a translation; a repeated request counts nothing.
pub trait TranslationDesign {
    /// Name by which users select the design.
    fn name(&self) -> &'static str;

    /// Gives the process an empty table.
    fn open(&mut self, process: Process) -> Result<(), TranslationError>;

    /// Removes the process and all its translations.
    fn close(&mut self, process: Process) -> Result<(), TranslationError>;

    /// Records that `page` of `process` is pinned as `frame`, replacing any earlier frame. Installing [`Frame::GARBAGE`] removes the page.
    fn install(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError>;

    /// [`install`](Self::install) of consecutive pages from `first` on: designs whose table has slots keep them together. On an error none
    /// is installed that was not before.
    fn install_run(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), TranslationError> {
        let mut page = first;
        for (done, &frame) in frames.iter().enumerate() {
            if let Err(error) = self.install(process, page, frame) {
                for page in (PageRange { first, count: done as u64 }) {
                    self.remove(process, page)?;
                }
                return Err(error);
            }
            page = page.next();
        }
        Ok(())
    }

    /// Records that `page` of an export is pinned as `frame`: designs with separate translations for exports keep them where
    /// [`lookup_receive`](Self::lookup_receive) looks. The page need not be installed otherwise.
    fn install_receive(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), TranslationError> {
        self.install(process, page, frame)
    }

    /// Removes `page` from every table and cache. No effect if it has no frame.
    fn remove(&mut self, process: Process, page: Page) -> Result<(), TranslationError>;

    /// Translates `page` as the source of a send or the destination of a fetch. Never fails: an unpinned page that nobody can pin, a page
    /// outside the address space and a process that is not open all give the garbage frame (UTLB §4.2).
    fn lookup(&mut self, process: Process, page: Page) -> Lookup;

    /// Translates `page` of an export, for a store or a peer's fetch.
    #[inline]
    fn lookup_receive(&mut self, process: Process, page: Page) -> Lookup {
        self.lookup(process, page)
    }

    /// Whether the NIC has start, length and rights of a buffer that `process` exported (dynamic handle lookup §IV, CBH). Designs whose
    /// tables are wholly in NIC memory always have them.
    #[inline]
    fn lookup_buffer(&mut self, _process: Process, _buffer: u32) -> HandleLookup {
        HandleLookup::Hit
    }

    /// Whether the NIC has what it needs of a process that communicates (dynamic handle lookup §IV, PCH).
    #[inline]
    fn lookup_process(&mut self, _process: Process) -> HandleLookup {
        HandleLookup::Hit
    }

    /// When to pin the pages that [`lookup`](Self::lookup) translates.
    fn pinning(&self) -> Pinning {
        Pinning::BeforeTransfer
    }

    /// When to pin the pages that [`lookup_receive`](Self::lookup_receive) translates: on export, or on a miss.
    fn pinning_receive(&self) -> Pinning {
        self.pinning()
    }

    /// Whether a request or packet that needs the host is dropped, for its sender's link to send again (dynamic handle lookup §IV.A).
    /// Otherwise it waits.
    fn drops_on_miss(&self) -> bool {
        false
    }

    /// Whether a page is unpinned when its translation leaves the NIC (UTLB §6.2): those that [`fill`](Self::fill) evicts must then be
    /// unpinned.
    fn unpins_evicted(&self) -> bool {
        false
    }

    /// Most pages of one process that can be installed at a time; `None` for no limit.
    fn capacity_pages(&self) -> Option<u64> {
        None
    }

    /// Number of pinned pages of a process above which [`HostSide::reclaim`](crate::HostSide::reclaim) unpins those that the NIC has not
    /// cached (dynamic handle lookup §IV.B); `None` if they stay pinned.
    fn high_water_pages(&self) -> Option<u64> {
        None
    }

    /// The host has installed what it could of `pages`; the NIC may go on. A page that is not installed gives the garbage frame
    /// to the next lookup of it, if one had asked for it; later ones ask again. The translations that left the cache for these are added to `evicted`.
    fn fill(&mut self, _process: Process, _pages: PageRange, _evicted: &mut Vec<(Process, Page)>) {}

    /// The page whose translation [`fill`](Self::fill) of `page` would evict: only designs that unpin it tell.
    fn displaced_by(&self, _process: Process, _page: Page) -> Option<(Process, Page)> {
        None
    }

    /// The host has what the NIC must know of the buffer; the NIC takes it in.
    fn fill_buffer(&mut self, _process: Process, _buffer: u32) {}

    /// The buffer is exported no more: the NIC forgets what it knows of it.
    fn forget_buffer(&mut self, _process: Process, _buffer: u32) {}

    /// The host has what the NIC must know of the process; the NIC takes it in.
    fn fill_process(&mut self, _process: Process) {}

    /// Moves a second-level table out of memory (UTLB §3.3); the next lookup that needs it asks for it. Whether there was such a
    /// table in memory.
    fn page_out(&mut self, _process: Process, _table: u64) -> bool {
        false
    }

    /// Moves a second-level table back into memory. Whether there was such a table outside.
    fn load_table(&mut self, _process: Process, _table: u64) -> bool {
        false
    }

    /// Whether the translation of `page` is in the NIC's memory. Counts nothing and leaves every cache as it is.
    fn is_cached(&self, process: Process, page: Page) -> bool;

    /// The frame under which `page` is installed, or the garbage frame: the result of a [`lookup`](Self::lookup), for the host. Counts
    /// nothing and leaves every cache as it is.
    fn installed(&self, process: Process, page: Page) -> Frame;

    /// Number of installed pages whose table entry does not follow that of the preceding installed page (UTLB §3.3): 0 in designs whose
    /// tables are indexed by page.
    fn fragmented_pages(&self) -> u64 {
        0
    }

    /// Name and bytes of every structure in NIC memory, for the memory budget.
    fn nic_memory(&self) -> impl Iterator<Item = (&'static str, usize)>;

    /// Bytes of host memory in the tables of all processes.
    fn host_memory_bytes(&self) -> usize;

    /// Lookups, misses and requests to the host of all processes since the start.
    fn counters(&self) -> Counters;
}

/// What the host side works on: a design, or a NIC that has one and charges its memory to a budget.
pub trait NicSide {
    type Design: TranslationDesign;
    /// Why pages cannot be installed.
    type Error: From<TranslationError>;

    /// The design, for reading.
    fn design(&self) -> &Self::Design;

    /// The design, for changes. Install pages through [`install_pages`](Self::install_pages).
    fn design_mut(&mut self) -> &mut Self::Design;

    /// Adds the pages of a process that the NIC will still read for peers, and that no transfer of its host holds: they must not be
    /// unpinned meanwhile.
    fn reading(&self, _process: Process, _pages: &mut Vec<PageRange>) {}

    /// [`TranslationDesign::install_run`], if there is NIC memory for it. On an error nothing is installed that was not before.
    ///
    /// # Errors
    /// The design refuses, or the NIC's memory is exhausted.
    fn install_pages(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), Self::Error>;

    /// [`TranslationDesign::install_receive`] of a page, if there is NIC memory for it.
    ///
    /// # Errors
    /// The design refuses, or the NIC's memory is exhausted; nothing has changed then.
    fn install_export(&mut self, process: Process, page: Page, frame: Frame) -> Result<(), Self::Error> {
        let installed = self.design_mut().install_receive(process, page, frame);
        installed.map_err(Self::Error::from)
    }
}

impl<D: TranslationDesign> NicSide for D {
    type Design = D;
    type Error = TranslationError;

    #[inline]
    fn design(&self) -> &D {
        self
    }

    #[inline]
    fn design_mut(&mut self) -> &mut D {
        self
    }

    fn install_pages(&mut self, process: Process, first: Page, frames: &[Frame]) -> Result<(), TranslationError> {
        TranslationDesign::install_run(self, process, first, frames)
    }
}
