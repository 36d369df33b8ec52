//! Victims by last use: LRU and MRU.

use super::nodes::{Candidacy, NIL, Node, Search};
use crate::page::Page;

/// A list through the nodes, from the most to the least recently used page.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    newest: u32,
    oldest: u32,
    newest_first: bool,
}

impl Recency {
    /// Victims are the least recently used.
    pub(super) fn oldest_first() -> Self {
        Recency { newest: NIL, oldest: NIL, newest_first: false }
    }

    /// Victims are the most recently used.
    pub(super) fn newest_first() -> Self {
        Recency { newest_first: true, ..Self::oldest_first() }
    }

    pub(super) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Makes the nodes `from..to` the newest, in ascending order. Pages that were touched together before are already in order and move as
    /// one.
    #[inline(always)]
    pub(super) fn touch(&mut self, cells: &mut [Node], from: usize, to: usize) {
        let mut first = from;
        while first < to {
            let mut last = first;
            match cells[first].candidacy {
                Candidacy::Absent => {}
                Candidacy::Parked => {
                    cells[first].candidacy = Candidacy::Listed;
                    self.link_newest(cells, first, first);
                }
                Candidacy::Listed => {
                    while last + 1 < to && cells[last].newer == (last + 1) as u32 {
                        last += 1;
                    }
                    if self.newest != last as u32 {
                        self.unlink(cells, first, last);
                        self.link_newest(cells, first, last);
                    }
                }
            }
            first = last + 1;
        }
    }

    pub(super) fn search(&mut self, search: &mut Search<'_, impl Fn(Page) -> bool>) {
        let mut at = if self.newest_first { self.newest } else { self.oldest };
        while search.missing > 0 && at != NIL {
            let node = search.nodes.cells()[at as usize];
            if search.visit(at as usize) {
                self.unlink(search.nodes.cells_mut(), at as usize, at as usize);
            }
            at = if self.newest_first { node.older } else { node.newer };
        }
    }

    /// Unlinks the nodes from `first` to `last`, which are consecutive in the list.
    #[inline]
    pub(super) fn unlink(&mut self, cells: &mut [Node], first: usize, last: usize) {
        let older = cells[first].older;
        let newer = cells[last].newer;
        match newer {
            NIL => self.newest = older,
            newer => cells[newer as usize].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => cells[older as usize].newer = newer,
        }
    }

    /// Links the nodes from `first` to `last`, a chain, at the newest end.
    #[inline]
    pub(super) fn link_newest(&mut self, cells: &mut [Node], first: usize, last: usize) {
        let older = self.newest;
        cells[first].older = older;
        cells[last].newer = NIL;
        match older {
            NIL => self.oldest = first as u32,
            older => cells[older as usize].newer = first as u32,
        }
        self.newest = last as u32;
    }
}
