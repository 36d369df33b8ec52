//! LU factorisation without pivoting of a dense matrix, in blocks.
//!
//! A block is contiguous and is a block of shared memory (32 × 32: two pages). Blocks are dealt to the workers as to the squares of a
//! grid, repeated in both directions, so that each has work to the end. Step `k` has three phases with a barrier after each: factor the
//! diagonal block; divide the blocks of its row and column by it; subtract their products from the blocks that remain. Every block sees
//! the same operations in the same order whoever performs them: the result equals the sequential one to the last bit.

use clap::Args;
use serde_json::{Value, json};

use crate::crew::{Crew, Worker};
use crate::error::{Failure, ensure, ensure_same_bits};
use crate::phase::{Blocks, room_for};
use crate::program::Program;
use crate::random::even;

/// The largest matrix: 8 GiB.
const MAX_SIZE: usize = 32768;

/// The matrix and its blocks.
#[derive(Args, Clone, Debug)]
pub struct Lu {
    /// Rows and columns of the matrix
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub size: usize,
    /// Rows and columns of a block; must divide the size
    #[arg(long, default_value_t = 32, value_name = "B")]
    pub block: usize,
}

/// The factors, block after block: row-major blocks in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors(pub(crate) Vec<f64>);

impl Lu {
    /// Number of blocks in a row of blocks.
    fn side(&self) -> usize {
        self.size / self.block
    }

    fn number(&self, i: usize, j: usize) -> usize {
        i * self.side() + j
    }

    /// The worker that computes block (`i`, `j`).
    fn owner(&self, i: usize, j: usize, workers: usize) -> usize {
        let (high, wide) = grid(workers);
        (i % high) * wide + j % wide
    }

    /// Element (`i`, `j`) of the matrix: in [-1, 1), and on the diagonal larger than all of its row together.
    pub(crate) fn element(&self, i: usize, j: usize) -> f64 {
        let value = even((i as u64) << 32 | j as u64);
        if i == j { value + 2.0 * self.size as f64 } else { value }
    }
}

/// The squarest grid of `workers`: rows (the fewer) and columns.
fn grid(workers: usize) -> (usize, usize) {
    let high =
        (1..=workers).take_while(|h| h * h <= workers).filter(|h| workers.is_multiple_of(*h)).last().unwrap_or(1);
    (high, workers / high)
}

impl Program for Lu {
    type Memory<'c> = Blocks<'c, f64>;
    type Outcome = Factors;

    fn name(&self) -> &'static str {
        "lu"
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { size, block } = *self;
        if size == 0 || size > MAX_SIZE {
            return Err(Failure::Input(format!("--size {size}: must be between 1 and {MAX_SIZE}")));
        }
        if block == 0 || !size.is_multiple_of(block) {
            return Err(Failure::Input(format!("--block {block}: must divide the size, {size}")));
        }
        Ok(())
    }

    fn problem(&self) -> String {
        format!("LU factorisation of a {0} x {0} matrix in blocks of {1} x {1}", self.size, self.block)
    }

    fn fields(&self) -> Value {
        json!({"size": self.size, "block": self.block})
    }

    fn shared_bytes(&self, _workers: usize) -> u64 {
        let block = self.block * self.block * size_of::<f64>();
        (self.side() * self.side()) as u64 * room_for(block)
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Blocks<'c, f64>, Failure> {
        let (side, workers) = (self.side(), crew.workers());
        crew.blocks((0..side * side).map(|number| {
            let owner = self.owner(number / side, number % side, workers);
            (self.block * self.block, owner)
        }))
    }

    fn prepare(&self, worker: &Worker<'_>, blocks: &Blocks<'_, f64>) -> Result<(), Failure> {
        let size = self.block;
        for i in 0..self.side() {
            for j in 0..self.side() {
                if self.owner(i, j, worker.count()) == worker.id() {
                    let mut block = blocks[self.number(i, j)].write();
                    for (at, element) in block.iter_mut().enumerate() {
                        *element = self.element(i * size + at / size, j * size + at % size);
                    }
                }
            }
        }
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, blocks: &Blocks<'_, f64>) -> Result<(), Failure> {
        let (size, side) = (self.block, self.side());
        let mine = |i, j| self.owner(i, j, worker.count()) == worker.id();
        let at = |i, j| &blocks[self.number(i, j)];
        for k in 0..side {
            if mine(k, k) {
                factor(&mut at(k, k).write(), size);
            }
            worker.barrier()?;
            let bytes = (size * size * size_of::<f64>()) as u64;
            if !mine(k, k) && (k + 1..side).any(|far| mine(far, k) || mine(k, far)) {
                worker.note_must_move(bytes);
            }
            for far in k + 1..side {
                if mine(far, k) {
                    divide_by_upper(&mut at(far, k).write(), &at(k, k).read(), size);
                }
                if mine(k, far) {
                    divide_by_lower(&mut at(k, far).write(), &at(k, k).read(), size);
                }
            }
            worker.barrier()?;
            for far in k + 1..side {
                let needs_left = !mine(far, k) && (k + 1..side).any(|j| mine(far, j));
                let needs_top = !mine(k, far) && (k + 1..side).any(|i| mine(i, far));
                worker.note_must_move(bytes * (u64::from(needs_left) + u64::from(needs_top)));
            }
            for i in k + 1..side {
                for j in k + 1..side {
                    if mine(i, j) {
                        let (left, top) = (at(i, k).read(), at(k, j).read());
                        subtract_product(&mut at(i, j).write(), &left, &top, size);
                    }
                }
            }
            worker.barrier()?;
        }
        Ok(())
    }

    fn collect(&self, blocks: &Blocks<'_, f64>) -> Factors {
        let mut all = Vec::with_capacity(self.size * self.size);
        for number in 0..blocks.count() {
            all.extend_from_slice(&blocks[number].read());
        }
        Factors(all)
    }

    fn verify(&self, factors: &Factors) -> Result<(), Failure> {
        let residual = self.residual(factors);
        ensure(residual < RESIDUAL_LIMIT, || format!("L U x is off A x by {residual:e} of its size, for x of ones"))
    }

    fn compare(&self, factors: &Factors, sequential: &Factors) -> Result<(), Failure> {
        ensure_same_bits(&factors.0, &sequential.0, "elements", |at| {
            let (block, within) = (at / self.block.pow(2), at % self.block.pow(2));
            let (row, column) = (block / self.side() * self.block, block % self.side() * self.block);
            (row + within / self.block, column + within % self.block)
        })
    }

    fn describe(&self, factors: &Factors) -> Vec<String> {
        vec![format!("residual of L U x = A x, relative: {:.3e}", self.residual(factors))]
    }
}

/// Rounding leaves a residual near 1e-16; a wrong block leaves one near 1.
const RESIDUAL_LIMIT: f64 = 1e-12;

impl Lu {
    fn factor_at(&self, factors: &Factors, i: usize, j: usize) -> f64 {
        let number = self.number(i / self.block, j / self.block);
        let within = i % self.block * self.block + j % self.block;
        factors.0[number * self.block * self.block + within]
    }

    /// The largest element of `L U x − A x` over the largest of `A x`, for x of ones.
    fn residual(&self, factors: &Factors) -> f64 {
        let n = self.size;
        let upper: Vec<f64> = (0..n).map(|i| (i..n).map(|j| self.factor_at(factors, i, j)).sum()).collect();
        let (mut off, mut largest) = (0.0f64, 0.0f64);
        for i in 0..n {
            let lower: f64 = (0..i).map(|j| self.factor_at(factors, i, j) * upper[j]).sum();
            let expected: f64 = (0..n).map(|j| self.element(i, j)).sum();
            let difference = (lower + upper[i] - expected).abs();
            if difference.is_nan() {
                return f64::INFINITY;
            }
            off = off.max(difference);
            largest = largest.max(expected.abs());
        }
        off / largest
    }
}

/// Factors a block in place: unit lower triangle below the diagonal, upper triangle on and above it.
fn factor(block: &mut [f64], size: usize) {
    for k in 0..size {
        let (done, rest) = block.split_at_mut((k + 1) * size);
        let pivot_row = &done[k * size..];
        for row in rest.chunks_exact_mut(size) {
            row[k] /= pivot_row[k];
            let scale = row[k];
            subtract_scaled(&mut row[k + 1..], &pivot_row[k + 1..], scale);
        }
    }
}

/// `block` ← `block` U⁻¹, where U is the upper triangle of `diagonal`: for the blocks below it.
fn divide_by_upper(block: &mut [f64], diagonal: &[f64], size: usize) {
    for row in block.chunks_exact_mut(size) {
        for (k, pivot_row) in diagonal.chunks_exact(size).enumerate() {
            row[k] /= pivot_row[k];
            let scale = row[k];
            subtract_scaled(&mut row[k + 1..], &pivot_row[k + 1..], scale);
        }
    }
}

/// `block` ← L⁻¹ `block`, where L is the unit lower triangle of `diagonal`: for the blocks to its right.
fn divide_by_lower(block: &mut [f64], diagonal: &[f64], size: usize) {
    for (i, scales) in diagonal.chunks_exact(size).enumerate() {
        let (done, rest) = block.split_at_mut(i * size);
        for (row, &scale) in done.chunks_exact(size).zip(scales) {
            subtract_scaled(&mut rest[..size], row, scale);
        }
    }
}

/// `block` ← `block` − `left` × `top`.
///
/// Never inlined, so that every mode runs the same machine code.
#[inline(never)]
fn subtract_product(block: &mut [f64], left: &[f64], top: &[f64], size: usize) {
    for (row, scales) in block.chunks_exact_mut(size).zip(left.chunks_exact(size)) {
        for (&scale, other) in scales.iter().zip(top.chunks_exact(size)) {
            subtract_scaled(row, other, scale);
        }
    }
}

#[inline]
pub(crate) fn subtract_scaled(row: &mut [f64], other: &[f64], scale: f64) {
    for (x, &y) in row.iter_mut().zip(other) {
        *x -= scale * y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    fn run(lu: &Lu, workers: usize) -> Factors {
        solve(lu, &Crew::plain(workers)).unwrap()
    }

    #[test]
    fn the_product_of_the_factors_is_the_matrix() {
        let lu = Lu { size: 24, block: 4 };
        let factors = run(&lu, 1);
        for i in 0..24 {
            for j in 0..24 {
                let product: f64 = (0..=i.min(j))
                    .map(|k| {
                        let lower = if k == i { 1.0 } else { lu.factor_at(&factors, i, k) };
                        lower * lu.factor_at(&factors, k, j)
                    })
                    .sum();
                assert!((product - lu.element(i, j)).abs() < 1e-12, "at {i}, {j}");
            }
        }
        lu.verify(&factors).unwrap();
    }

    #[test]
    fn any_number_of_workers_gives_the_sequential_factors_to_the_last_bit() {
        for (size, block) in [(12, 12), (24, 4), (40, 8), (7, 1)] {
            let lu = Lu { size, block };
            let sequential = run(&lu, 1);
            for workers in [2, 3, 4, 6] {
                lu.compare(&run(&lu, workers), &sequential).unwrap();
            }
        }
    }

    #[test]
    fn grids_are_as_square_as_the_workers_allow() {
        let grids: Vec<_> = [1, 2, 3, 4, 6, 12, 13].map(grid).into();
        assert_eq!(grids, [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 4), (1, 13)]);
    }

    #[test]
    fn a_wrong_element_is_found_and_named() {
        let lu = Lu { size: 8, block: 4 };
        let right = run(&lu, 1);
        let mut wrong = right.clone();
        // Block (1, 0), its row 2, column 3.
        wrong.0[2 * 16 + 2 * 4 + 3] += 1.0;
        assert!(lu.verify(&wrong).is_err());
        let message = lu.compare(&wrong, &right).unwrap_err().to_string();
        assert!(message.contains("row 6, column 3"), "{message}");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (size, block) in [(0, 1), (64, 0), (100, 32), (1 << 20, 32), (16, 32)] {
            assert_eq!(Lu { size, block }.check().unwrap_err().exit_code(), 2);
        }
    }
}
