//! The interface to storage for pages that are not in RAM.

pub(crate) mod disk;
pub(crate) mod layers;

use core::fmt;

use mapwire_host::memory::Errno;

/// A page of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageId {
    /// Number of the region: below 1024, reused once the region is removed.
    pub region: u32,
    /// Index of the page in the region, from 0.
    pub page: u64,
}

/// Most regions of a pager.
pub(crate) const MAX_REGIONS: usize = 1024;

/// Bits of a page number in [`PageId::packed`].
const PAGE_BITS: u32 = 40;

/// Most pages of a region.
pub(crate) const MAX_REGION_PAGES: usize = 1 << PAGE_BITS;

impl PageId {
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.region) << PAGE_BITS | self.page
    }

    pub(crate) fn from_packed(word: u64) -> Self {
        Self { region: (word >> PAGE_BITS) as u32, page: word & ((1 << PAGE_BITS) - 1) }
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of region {}", self.page, self.region)
    }
}

/// A page to be stored.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingPage<'a> {
    pub id: PageId,
    /// Its 4096 bytes, which begin at a multiple of 4096.
    pub bytes: &'a [u8],
}

/// A page to be fetched.
#[derive(Debug)]
pub struct IncomingPage<'a> {
    pub id: PageId,
    /// Destination of its 4096 bytes, at a multiple of 4096.
    pub bytes: &'a mut [u8],
}

/// Why a store could not take or return pages. Holds no allocation, so that a fault handler may make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("the backing store is full: {advice}")]
    Full { advice: &'static str },
    /// The page was never stored, or was discarded.
    #[error("{0} is not in the backing store")]
    Missing(PageId),
    /// The page came back with other bytes than were stored.
    #[error("{0} came back from the backing store with wrong bytes")]
    Corrupt(PageId),
    /// The page of a mapped file has changed.
    #[error("the file that {0} is of was changed")]
    Changed(PageId),
    /// The page is behind the end of a mapped file.
    #[error("{0} is behind the end of its file")]
    BehindEnd(PageId),
    /// The store does not have the region, or cannot take it.
    #[error("{reason}")]
    Region { reason: &'static str },
    #[error("{call}: {errno}")]
    System { call: &'static str, errno: Errno },
    #[error("{0}")]
    Other(&'static str),
}

impl StoreError {
    pub(crate) fn system(call: &'static str, errno: rustix::io::Errno) -> Self {
        Self::System { call, errno: errno.into() }
    }
}

/// Counters of a store's pages at other processes and hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemotePages {
    /// Pages there now that are wanted.
    pub pages: u64,
    /// Pages put there so far.
    pub put: u64,
    /// Pages fetched from there so far.
    pub got: u64,
    /// Pages that did not arrive, or with wrong bytes, and were taken from elsewhere.
    pub missed: u64,
}

/// Keeps pages outside of the program's memory and returns them.
///
/// The pager calls [`store`](Self::store), [`fetch`](Self::fetch) and [`discard`](Self::discard) from any thread, several at once, but
/// never two at once for the same page. It verifies fetched pages by a checksum of its own.
///
/// Threads of the pager call them while the program waits for the page: they must not touch a region, nor allocate memory that may lie in
/// one, and must not panic.
pub trait BackingStore: Send + Sync + fmt::Debug {
    /// Adds region `region` with pages 0 to `pages` - 1. No page is stored yet.
    ///
    /// # Errors
    /// The store cannot take so many pages.
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError>;

    /// Removes a region and all of its pages.
    fn remove_region(&self, region: u32);

    /// Stores pages, at most 128, in ascending order; each replaces an earlier copy. On success, all can be fetched, with as many copies
    /// as the store promises.
    ///
    /// # Errors
    /// Any may or may not have been stored; the pager keeps all of them.
    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError>;

    /// Fetches pages, at most 128, that were stored.
    ///
    /// # Errors
    /// The bytes of all of them are undefined.
    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError>;

    /// Fetches another copy of a page whose first copy has wrong bytes. The pager asks until the bytes are right or there is an error;
    /// `attempt` counts from 0.
    ///
    /// # Errors
    /// There is no other copy.
    fn fetch_other(&self, page: &mut IncomingPage<'_>, _attempt: u32) -> Result<(), StoreError> {
        Err(StoreError::Corrupt(page.id))
    }

    /// Whether a stored page can still be fetched, as far as known. One that cannot is stored again if it is in RAM.
    fn holds(&self, _id: PageId) -> bool {
        true
    }

    /// Whether to [offer](Self::offer) a page that the store has when it leaves RAM. Takes no lock for long.
    fn wants(&self, _id: PageId) -> bool {
        false
    }

    /// Offers pages, at most 128, in ascending order, that leave RAM as they were stored: the store may keep one more copy of each in a
    /// faster place.
    fn offer(&self, _pages: &[OutgoingPage<'_>]) {}

    /// Removes pages, stored or not.
    fn discard(&self, region: u32, first: u64, pages: u64);

    /// Counters of pages at other processes and hosts, if the store has any there. Called at each fault: takes no lock.
    fn remote(&self) -> RemotePages {
        RemotePages::default()
    }

    /// Keeps stored pages for a child that this process is about to fork: later calls change or free no present copy, as far as the child
    /// sees it. No other call runs meanwhile.
    ///
    /// # Errors
    /// The store cannot be inherited, or has no space for what follows. Nothing has changed then.
    fn seal(&self) -> Result<(), StoreError> {
        Err(StoreError::Other("this store cannot be inherited by a forked child"))
    }

    /// Called once in the child of a process that forked after [`seal`](Self::seal): a store for the child, which has all regions, returns
    /// what was stored when the store was sealed, and keeps its own pages apart from the parent's. Only the new store is used from then
    /// on; this one is neither called nor dropped in the child.
    ///
    /// # Errors
    /// The store cannot be inherited, or has no space.
    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        Err(StoreError::Other("this store cannot be inherited by a forked child"))
    }
}
