//! The pinned pages of a process under a limit, and the choice of victims (UTLB §3.1, §3.4).
//!
//! A policy chooses, never a page with an outstanding transfer. A touch, a hold and a release take constant time for each page; only a
//! touch under LFU or MFU may allocate, and takes longer the more distinct numbers of uses there are, as their logarithm does.

mod drawn;
mod frequency;
mod nodes;
mod recency;

use self::drawn::Drawn;
use self::frequency::Frequency;
use self::nodes::{ABSENT, Candidacy, LEAF_PAGES, LEAF_SHIFT, NIL, Node, Nodes, Search, page_at, page_in_leaf};
use self::recency::Recency;
use crate::leaves::Leaves;
use crate::limit::PinError;
use crate::page::{Page, PageRange, RangeError};
use crate::policy::Policy;
use alloc::vec::Vec;

/// Nodes `base + from .. base + to`, all of one leaf.
struct Piece {
    base: usize,
    from: usize,
    to: usize,
}

/// Order of victims.
#[derive(Clone, Debug)]
enum Ranking {
    /// By last use.
    Recency(Recency),
    Frequency(Frequency),
    Drawn(Drawn),
}

/// The pinned pages of a process that has a limit, in order of eviction.
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
    nodes: Nodes,
    ranking: Ranking,
    pinned: u64,
    held: u64,
    /// The range touched last, if touching it again changes nothing.
    last_touched: PageRange,
}

impl PinnedPages {
    /// No page pinned, at most `limit_pages` in future; victims are the least recently used.
    pub fn new(limit_pages: u64) -> Self {
        Self::with(limit_pages, Policy::Lru)
    }

    /// No page pinned, at most `limit_pages` in future.
    pub fn with(limit_pages: u64, policy: Policy) -> Self {
        let ranking = match policy {
            Policy::Lru | Policy::Application => Ranking::Recency(Recency::oldest_first()),
            Policy::Mru => Ranking::Recency(Recency::newest_first()),
            Policy::Lfu => Ranking::Frequency(Frequency::least_first()),
            Policy::Mfu => Ranking::Frequency(Frequency::most_first()),
            Policy::Random { seed } => Ranking::Drawn(Drawn::new(seed)),
        };
        PinnedPages {
            limit_pages,
            nodes: Leaves::new(ABSENT),
            ranking,
            pinned: 0,
            held: 0,
            last_touched: PageRange::EMPTY,
        }
    }

    pub fn limit_pages(&self) -> u64 {
        self.limit_pages
    }

    /// Number of pinned pages.
    pub fn pinned_pages(&self) -> u64 {
        self.pinned
    }

    /// Number of pages that transfers hold.
    pub fn held_pages(&self) -> u64 {
        self.held
    }

    /// Records pages as pinned and used now, in ascending order. Touches those already pinned.
    ///
    /// Does not enforce the limit: what has been pinned is recorded, and the next plan makes up for it.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn insert(&mut self, range: PageRange) -> Result<(), RangeError> {
        self.insert_pages(range, true)
    }

    /// [`insert`](Self::insert) of pages that no transfer has used yet: they count no use. Those already pinned stay as they are.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn insert_ahead(&mut self, range: PageRange) -> Result<(), RangeError> {
        self.insert_pages(range, false)
    }

    fn insert_pages(&mut self, range: PageRange, used: bool) -> Result<(), RangeError> {
        for page in range.in_address_space()? {
            let base = self.nodes.find_or_add(page.0 >> LEAF_SHIFT);
            let at = base + page_in_leaf(page);
            if self.nodes.cells()[at].candidacy == Candidacy::Absent {
                self.nodes.occupy(base, 1);
                self.pinned += 1;
                self.nodes.cells_mut()[at].candidacy = Candidacy::Listed;
                match &mut self.ranking {
                    Ranking::Recency(list) => list.link_newest(self.nodes.cells_mut(), at, at),
                    Ranking::Frequency(lists) => lists.add(self.nodes.cells_mut(), at, used),
                    Ranking::Drawn(drawn) => drawn.add(self.nodes.cells_mut(), at),
                }
            } else if used {
                self.touch_nodes(at, at + 1);
            }
        }
        self.last_touched = PageRange::EMPTY;
        Ok(())
    }

    /// Records the page as unpinned. Returns whether it was pinned. Holds on it still count.
    pub fn remove(&mut self, page: Page) -> bool {
        let Some(base) = self.nodes.find(page.0 >> LEAF_SHIFT) else {
            return false;
        };
        let at = base + page_in_leaf(page);
        let candidacy = self.nodes.cells()[at].candidacy;
        let cells = self.nodes.cells_mut();
        match (&mut self.ranking, candidacy) {
            (_, Candidacy::Absent) => return false,
            (Ranking::Recency(list), Candidacy::Listed) => list.unlink(cells, at, at),
            (Ranking::Drawn(drawn), Candidacy::Listed) => drawn.remove(cells, at),
            (Ranking::Frequency(lists), Candidacy::Listed) => lists.remove(cells, at),
            (_, Candidacy::Parked) => {}
        }
        self.nodes.cells_mut()[at].candidacy = Candidacy::Absent;
        self.pinned -= 1;
        self.nodes.vacate(base, 1);
        true
    }

    /// Marks the pages as used now, in ascending order. Ignores unpinned ones.
    #[inline]
    pub fn touch(&mut self, range: PageRange) {
        if range != self.last_touched {
            self.touch_pages(range);
        }
    }

    fn touch_pages(&mut self, range: PageRange) {
        let mut rest = range;
        while rest.first.in_address_space() && !rest.is_empty() {
            if let Some(Piece { base, from, to }) = self.next_piece(&mut rest) {
                match &mut self.ranking {
                    Ranking::Recency(list) => {
                        list.touch(self.nodes.cells_mut(), base + from, base + to);
                    }
                    _ => self.touch_nodes(base + from, base + to),
                }
            }
        }
        if !matches!(self.ranking, Ranking::Frequency(_)) {
            self.last_touched = range;
        }
    }

    /// Marks the nodes `from..to` of one leaf as used, in ascending order.
    #[inline(never)]
    fn touch_nodes(&mut self, from: usize, to: usize) {
        let cells = self.nodes.cells_mut();
        match &mut self.ranking {
            Ranking::Recency(list) => list.touch(cells, from, to),
            Ranking::Frequency(lists) => (from..to).for_each(|at| lists.touch(cells, at)),
            Ranking::Drawn(drawn) => (from..to).for_each(|at| drawn.touch(cells, at)),
        }
    }

    /// Starts a transfer of the pages: none is a victim before as many releases as holds.
    ///
    /// # Errors
    /// Names the first page that is not pinned; nothing is held then.
    pub fn hold(&mut self, range: PageRange) -> Result<(), PinError> {
        let mut rest = range;
        while !rest.is_empty() {
            let start = rest.first;
            let mut absent = Some(0);
            if let Some(Piece { base, from, to }) = self.next_piece(&mut rest) {
                let nodes = &self.nodes.cells()[base + from..base + to];
                absent = nodes.iter().position(|node| node.candidacy == Candidacy::Absent);
                self.hold_piece(Piece { base, from, to: absent.map_or(to, |after| from + after) });
            }
            if let Some(after) = absent {
                let page = Page(start.0 + after as u64);
                self.release(PageRange { first: range.first, count: page.0 - range.first.0 })?;
                return Err(PinError::NotPinned { page });
            }
        }
        Ok(())
    }

    /// [`hold`](Self::hold) of pages whether pinned or not: those pinned later are held too.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn hold_any(&mut self, range: PageRange) -> Result<(), RangeError> {
        let mut rest = range.in_address_space()?;
        while !rest.is_empty() {
            self.nodes.find_or_add(rest.first.0 >> LEAF_SHIFT);
            if let Some(piece) = self.next_piece(&mut rest) {
                self.hold_piece(piece);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn hold_piece(&mut self, Piece { base, from, to }: Piece) {
        let mut fresh = 0;
        for node in &mut self.nodes.cells_mut()[base + from..base + to] {
            fresh += u32::from(node.holds == 0);
            node.holds += 1;
        }
        self.held += u64::from(fresh);
        self.nodes.occupy(base, fresh);
    }

    /// Ends a transfer of the pages.
    ///
    /// # Errors
    /// Names the first page that nothing holds; those before it are released, those after it are not.
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        let mut rest = range;
        while !rest.is_empty() {
            let start = rest.first;
            let mut idle = Some(0);
            if let Some(Piece { base, from, to }) = self.next_piece(&mut rest) {
                let nodes = &mut self.nodes.cells_mut()[base + from..base + to];
                idle = nodes.iter().position(|node| node.holds == 0);
                let done = idle.unwrap_or(to - from);
                let (mut freed, mut parked) = (0, false);
                for node in &mut nodes[..done] {
                    node.holds -= 1;
                    freed += u32::from(node.holds == 0);
                    parked |= node.candidacy == Candidacy::Parked;
                }
                if parked {
                    self.take_back(base + from, base + from + done);
                }
                self.held -= u64::from(freed);
                if freed > 0 {
                    self.nodes.vacate(base, freed);
                }
            }
            if let Some(after) = idle {
                return Err(PinError::NotHeld { page: Page(start.0 + after as u64) });
            }
        }
        Ok(())
    }

    /// Whether a transfer holds the page.
    pub fn is_held(&self, page: Page) -> bool {
        let base = self.nodes.peek(page.0 >> LEAF_SHIFT);
        base.is_some_and(|base| self.nodes.cells()[base + page_in_leaf(page)].holds > 0)
    }

    /// Appends the `count` victims that the policy ranks first, none that a transfer holds and none of `keep`. Returns whether there were
    /// that many. They stay recorded as pinned until [`remove`](Self::remove).
    ///
    /// Takes a step for each victim, for each page of `keep` ranked before the last victim, and once for each held page met.
    pub fn victims(&mut self, count: u64, keep: PageRange, out: &mut Vec<Page>) -> bool {
        self.victims_where(count, |page| !keep.contains(page), out)
    }

    /// [`victims`](Self::victims) among the pages for which `may_go` is true.
    pub fn victims_where(&mut self, count: u64, may_go: impl Fn(Page) -> bool, out: &mut Vec<Page>) -> bool {
        let before = out.len();
        let PinnedPages { nodes, ranking, .. } = self;
        let mut search = Search { nodes, may_go, missing: count, out, parked: false };
        match ranking {
            Ranking::Recency(list) => list.search(&mut search),
            Ranking::Frequency(lists) => lists.search(&mut search),
            Ranking::Drawn(drawn) => drawn.search(&mut search),
        }
        if search.parked {
            self.last_touched = PageRange::EMPTY;
        }
        (out.len() - before) as u64 == count
    }

    /// Pages that no transfer holds, least recently used first. Only for policies that rank by last use.
    pub(crate) fn idle_oldest_first(&self) -> impl Iterator<Item = Page> {
        let mut at = match &self.ranking {
            Ranking::Recency(list) => list.oldest(),
            Ranking::Frequency(_) | Ranking::Drawn(_) => NIL,
        };
        core::iter::from_fn(move || {
            while at != NIL {
                let (node, this) = (self.nodes.cells()[at as usize], at as usize);
                at = node.newer;
                if node.holds == 0 {
                    return Some(page_at(&self.nodes, this));
                }
            }
            None
        })
    }

    /// Whether the page is pinned and not held.
    pub(crate) fn is_idle(&self, page: Page) -> bool {
        let base = self.nodes.peek(page.0 >> LEAF_SHIFT);
        base.is_some_and(|base| {
            let node = self.nodes.cells()[base + page_in_leaf(page)];
            node.candidacy != Candidacy::Absent && node.holds == 0
        })
    }

    /// Number of pinned pages outside the range that transfers hold. Scans all nodes: used only for errors.
    pub(crate) fn held_outside(&self, range: PageRange) -> u64 {
        let held = |at: &usize| {
            let Node { holds, candidacy, .. } = self.nodes.cells()[*at];
            holds > 0 && candidacy != Candidacy::Absent && !range.contains(page_at(&self.nodes, *at))
        };
        (0..self.nodes.cells().len()).filter(held).count() as u64
    }

    /// Host memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let ranking = match &self.ranking {
            Ranking::Recency(_) => 0,
            Ranking::Frequency(lists) => lists.memory_bytes(),
            Ranking::Drawn(drawn) => drawn.memory_bytes(),
        };
        self.nodes.memory_bytes() + ranking
    }

    /// Removes the part of `rest` in one leaf; returns `None` if the leaf does not exist.
    #[inline(always)]
    fn next_piece(&mut self, rest: &mut PageRange) -> Option<Piece> {
        let from = page_in_leaf(rest.first);
        let count = rest.count.min((LEAF_PAGES - from) as u64);
        let base = self.nodes.find(rest.first.0 >> LEAF_SHIFT);
        *rest = PageRange { first: Page(rest.first.0.saturating_add(count)), count: rest.count - count };
        Some(Piece { base: base?, from, to: from + count as usize })
    }

    /// Relists parked nodes that nothing holds any more.
    #[cold]
    fn take_back(&mut self, from: usize, to: usize) {
        let cells = self.nodes.cells_mut();
        for at in from..to {
            let Node { candidacy, holds, .. } = cells[at];
            if candidacy == Candidacy::Parked && holds == 0 {
                cells[at].candidacy = Candidacy::Listed;
                match &mut self.ranking {
                    Ranking::Recency(list) => list.link_newest(cells, at, at),
                    Ranking::Frequency(lists) => lists.list(cells, at),
                    Ranking::Drawn(drawn) => drawn.add(cells, at),
                }
            }
        }
        self.last_touched = PageRange::EMPTY;
    }
}

#[cfg(test)]
mod tests;
