//! The pinned pages of a process under a limit, and which to give up for another (UTLB §3.1, §3.4).
//!
//! Least recently used first, never a page with an outstanding transfer. A touch, a hold and a release are a
//! constant number of steps for each page and allocate nothing.

use crate::leaves::Leaves;
use crate::limit::PinError;
use crate::page::{Page, PageRange, RangeError};
use alloc::vec::Vec;

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

/// 16 bytes a page of the leaves that exist. Links are positions of nodes: 32 bits reach 64 GiB of them.
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

/// Nodes `base + from .. base + to`, all of one leaf.
struct Piece {
    base: usize,
    from: usize,
    to: usize,
}

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
                State::Listed => self.unlink(at, at),
                State::Parked => {}
            }
            self.link_newest(at, at);
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
            State::Listed => self.unlink(at, at),
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
        let mut rest = range;
        while rest.first.in_address_space() && !rest.is_empty() {
            if let Some(piece) = self.next_piece(&mut rest) {
                self.touch_nodes(piece.base + piece.from, piece.base + piece.to);
            }
        }
        self.last_touched = range;
    }

    /// Makes the nodes `from..to` of one leaf the newest, the last of them newest of all. Pages that were touched
    /// together before stand in the order already and move as one.
    fn touch_nodes(&mut self, from: usize, to: usize) {
        let mut first = from;
        while first < to {
            let mut last = first;
            match self.nodes.cells[first].state {
                State::Absent => {}
                State::Parked => self.link_newest(first, first),
                State::Listed => {
                    while last + 1 < to && self.nodes.cells[last].newer == (last + 1) as u32 {
                        last += 1;
                    }
                    if self.newest != last as u32 {
                        self.unlink(first, last);
                        self.link_newest(first, last);
                    }
                }
            }
            first = last + 1;
        }
    }

    /// A transfer now needs the pages: none is a victim before as many releases as holds.
    ///
    /// # Errors
    /// The first page that is not pinned; nothing is held then.
    pub fn hold(&mut self, range: PageRange) -> Result<(), PinError> {
        let mut rest = range;
        while !rest.is_empty() {
            let start = rest.first;
            let mut absent = Some(0);
            if let Some(Piece { base, from, to }) = self.next_piece(&mut rest) {
                let nodes = &mut self.nodes.cells[base + from..base + to];
                absent = nodes.iter().position(|node| node.state == State::Absent);
                let mut fresh = 0;
                for node in &mut nodes[..absent.unwrap_or(to - from)] {
                    fresh += u32::from(node.holds == 0);
                    node.holds += 1;
                }
                self.held += u64::from(fresh);
                self.nodes.occupy(base, fresh);
            }
            if let Some(after) = absent {
                let page = Page(start.0 + after as u64);
                self.release(PageRange {
                    first: range.first,
                    count: page.0 - range.first.0,
                })?;
                return Err(PinError::NotPinned { page });
            }
        }
        Ok(())
    }

    /// A transfer is done with the pages that it held.
    ///
    /// # Errors
    /// The first page that nothing holds; those before it are released, those after it are not.
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        let mut rest = range;
        while !rest.is_empty() {
            let start = rest.first;
            let mut idle = Some(0);
            if let Some(Piece { base, from, to }) = self.next_piece(&mut rest) {
                let nodes = &mut self.nodes.cells[base + from..base + to];
                idle = nodes.iter().position(|node| node.holds == 0);
                let done = idle.unwrap_or(to - from);
                let (mut freed, mut parked) = (0, false);
                for node in &mut nodes[..done] {
                    node.holds -= 1;
                    freed += u32::from(node.holds == 0);
                    parked |= node.state == State::Parked;
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
                return Err(PinError::NotHeld {
                    page: Page(start.0 + after as u64),
                });
            }
        }
        Ok(())
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
                self.unlink(at as usize, at as usize);
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

    /// Pages outside the range that transfers hold. Takes a pass over all nodes: only errors ask.
    pub(crate) fn held_outside(&self, range: PageRange) -> u64 {
        let held =
            |at: &usize| self.nodes.cells[*at].holds > 0 && !range.contains(self.page_at(*at));
        (0..self.nodes.cells.len()).filter(held).count() as u64
    }

    /// Bytes of host memory taken.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes()
    }

    /// Takes from `rest` what lies in one leaf; `None` if the leaf does not exist.
    #[inline(always)]
    fn next_piece(&mut self, rest: &mut PageRange) -> Option<Piece> {
        let from = page_in_leaf(rest.first);
        let count = rest.count.min((LEAF_PAGES - from) as u64);
        let base = self.nodes.find(rest.first.0 >> LEAF_SHIFT);
        *rest = PageRange {
            first: Page(rest.first.0.saturating_add(count)),
            count: rest.count - count,
        };
        Some(Piece {
            base: base?,
            from,
            to: from + count as usize,
        })
    }

    /// Puts parked nodes that nothing holds any more back into the order.
    #[cold]
    fn take_back(&mut self, from: usize, to: usize) {
        for at in from..to {
            let Node { state, holds, .. } = self.nodes.cells[at];
            if state == State::Parked && holds == 0 {
                self.link_newest(at, at);
            }
        }
        self.last_touched = PageRange::EMPTY;
    }

    /// Takes the nodes from `first` to `last`, which stand in the order one after the other, out of it.
    #[inline]
    fn unlink(&mut self, first: usize, last: usize) {
        let older = self.nodes.cells[first].older;
        let newer = self.nodes.cells[last].newer;
        match newer {
            NIL => self.newest = older,
            newer => self.nodes.cells[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.nodes.cells[older as usize].newer = newer,
        }
    }

    /// Puts the nodes from `first` to `last`, which are linked to one another, at the newest end.
    #[inline]
    fn link_newest(&mut self, first: usize, last: usize) {
        let older = self.newest;
        self.nodes.cells[first].older = older;
        self.nodes.cells[first].state = State::Listed;
        self.nodes.cells[last].newer = NIL;
        match older {
            NIL => self.oldest = first as u32,
            older => self.nodes.cells[older as usize].newer = first as u32,
        }
        self.newest = last as u32;
    }

    fn page_at(&self, at: usize) -> Page {
        Page(self.nodes.number_of(at) << LEAF_SHIFT | (at % LEAF_PAGES) as u64)
    }
}

#[inline(always)]
fn page_in_leaf(page: Page) -> usize {
    page.0 as usize % LEAF_PAGES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn range(first: u64, count: u64) -> PageRange {
        PageRange {
            first: Page(first),
            count,
        }
    }

    fn victims(pinned: &mut PinnedPages, count: u64, keep: PageRange) -> Vec<u64> {
        let mut out = Vec::new();
        pinned.victims(count, keep, &mut out);
        out.iter().map(|page| page.0).collect()
    }

    #[test]
    fn a_node_takes_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn the_least_recently_used_page_goes_first() {
        let mut pinned = PinnedPages::new(10);
        pinned.insert(range(0, 4)).unwrap();
        pinned.touch(range(1, 1));
        pinned.touch(range(0, 1));
        assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [2, 3, 1, 0]);
    }

    #[test]
    fn a_plan_for_victims_changes_nothing_until_they_are_removed() {
        let mut pinned = PinnedPages::new(10);
        pinned.insert(range(0, 4)).unwrap();
        assert_eq!(victims(&mut pinned, 2, PageRange::EMPTY), [0, 1]);
        assert_eq!(victims(&mut pinned, 2, PageRange::EMPTY), [0, 1]);
        assert!(pinned.remove(Page(0)));
        assert!(!pinned.remove(Page(0)));
        assert_eq!(victims(&mut pinned, 2, PageRange::EMPTY), [1, 2]);
        assert_eq!(pinned.pinned_pages(), 3);
    }

    #[test]
    fn a_page_held_twice_needs_two_releases() {
        let mut pinned = PinnedPages::new(10);
        pinned.insert(range(7, 1)).unwrap();
        pinned.hold(range(7, 1)).unwrap();
        pinned.hold(range(7, 1)).unwrap();
        assert_eq!(pinned.held_pages(), 1);
        pinned.release(range(7, 1)).unwrap();
        assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), []);
        pinned.release(range(7, 1)).unwrap();
        assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), [7]);
        assert_eq!(
            pinned.release(range(7, 1)),
            Err(PinError::NotHeld { page: Page(7) })
        );
    }

    #[test]
    fn a_hold_that_meets_an_unpinned_page_holds_nothing() {
        let mut pinned = PinnedPages::new(10);
        pinned.insert(range(254, 3)).unwrap();
        for (first, count, absent) in [
            (254, 4, 257),
            (253, 2, 253),
            (256, 600, 257),
            (5000, 1, 5000),
        ] {
            let refused = pinned.hold(range(first, count));
            assert_eq!(refused, Err(PinError::NotPinned { page: Page(absent) }));
            assert_eq!(pinned.held_pages(), 0);
        }
        assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [254, 255, 256]);
    }

    #[test]
    fn a_page_that_was_passed_while_held_is_the_newest_after_its_release() {
        let mut pinned = PinnedPages::new(10);
        pinned.insert(range(0, 3)).unwrap();
        pinned.hold(range(0, 1)).unwrap();
        assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), [1]);
        pinned.release(range(0, 1)).unwrap();
        assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [1, 2, 0]);
    }

    #[test]
    fn holds_outlive_an_unpinning_that_was_forced() {
        let mut pinned = PinnedPages::new(10);
        pinned.insert(range(3, 1)).unwrap();
        pinned.hold(range(3, 1)).unwrap();
        assert!(pinned.remove(Page(3)));
        assert!(pinned.is_held(Page(3)));
        pinned.insert(range(3, 1)).unwrap();
        assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), []);
        pinned.release(range(3, 1)).unwrap();
        assert!(pinned.remove(Page(3)));
        assert_eq!((pinned.held_pages(), pinned.nodes.leaf_count()), (0, 0));
    }

    /// The order as a plain list, oldest first.
    #[derive(Default)]
    struct Naive {
        order: Vec<u64>,
        parked: BTreeSet<u64>,
        holds: BTreeMap<u64, u32>,
    }

    impl Naive {
        fn pinned(&self, page: u64) -> bool {
            self.order.contains(&page) || self.parked.contains(&page)
        }

        fn forget(&mut self, page: u64) {
            self.order.retain(|other| *other != page);
            self.parked.remove(&page);
        }

        fn use_now(&mut self, page: u64) {
            self.forget(page);
            self.order.push(page);
        }

        fn victims(&mut self, count: usize, keep: PageRange) -> Vec<u64> {
            let mut found = Vec::new();
            for page in self.order.clone() {
                if found.len() == count {
                    break;
                }
                if self.holds.contains_key(&page) {
                    self.forget(page);
                    self.parked.insert(page);
                } else if !keep.contains(Page(page)) {
                    found.push(page);
                }
            }
            found
        }

        fn release(&mut self, page: u64) -> bool {
            match self.holds.get_mut(&page) {
                None => return false,
                Some(1) => {
                    self.holds.remove(&page);
                    if self.parked.contains(&page) {
                        self.use_now(page);
                    }
                }
                Some(count) => *count -= 1,
            }
            true
        }
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_agrees_with_a_plain_list(
            ops in prop::collection::vec((0u8..12, 0u64..24, 0u64..6, 0u64..5), 0..200)
        ) {
            let mut pinned = PinnedPages::new(1000);
            let mut naive = Naive::default();
            for (op, first, count, many) in ops {
                // Around the border of two leaves, and far away.
                let first = if first < 20 { 246 + first } else { 1 << 30 | first };
                let pages = range(first, count);
                match op {
                    0..3 => {
                        pinned.insert(pages).unwrap();
                        pages.iter().for_each(|page| naive.use_now(page.0));
                    }
                    3..6 => {
                        pinned.touch(pages);
                        for page in pages {
                            if naive.pinned(page.0) {
                                naive.use_now(page.0);
                            }
                        }
                    }
                    6 => {
                        prop_assert_eq!(pinned.remove(Page(first)), naive.pinned(first));
                        naive.forget(first);
                    }
                    7..9 => {
                        let all = pages.iter().all(|page| naive.pinned(page.0));
                        prop_assert_eq!(pinned.hold(pages).is_ok(), all);
                        for page in pages {
                            if all {
                                *naive.holds.entry(page.0).or_default() += 1;
                            } else if !naive.pinned(page.0) {
                                break;
                            } else {
                                // Held, then released when the hold failed.
                                *naive.holds.entry(page.0).or_default() += 1;
                                naive.release(page.0);
                            }
                        }
                    }
                    9 => {
                        let done = pages.iter().all(|page| naive.release(page.0));
                        prop_assert_eq!(pinned.release(pages).is_ok(), done);
                    }
                    _ => prop_assert_eq!(victims(&mut pinned, many, pages), naive.victims(many as usize, pages)),
                }
                let total = (naive.order.len() + naive.parked.len()) as u64;
                prop_assert_eq!(pinned.pinned_pages(), total);
                prop_assert_eq!(pinned.held_pages(), naive.holds.len() as u64);
            }
            let everything = naive.victims(usize::MAX, PageRange::EMPTY);
            prop_assert_eq!(victims(&mut pinned, u64::MAX, PageRange::EMPTY), everything);
        }
    }
}
