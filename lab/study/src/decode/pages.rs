//! Numbers for the pages of a node's processes.

use std::collections::{BTreeSet, HashMap};

use mapwire_translation::{Page, Process};

const PAGE_BITS: u32 = 36;
const LEAF_SHIFT: u32 = 6;
const LEAF_PAGES: usize = 1 << LEAF_SHIFT;
const NONE: u32 = u32::MAX;
const NEAR: usize = 512;

/// Page numbers of one node, both ways: a (process, page) has the number that is the count of those met before it.
///
/// Numbers stand in leaves of 64 neighbouring pages; the leaves used of late are found without hashing.
#[derive(Clone, Debug)]
pub struct Pages {
    names: Vec<u64>,
    leaves: Vec<u32>,
    index: HashMap<u64, u32>,
    near: Vec<(u64, u32)>,
    processes: BTreeSet<u16>,
}

impl Default for Pages {
    fn default() -> Self {
        Pages {
            names: Vec::new(),
            leaves: Vec::new(),
            index: HashMap::new(),
            near: vec![(u64::MAX, 0); NEAR],
            processes: BTreeSet::new(),
        }
    }
}

/// Process and page in one number; neighbouring pages are neighbours.
fn name(process: Process, page: Page) -> u64 {
    u64::from(process.0) << PAGE_BITS | page.0
}

impl Pages {
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn processes(&self) -> u64 {
        self.processes.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Which page has that number. Panics on a number that none has.
    pub fn name(&self, id: u32) -> (Process, Page) {
        let name = self.names[id as usize];
        (Process((name >> PAGE_BITS) as u16), Page(name & ((1 << PAGE_BITS) - 1)))
    }

    /// The page's number; the next free one if it has none. The page lies in the 48-bit address space.
    #[inline]
    pub fn id(&mut self, process: Process, page: Page) -> u32 {
        let name = name(process, page);
        let leaf = name >> LEAF_SHIFT;
        let near = near_place(leaf);
        let base = match self.near[near] {
            (found, base) if found == leaf => base,
            _ => self.find_leaf(leaf, near),
        };
        let cell = &mut self.leaves[cell(base, name)];
        if *cell == NONE {
            *cell = self.names.len() as u32;
            self.names.push(name);
        }
        *cell
    }

    pub fn find(&self, process: Process, page: Page) -> Option<u32> {
        let name = name(process, page);
        let base = *self.index.get(&(name >> LEAF_SHIFT))?;
        let id = self.leaves[cell(base, name)];
        (id != NONE).then_some(id)
    }

    #[inline(never)]
    fn find_leaf(&mut self, leaf: u64, near: usize) -> u32 {
        let Pages { leaves, processes, .. } = self;
        let base = *self.index.entry(leaf).or_insert_with(|| {
            let at = leaves.len() / LEAF_PAGES;
            processes.insert((leaf >> (PAGE_BITS - LEAF_SHIFT)) as u16);
            leaves.resize(leaves.len() + LEAF_PAGES, NONE);
            at as u32
        });
        self.near[near] = (leaf, base);
        base
    }
}

#[inline(always)]
fn cell(leaf: u32, name: u64) -> usize {
    (leaf as usize) << LEAF_SHIFT | (name as usize & (LEAF_PAGES - 1))
}

/// Neighbouring leaves, and equal leaves of processes that follow one another, have different places.
#[inline(always)]
fn near_place(leaf: u64) -> usize {
    (leaf ^ (leaf >> (PAGE_BITS - LEAF_SHIFT)).wrapping_mul(0x9d)) as usize & (NEAR - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn numbers_are_given_in_order_of_first_appearance(
            names in prop::collection::vec((0_u16..5, prop_oneof![0_u64..200, (1_u64 << 20)..(1_u64 << 20) + 3, 0_u64..1 << 36]), 0..400),
        ) {
            let mut pages = Pages::default();
            let mut oracle: Vec<(u16, u64)> = Vec::new();
            for (process, page) in names {
                let expected = oracle.iter().position(|it| *it == (process, page));
                prop_assert_eq!(pages.find(Process(process), Page(page)), expected.map(|at| at as u32));
                let expected = expected.unwrap_or_else(|| {
                    oracle.push((process, page));
                    oracle.len() - 1
                });
                let id = pages.id(Process(process), Page(page));
                prop_assert_eq!(id as usize, expected);
                prop_assert_eq!(pages.name(id), (Process(process), Page(page)));
            }
            prop_assert_eq!(pages.len(), oracle.len());
        }
    }
}
