//! Equal-sized blocks of cells over a sparse numbering: the second level of the library-side structures.
//!
//! All leaves live in one vector, so that a cell is one load away from the vector's start and the leaf's base; the last leaf used is
//! remembered, so that neighbours cost no search. A leaf whose cells are all vacant is reused for the next number that needs one.

use crate::sparse::SparseIndex;
use alloc::vec::Vec;

const NO_LEAF: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Leaves<T, const CELLS: usize> {
    /// Cells of all leaves; those of a leaf begin at its base.
    cells: Vec<T>,
    vacant: T,
    index: SparseIndex,
    last_number: u64,
    last_base: usize,
    of_leaf: Vec<Leaf>,
    spare: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    number: u64,
    occupied: u32,
}

impl<T: Copy, const CELLS: usize> Leaves<T, CELLS> {
    pub(crate) fn new(vacant: T) -> Self {
        Leaves {
            cells: Vec::new(),
            vacant,
            index: SparseIndex::with_slots(16),
            last_number: NO_LEAF,
            last_base: 0,
            of_leaf: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Cells of all leaves; those of a leaf begin at its base.
    #[inline(always)]
    pub(crate) fn cells(&self) -> &[T] {
        &self.cells
    }

    /// As [`cells`](Self::cells), mutable.
    #[inline(always)]
    pub(crate) fn cells_mut(&mut self) -> &mut [T] {
        &mut self.cells
    }

    /// Base of the leaf with this number, if it was used last.
    #[inline(always)]
    pub(crate) fn last(&self, number: u64) -> Option<usize> {
        (number == self.last_number).then_some(self.last_base)
    }

    /// Base of the leaf with this number, if it exists.
    #[inline(always)]
    pub(crate) fn find(&mut self, number: u64) -> Option<usize> {
        self.last(number).or_else(|| self.find_other(number))
    }

    #[inline(never)]
    fn find_other(&mut self, number: u64) -> Option<usize> {
        let base = self.peek(number)?;
        self.last_number = number;
        self.last_base = base;
        Some(base)
    }

    /// As `find`, without remembering the leaf.
    #[inline]
    pub(crate) fn peek(&self, number: u64) -> Option<usize> {
        self.index.get(number).map(|leaf| leaf * CELLS)
    }

    /// Base of the leaf with this number, created with vacant cells if necessary.
    pub(crate) fn find_or_add(&mut self, number: u64) -> usize {
        if let Some(base) = self.find(number) {
            return base;
        }
        let fresh = Leaf { number, occupied: 0 };
        let leaf = match self.spare.pop() {
            Some(leaf) => {
                self.cells[leaf * CELLS..][..CELLS].fill(self.vacant);
                self.of_leaf[leaf] = fresh;
                leaf
            }
            None => {
                self.cells.resize(self.cells.len() + CELLS, self.vacant);
                self.of_leaf.push(fresh);
                // Freeing leaves allocates nothing: it may happen where a page fault has interrupted an allocator.
                self.spare.reserve(self.of_leaf.len());
                self.of_leaf.len() - 1
            }
        };
        self.index.insert(number, leaf);
        self.last_number = number;
        self.last_base = leaf * CELLS;
        self.last_base
    }

    /// Number of the leaf that holds the cell.
    pub(crate) fn number_of(&self, cell: usize) -> u64 {
        self.of_leaf[cell / CELLS].number
    }

    /// Counts `amount` uses of cells of the leaf, which keep it alive.
    #[inline]
    pub(crate) fn occupy(&mut self, base: usize, amount: u32) {
        self.of_leaf[base / CELLS].occupied += amount;
    }

    /// Subtracts `amount` uses; a leaf without any is freed.
    #[inline]
    pub(crate) fn vacate(&mut self, base: usize, amount: u32) {
        let leaf = base / CELLS;
        self.of_leaf[leaf].occupied -= amount;
        if self.of_leaf[leaf].occupied == 0 {
            self.give_up(leaf);
        }
    }

    #[cold]
    fn give_up(&mut self, leaf: usize) {
        let number = self.of_leaf[leaf].number;
        self.index.remove(number);
        self.spare.push(leaf);
        if self.last_number == number {
            self.last_number = NO_LEAF;
        }
    }

    /// Host memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<T>()
            + self.of_leaf.capacity() * size_of::<Leaf>()
            + self.spare.capacity() * size_of::<usize>()
            + self.index.slots() * crate::sparse::SLOT_BYTES
    }

    #[cfg(test)]
    pub(crate) fn leaf_count(&self) -> usize {
        self.of_leaf.len() - self.spare.len()
    }
}
