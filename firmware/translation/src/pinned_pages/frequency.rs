//! Victims by number of uses since pinning: LFU and MFU.

use super::nodes::{Candidacy, NIL, Node, Search};
use super::recency::Recency;
use crate::page::Page;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Pages with equal numbers of uses share a list, in the order of their last use.
#[derive(Clone, Debug)]
pub(super) struct Frequency {
    /// The listed pages, by number of uses. No list is empty.
    listed: BTreeMap<u64, Recency>,
    /// How often each pinned page was used.
    uses: Vec<u64>,
    most_first: bool,
}

impl Frequency {
    /// Victims are the least often used, of these the least recently used.
    pub(super) fn least_first() -> Self {
        Frequency { listed: BTreeMap::new(), uses: Vec::new(), most_first: false }
    }

    /// Victims are the most often used, of these the least recently used.
    pub(super) fn most_first() -> Self {
        Frequency { most_first: true, ..Self::least_first() }
    }

    /// Adds a pinned page, for a use or ahead of it.
    pub(super) fn add(&mut self, cells: &mut [Node], at: usize, used: bool) {
        if self.uses.len() < cells.len() {
            self.uses.resize(cells.len(), 0);
        }
        self.uses[at] = u64::from(used);
        self.list(cells, at);
    }

    /// Makes a page the most recently used of those with as many uses.
    pub(super) fn list(&mut self, cells: &mut [Node], at: usize) {
        self.listed.entry(self.uses[at]).or_insert_with(Recency::oldest_first).link_newest(cells, at, at);
    }

    /// Takes out a listed page.
    pub(super) fn remove(&mut self, cells: &mut [Node], at: usize) {
        if let Some(list) = self.listed.get_mut(&self.uses[at]) {
            list.unlink(cells, at, at);
            if list.oldest() == NIL {
                self.listed.remove(&self.uses[at]);
            }
        }
    }

    /// Counts one more use, if the page is pinned.
    pub(super) fn touch(&mut self, cells: &mut [Node], at: usize) {
        match cells[at].candidacy {
            Candidacy::Absent => return,
            Candidacy::Parked => cells[at].candidacy = Candidacy::Listed,
            Candidacy::Listed => self.remove(cells, at),
        }
        self.uses[at] += 1;
        self.list(cells, at);
    }

    pub(super) fn search(&mut self, search: &mut Search<'_, impl Fn(Page) -> bool>) {
        let mut search_list = |list: &mut Recency| {
            list.search(search);
            (search.missing > 0).then_some(())
        };
        let _ = match self.most_first {
            true => self.listed.values_mut().rev().try_for_each(&mut search_list),
            false => self.listed.values_mut().try_for_each(&mut search_list),
        };
        if search.parked {
            self.listed.retain(|_, list| list.oldest() != NIL);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.listed.len() * size_of::<(u64, Recency)>() + self.uses.capacity() * size_of::<u64>()
    }
}
