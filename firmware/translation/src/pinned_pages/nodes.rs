//! What is known of each page, and a search through it for victims.

use crate::leaves::Leaves;
use crate::page::Page;
use alloc::vec::Vec;

pub(super) const LEAF_PAGES: usize = 256;
pub(super) const LEAF_SHIFT: u32 = LEAF_PAGES.trailing_zeros();
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Candidacy {
    Absent,
    /// Pinned, and a candidate in searches for victims.
    Listed,
    /// Pinned, but taken out of the candidates because a search met it while a transfer held it; so the next search need not pass it
    /// again. Its last release, or a touch, puts it back as the most recently used.
    Parked,
}

/// 16 bytes for each page of the leaves that exist. Links are node positions: 32 bits reach 64 GiB of them. The ranking defines their
/// meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub newer: u32,
    pub older: u32,
    pub holds: u32,
    pub candidacy: Candidacy,
}

pub(super) const ABSENT: Node = Node { newer: NIL, older: NIL, holds: 0, candidacy: Candidacy::Absent };

pub(super) type Nodes = Leaves<Node, LEAF_PAGES>;

/// A search for victims under way.
pub(super) struct Search<'a, F> {
    pub nodes: &'a mut Nodes,
    pub may_go: F,
    pub missing: u64,
    pub out: &'a mut Vec<Page>,
    pub parked: bool,
}

impl<F: Fn(Page) -> bool> Search<'_, F> {
    /// Takes the node as a victim, unless it must stay. Returns whether it was parked: a transfer holds it, and the ranking unlists it.
    pub(super) fn visit(&mut self, at: usize) -> bool {
        if self.nodes.cells()[at].holds > 0 {
            self.nodes.cells_mut()[at].candidacy = Candidacy::Parked;
            self.parked = true;
            return true;
        }
        let page = page_at(self.nodes, at);
        if (self.may_go)(page) {
            self.out.push(page);
            self.missing -= 1;
        }
        false
    }
}

pub(super) fn page_at(nodes: &Nodes, at: usize) -> Page {
    Page(nodes.number_of(at) << LEAF_SHIFT | (at % LEAF_PAGES) as u64)
}

#[inline(always)]
pub(super) fn page_in_leaf(page: Page) -> usize {
    page.0 as usize % LEAF_PAGES
}
