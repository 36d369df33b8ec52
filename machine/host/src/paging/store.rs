//! Where pages go that are not in RAM.

use core::fmt;

use crate::errno::Errno;

/// A page of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageId {
    /// The region's number: below 1024, given again once the region is removed.
    pub region: u32,
    /// The page in the region, from 0.
    pub page: u64,
}

/// Regions that a pager has at most.
pub(super) const MAX_REGIONS: usize = 1024;

/// Bits of a page number in [`PageId::packed`].
const PAGE_BITS: u32 = 40;

/// Pages that a region has at most.
pub(super) const MAX_REGION_PAGES: usize = 1 << PAGE_BITS;

impl PageId {
    /// Both numbers in one word.
    pub(super) fn packed(self) -> u64 {
        u64::from(self.region) << PAGE_BITS | self.page
    }

    pub(super) fn from_packed(word: u64) -> Self {
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
    /// Which page.
    pub id: PageId,
    /// Its 4096 bytes, which begin at a multiple of 4096.
    pub bytes: &'a [u8],
}

/// A page to be fetched.
#[derive(Debug)]
pub struct IncomingPage<'a> {
    /// Which page.
    pub id: PageId,
    /// Where its 4096 bytes go, which begin at a multiple of 4096.
    pub bytes: &'a mut [u8],
}

/// Why a store could not take or give pages. Holds no allocation, so that a fault handler may make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No space is left.
    #[error("the backing store is full: {advice}")]
    Full {
        /// How to make space.
        advice: &'static str,
    },
    /// A page that was never stored, or was discarded.
    #[error("{0} is not in the backing store")]
    Missing(PageId),
    /// A page came back with other bytes than were stored.
    #[error("{0} came back from the backing store with wrong bytes")]
    Corrupt(PageId),
    /// A page of a mapped file has other bytes than it had before.
    #[error("the file that {0} is of was changed")]
    Changed(PageId),
    /// A page behind the end of a mapped file.
    #[error("{0} is behind the end of its file")]
    BehindEnd(PageId),
    /// A region that the store does not have or cannot take.
    #[error("{reason}")]
    Region {
        /// What is wrong.
        reason: &'static str,
    },
    /// A system call failed.
    #[error("{call}: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
    /// Any other reason.
    #[error("{0}")]
    Other(&'static str),
}

/// Pages of a store at other processes and hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemotePages {
    /// Those that are there now and are wanted.
    pub pages: u64,
    /// Those that were put there so far.
    pub put: u64,
    /// Those that were got from there so far.
    pub got: u64,
    /// Those of them that did not come, or came with wrong bytes, and were taken from elsewhere.
    pub missed: u64,
}

/// Keeps pages outside of the program's memory and gives them back.
///
/// The pager calls [`store`](Self::store), [`fetch`](Self::fetch) and [`discard`](Self::discard) from any thread, several at
/// once, never two at once for the same page. It verifies what it fetches by a checksum of its own.
///
/// # In signal handlers
/// Where faulting threads serve themselves, `store`, `fetch` and `discard` run in a signal handler: they must not allocate,
/// must take no lock that is held while program code runs, and must not panic.
pub trait BackingStore: Send + Sync + fmt::Debug {
    /// Makes pages 0 to `pages` - 1 of region `region` known. No page is stored yet.
    ///
    /// # Errors
    /// The store cannot take so many pages.
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError>;

    /// Forgets a region and all of its pages.
    fn remove_region(&self, region: u32);

    /// Stores pages, at most 128, in ascending order; each replaces an earlier copy. On success, all can be fetched; a store that
    /// keeps several copies has as many as it promises.
    ///
    /// # Errors
    /// Any may or may not have been stored; the pager keeps all of them.
    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError>;

    /// Fetches pages, at most 128, that were stored.
    ///
    /// # Errors
    /// The bytes of all of them are undefined.
    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError>;

    /// Fetches a page once more, as what came before has other bytes than were stored: another copy of it, if there is one. The pager
    /// asks until the bytes are right or there is an error; `attempt` counts from 0.
    ///
    /// # Errors
    /// There is no other copy.
    fn fetch_other(&self, page: &mut IncomingPage<'_>, _attempt: u32) -> Result<(), StoreError> {
        Err(StoreError::Corrupt(page.id))
    }

    /// Whether a page that was stored can still be had, as far as is known. One that cannot is stored again if it is in RAM.
    fn holds(&self, _id: PageId) -> bool {
        true
    }

    /// Whether a page that the store has is to be [offered](Self::offer) when it leaves RAM. Takes no lock for long.
    fn wants(&self, _id: PageId) -> bool {
        false
    }

    /// Offers pages, at most 128, in ascending order, that leave RAM as they were stored: the store may keep one more copy of each, where it is
    /// had sooner.
    fn offer(&self, _pages: &[OutgoingPage<'_>]) {}

    /// Forgets pages, stored or not.
    fn discard(&self, region: u32, first: u64, pages: u64);

    /// What is at other processes and hosts, if the store has pages there. Asked for at each fault: takes no lock.
    fn remote(&self) -> RemotePages {
        RemotePages::default()
    }

    /// Keeps what is stored for a child that this process is about to fork: no later call changes or frees a copy that is there
    /// now, as far as the child sees it. No other call runs meanwhile.
    ///
    /// # Errors
    /// The store cannot be inherited, or has no space for what comes next. Nothing changed then.
    fn seal(&self) -> Result<(), StoreError> {
        Err(StoreError::Other("this store cannot be inherited by a forked child"))
    }

    /// Called in the child of a process that forked after [`seal`](Self::seal), once: a store for the child, which has all regions,
    /// gives what was stored when the store was sealed, and keeps what it takes apart from the parent's. Only the new store is used
    /// from then on; this one is neither called nor dropped in the child.
    ///
    /// # Errors
    /// The store cannot be inherited, or has no space.
    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        Err(StoreError::Other("this store cannot be inherited by a forked child"))
    }
}
