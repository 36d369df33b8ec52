//! A limit on the pages that a process has pinned, and which page to give up for another (UTLB §3.1, §3.4).
//!
//! Least recently used first, never a page with an outstanding transfer. A touch, a hold and a release are a
//! constant number of steps for each page and allocate nothing.

use crate::leaves::Leaves;
use crate::page::{PAGE_BYTES, PAGE_NUMBER_END, Page, PageRange, RangeError};
use alloc::vec::Vec;
use core::fmt;

/// How many pages a process may have pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PinLimit {
    /// As many as the system allows. Nothing is unpinned to make room, and no order of use is kept.
    #[default]
    Unlimited,
    /// No more than this many.
    Pages(u64),
}

impl PinLimit {
    /// The whole pages within `bytes`.
    ///
    /// # Errors
    /// Less than one page.
    ///
    /// ```
    /// use mapwire_translation::PinLimit;
    /// assert_eq!(PinLimit::from_bytes(4 << 20)?, PinLimit::Pages(1024));
    /// assert!(PinLimit::from_bytes(100).is_err());
    /// # Ok::<(), mapwire_translation::PinError>(())
    /// ```
    pub fn from_bytes(bytes: u64) -> Result<Self, PinError> {
        match bytes / PAGE_BYTES as u64 {
            0 => Err(PinError::LimitBelowPage { limit_bytes: bytes }),
            pages => Ok(PinLimit::Pages(pages)),
        }
    }
}

impl fmt::Display for PinLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinLimit::Unlimited => f.write_str("no limit on pinned pages"),
            PinLimit::Pages(pages) => write!(f, "at most {pages} pinned pages"),
        }
    }
}

/// Why pages cannot be pinned, or were not as the caller believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PinError {
    /// The transfer cannot fit, even if all that can be unpinned is.
    #[error(
        "a transfer of {needed_pages} pages does not fit: {limit_pages} pages may be pinned, {held_pages} of them are in outstanding transfers; raise the limit, send less at once or wait for transfers to complete"
    )]
    LimitTooSmall {
        /// Pages of the transfer.
        needed_pages: u64,
        /// Pages that may be pinned.
        limit_pages: u64,
        /// Pages of other transfers, which must stay pinned.
        held_pages: u64,
    },
    /// A limit that allows nothing.
    #[error("a limit of {limit_bytes} bytes is less than one page of {PAGE_BYTES}; raise it")]
    LimitBelowPage {
        /// What was asked for.
        limit_bytes: u64,
    },
    /// A hold on a page that is not pinned.
    #[error("{page} is not pinned; pin it before a transfer holds it")]
    NotPinned {
        /// The page.
        page: Page,
    },
    /// A release of a page that no transfer holds.
    #[error("{page} is held by no transfer; release each hold once")]
    NotHeld {
        /// The page.
        page: Page,
    },
    /// The pages can never be pinned.
    #[error(transparent)]
    Range(#[from] RangeError),
}

const LEAF_PAGES: usize = 256;
const LEAF_SHIFT: u32 = LEAF_PAGES.trailing_zeros();
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not pinned.
    Absent,
    /// Pinned, and in the order of use.
    Listed,
    /// Pinned; a search for victims came past while a transfer held it, and took it out of the order, so that the
    /// next search need not pass it again. Its last release, or a touch, puts it back as the most recently used.
    Parked,
}

/// 16 bytes a page of the leaves that exist.
#[derive(Clone, Copy, Debug)]
struct Node {
    newer: u32,
    older: u32,
    holds: u32,
    state: State,
}

const ABSENT: Node = Node {
    newer: NIL,
    older: NIL,
    holds: 0,
    state: State::Absent,
};

/// The pinned pages of a process that has a limit, in the order of their last use.
///
/// ```
/// use mapwire_translation::{Page, PageRange, PinnedPages};
/// let pages = |first, count| PageRange { first: Page(first), count };
/// let mut pinned = PinnedPages::new(3);
/// pinned.insert(pages(10, 3))?;
/// pinned.touch(pages(10, 1));
/// pinned.hold(pages(11, 1))?;
/// let mut victims = Vec::new();
/// assert!(pinned.victims(2, PageRange::EMPTY, &mut victims));
/// assert_eq!(victims, [Page(12), Page(10)]); // 11 is held, 10 was touched last
/// # Ok::<(), mapwire_translation::PinError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PinnedPages {
    limit_pages: u64,
    nodes: Leaves<Node, LEAF_PAGES>,
    newest: u32,
    oldest: u32,
    pinned: u64,
    held: u64,
    /// The range whose touch came last, if the order has not changed since: touching it again changes nothing.
    last_touched: PageRange,
}

impl PinnedPages {
    /// No page pinned, and at most `limit_pages` to come.
    pub fn new(limit_pages: u64) -> Self {
        PinnedPages {
            limit_pages,
            nodes: Leaves::new(ABSENT),
            newest: NIL,
            oldest: NIL,
            pinned: 0,
            held: 0,
            last_touched: PageRange::EMPTY,
        }
    }

    /// Pages that may be pinned.
    pub fn limit_pages(&self) -> u64 {
        self.limit_pages
    }

    /// Pages that are pinned.
    pub fn pinned_pages(&self) -> u64 {
        self.pinned
    }

    /// Pages that transfers hold.
    pub fn held_pages(&self) -> u64 {
        self.held
    }

    /// Records pages as pinned, each as the most recently used as its turn comes. Pages pinned already are touched.
    ///
    /// The limit is not enforced here: what has been pinned is recorded, and the next plan makes up for it.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn insert(&mut self, range: PageRange) -> Result<(), RangeError> {
        for page in range.in_address_space()? {
            let base = self.nodes.find_or_add(page.0 >> LEAF_SHIFT);
            let at = base + page_in_leaf(page);
            match self.nodes.cells[at].state {
                State::Absent => {
                    self.nodes.occupy(base, 1);
                    self.pinned += 1;
                }
                State::Listed => self.unlink(at),
                State::Parked => {}
            }
            self.link_newest(at);
        }
        self.last_touched = PageRange::EMPTY;
        Ok(())
    }

    /// Records the page as unpinned. Returns whether it was pinned. Holds on it stay counted.
    pub fn remove(&mut self, page: Page) -> bool {
        let Some(base) = self.nodes.find(page.0 >> LEAF_SHIFT) else {
            return false;
        };
        let at = base + page_in_leaf(page);
        match self.nodes.cells[at].state {
            State::Absent => return false,
            State::Listed => self.unlink(at),
            State::Parked => {}
        }
        self.nodes.cells[at].state = State::Absent;
        self.pinned -= 1;
        self.nodes.vacate(base, 1);
        true
    }

    /// The pages are used now, in rising order. Pages that are not pinned are passed over.
    #[inline]
    pub fn touch(&mut self, range: PageRange) {
        if range != self.last_touched {
            self.touch_pages(range);
        }
    }

    fn touch_pages(&mut self, range: PageRange) {
        let end = range.end().0.min(PAGE_NUMBER_END);
        let mut at = range.first.0;
        while at < end {
            let stop = end.min((at | (LEAF_PAGES as u64 - 1)) + 1);
            if let Some(base) = self.nodes.find(at >> LEAF_SHIFT) {
                for page in at..stop {
                    self.touch_node(base + page_in_leaf(Page(page)));
                }
            }
            at = stop;
        }
        self.last_touched = range;
    }

    #[inline]
    fn touch_node(&mut self, at: usize) {
        match self.nodes.cells[at].state {
            State::Absent => return,
            State::Listed if self.newest == at as u32 => return,
            State::Listed => self.unlink(at),
            State::Parked => {}
        }
        self.link_newest(at);
    }

    /// A transfer now needs the pages: none is a victim before as many releases as holds.
    ///
    /// # Errors
    /// The first page that is not pinned; nothing is held then.
    #[inline]
    pub fn hold(&mut self, range: PageRange) -> Result<(), PinError> {
        let held = self.for_each_node(range, |pinned, at, base| {
            let node = &mut pinned.nodes.cells[at];
            if node.state == State::Absent {
                return Err(());
            }
            node.holds += 1;
            if node.holds == 1 {
                pinned.held += 1;
                pinned.nodes.occupy(base, 1);
            }
            Ok(())
        });
        match held {
            Ok(()) => Ok(()),
            Err(page) => {
                let before = PageRange {
                    first: range.first,
                    count: page.0 - range.first.0,
                };
                self.release(before)?;
                Err(PinError::NotPinned { page })
            }
        }
    }

    /// A transfer is done with the pages that it held.
    ///
    /// # Errors
    /// The first page that nothing holds; those before it are released, those after it are not.
    #[inline]
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        self.for_each_node(range, |pinned, at, base| {
            let node = &mut pinned.nodes.cells[at];
            if node.holds == 0 {
                return Err(());
            }
            node.holds -= 1;
            if node.holds == 0 {
                pinned.last_release(at, base);
            }
            Ok(())
        })
        .map_err(|page| PinError::NotHeld { page })
    }

    /// Whether a transfer holds the page.
    pub fn is_held(&self, page: Page) -> bool {
        let base = self.nodes.peek(page.0 >> LEAF_SHIFT);
        base.is_some_and(|base| self.nodes.cells[base + page_in_leaf(page)].holds > 0)
    }

    /// Appends the `count` pages to give up first: least recently used first, none that a transfer holds and none of
    /// `keep`. Returns whether there were so many. They stay recorded as pinned until [`remove`](Self::remove).
    ///
    /// Takes a step for each victim, for each page of `keep` that is older than the last victim, and once for each
    /// held page met.
    pub fn victims(&mut self, count: u64, keep: PageRange, out: &mut Vec<Page>) -> bool {
        let mut missing = count;
        let mut at = self.oldest;
        while missing > 0 && at != NIL {
            let node = self.nodes.cells[at as usize];
            let page = self.page_at(at as usize);
            if node.holds > 0 {
                self.unlink(at as usize);
                self.nodes.cells[at as usize].state = State::Parked;
                self.last_touched = PageRange::EMPTY;
            } else if !keep.contains(page) {
                out.push(page);
                missing -= 1;
            }
            at = node.newer;
        }
        missing == 0
    }

    /// Pages of the range that transfers hold.
    pub(crate) fn held_in(&mut self, range: PageRange) -> u64 {
        range.iter().filter(|page| self.is_held(*page)).count() as u64
    }

    /// Bytes of host memory taken.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes()
    }

    /// Calls `visit(self, node, base of its leaf)` for the pages in rising order, until it fails or a page has no
    /// node; that page is the error.
    #[inline(always)]
    fn for_each_node(
        &mut self,
        range: PageRange,
        mut visit: impl FnMut(&mut Self, usize, usize) -> Result<(), ()>,
    ) -> Result<(), Page> {
        let end = range.end().0;
        let mut at = range.first.0;
        while at < end {
            let Some(base) = self.nodes.find(at >> LEAF_SHIFT) else {
                return Err(Page(at));
            };
            let leaf_end = (at | (LEAF_PAGES as u64 - 1)) + 1;
            let stop = end.min(leaf_end);
            while at < stop {
                visit(self, base + page_in_leaf(Page(at)), base).map_err(|()| Page(at))?;
                at += 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn last_release(&mut self, at: usize, base: usize) {
        self.held -= 1;
        if self.nodes.cells[at].state == State::Parked {
            self.link_newest(at);
            self.last_touched = PageRange::EMPTY;
        }
        self.nodes.vacate(base, 1);
    }

    #[inline]
    fn unlink(&mut self, at: usize) {
        let Node { newer, older, .. } = self.nodes.cells[at];
        match newer {
            NIL => self.newest = older,
            newer => self.nodes.cells[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.nodes.cells[older as usize].newer = newer,
        }
    }

    #[inline]
    fn link_newest(&mut self, at: usize) {
        let older = self.newest;
        let node = &mut self.nodes.cells[at];
        node.newer = NIL;
        node.older = older;
        node.state = State::Listed;
        match older {
            NIL => self.oldest = at as u32,
            older => self.nodes.cells[older as usize].newer = at as u32,
        }
        self.newest = at as u32;
    }

    fn page_at(&self, at: usize) -> Page {
        Page(self.nodes.number_of(at) << LEAF_SHIFT | (at % LEAF_PAGES) as u64)
    }
}

#[inline(always)]
fn page_in_leaf(page: Page) -> usize {
    page.0 as usize % LEAF_PAGES
}
