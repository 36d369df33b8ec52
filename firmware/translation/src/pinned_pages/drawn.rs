//! Victims drawn at random: RANDOM.

use super::nodes::{Candidacy, Node, Search};
use crate::page::Page;
use alloc::vec::Vec;

/// All listed pages; a node's `older` is its index here.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    listed: Vec<u32>,
    random: SplitMix,
}

impl Drawn {
    pub(super) fn new(seed: u64) -> Self {
        Drawn { listed: Vec::new(), random: SplitMix(seed) }
    }

    pub(super) fn add(&mut self, cells: &mut [Node], at: usize) {
        cells[at].older = self.listed.len() as u32;
        self.listed.push(at as u32);
    }

    /// Leaves listed pages where they are; relists a parked one.
    pub(super) fn touch(&mut self, cells: &mut [Node], at: usize) {
        if cells[at].candidacy == Candidacy::Parked {
            cells[at].candidacy = Candidacy::Listed;
            self.add(cells, at);
        }
    }

    pub(super) fn remove(&mut self, cells: &mut [Node], at: usize) {
        let place = cells[at].older as usize;
        self.listed.swap_remove(place);
        if let Some(&moved) = self.listed.get(place) {
            cells[moved as usize].older = place as u32;
        }
    }

    /// Draws among those not drawn yet, which precede the others.
    pub(super) fn search(&mut self, search: &mut Search<'_, impl Fn(Page) -> bool>) {
        let mut left = self.listed.len();
        while search.missing > 0 && left > 0 {
            let place = self.random.below(left);
            left -= 1;
            self.swap(search.nodes.cells_mut(), place, left);
            let at = self.listed[left] as usize;
            if search.visit(at) {
                self.remove(search.nodes.cells_mut(), at);
            }
        }
    }

    fn swap(&mut self, cells: &mut [Node], one: usize, two: usize) {
        self.listed.swap(one, two);
        for place in [one, two] {
            cells[self.listed[place] as usize].older = place as u32;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.listed.capacity() * size_of::<u32>()
    }
}

/// The generator SplitMix64: every seed is good.
#[derive(Clone, Debug)]
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `end`, which must not be 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}
