//! Red-black successive over-relaxation: Laplace's equation on a square, boundary given.
//!
//! The points of a row are stored apart by colour, and a half row is a block. A half-sweep of one colour then writes
//! whole blocks and reads whole blocks of the other colour: workers share nothing but the half rows at
//! the edges of their strips, and every inner loop runs through contiguous memory.
//!
//! The boundary is that of x² − y², whose five-point differences vanish exactly, so the solution is known.

use std::ops::Range;

use clap::Args;
use serde_json::{Value, json};

use crate::crew::{Crew, Worker, share_of, sharer_of};
use crate::error::{Failure, ensure, ensure_same_bits};
use crate::phase::{Blocks, room_for};
use crate::program::Program;

/// Largest side: beyond it a matrix takes more than 32 GiB.
const MAX_SIZE: usize = 65536;

/// The matrix and how long to relax it.
#[derive(Args, Clone, Debug)]
pub struct Sor {
    /// Side of the square matrix, boundary included: an even number, at least 4
    #[arg(long, default_value_t = 2048, value_name = "N")]
    pub size: usize,
    /// Iterations, each of a red and a black half-sweep
    #[arg(long, default_value_t = 300, value_name = "I")]
    pub iterations: usize,
}

/// The matrix after the last iteration: rows of points in their natural order.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    size: usize,
    points: Vec<f64>,
}

impl Sor {
    /// Number of points of one colour in a row.
    fn half(&self) -> usize {
        self.size / 2
    }

    /// The relaxation factor that converges fastest on a square of this side.
    fn omega(&self) -> f64 {
        2.0 / (1.0 + (std::f64::consts::PI / (self.size - 1) as f64).sin())
    }

    /// The solution at row `i`, column `j`, and the boundary's value there.
    fn exact(&self, i: usize, j: usize) -> f64 {
        let step = 1.0 / (self.size - 1) as f64;
        let (y, x) = (i as f64 * step, j as f64 * step);
        x * x - y * y
    }

    /// The value at the start: the boundary's, and inside something uneven, so that no point is ever tiny
    /// (denormal numbers are computed a hundred times slower).
    fn start(&self, i: usize, j: usize) -> f64 {
        let last = self.size - 1;
        if i == 0 || j == 0 || i == last || j == last {
            self.exact(i, j)
        } else {
            let mixed = ((i as u64) << 32 | j as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            0.5 + mixed as f64 / (1u64 << 25) as f64
        }
    }
}

/// The points of row `row` that have `colour` (0 red, 1 black) begin at this column and take every second one.
fn first_column(row: usize, colour: usize) -> usize {
    (row + colour) % 2
}

/// Blocks `2 * row + colour`: the points of one colour in one row.
pub struct Rows<'c> {
    halves: Blocks<'c, f64>,
}

impl Program for Sor {
    type Memory<'c> = Rows<'c>;
    type Outcome = Matrix;

    fn name(&self) -> &'static str {
        "sor"
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { size, iterations } = *self;
        if size < 4 || size % 2 == 1 {
            return Err(Failure::Input(format!("--size {size}: the matrix needs an even side of at least 4")));
        }
        if size > MAX_SIZE {
            return Err(Failure::Input(format!("--size {size}: the largest side is {MAX_SIZE}")));
        }
        if iterations == 0 {
            return Err(Failure::Input("--iterations 0: relax at least once".to_string()));
        }
        Ok(())
    }

    fn problem(&self) -> String {
        format!("red-black over-relaxation of a {0} x {0} matrix, {1} iterations", self.size, self.iterations)
    }

    fn fields(&self) -> Value {
        json!({"size": self.size, "iterations": self.iterations})
    }

    fn shared_bytes(&self, _workers: usize) -> u64 {
        2 * self.size as u64 * room_for(self.half() * size_of::<f64>())
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Rows<'c>, Failure> {
        let workers = crew.workers();
        let halves =
            crew.blocks((0..2 * self.size).map(|number| (self.half(), sharer_of(number / 2, self.size, workers))))?;
        Ok(Rows { halves })
    }

    fn prepare(&self, worker: &Worker<'_>, memory: &Rows<'_>) -> Result<(), Failure> {
        for row in worker.share_of(self.size) {
            for colour in 0..2 {
                let first = first_column(row, colour);
                let mut half = memory.halves[2 * row + colour].write();
                for (k, point) in half.iter_mut().enumerate() {
                    *point = self.start(row, first + 2 * k);
                }
            }
        }
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, memory: &Rows<'_>) -> Result<(), Failure> {
        let share = share_of(self.size, worker.id(), worker.count());
        let inner = share.start.max(1)..share.end.min(self.size - 1);
        let omega = self.omega();
        // Rows of the neighbours that this strip reads: those of the boundary change once, before the first iteration.
        let edges = [share.start.checked_sub(1), Some(share.end)].into_iter().flatten().filter(|_| !inner.is_empty());
        let (fixed, changing): (Vec<_>, Vec<_>) =
            edges.filter(|&row| row < self.size).partition(|&row| row == 0 || row == self.size - 1);
        for iteration in 0..self.iterations {
            let moving = changing.len() + if iteration == 0 { fixed.len() } else { 0 };
            for colour in 0..2 {
                worker.note_must_move((moving * self.half() * size_of::<f64>()) as u64);
                ask_for_edges(&memory.halves, share.clone(), colour)?;
                for rows in edges_last(inner.clone()) {
                    sweep(&memory.halves, rows, colour, omega);
                }
                worker.barrier()?;
            }
        }
        Ok(())
    }

    fn collect(&self, memory: &Rows<'_>) -> Matrix {
        let mut points = vec![0.0; self.size * self.size];
        for (row, into) in points.chunks_exact_mut(self.size).enumerate() {
            for colour in 0..2 {
                let first = first_column(row, colour);
                let half = memory.halves[2 * row + colour].read();
                for (point, &value) in into[first..].iter_mut().step_by(2).zip(half.iter()) {
                    *point = value;
                }
            }
        }
        Matrix { size: self.size, points }
    }

    fn verify(&self, matrix: &Matrix) -> Result<(), Failure> {
        let last = self.size - 1;
        for k in 0..self.size {
            for (i, j) in [(0, k), (last, k), (k, 0), (k, last)] {
                ensure(matrix.at(i, j) == self.exact(i, j), || {
                    format!("the boundary at row {i}, column {j} was changed")
                })?;
            }
        }
        // All starts within [-1, 1]; over-relaxation overshoots at first, but not without bound.
        let tame = |x: &f64| x.abs() < 1e6;
        match matrix.points.iter().position(|x| !tame(x)) {
            Some(at) => Err(Failure::Differs(format!(
                "row {}, column {} holds {}: the relaxation diverged",
                at / self.size,
                at % self.size,
                matrix.points[at]
            ))),
            None => Ok(()),
        }
    }

    fn compare(&self, matrix: &Matrix, sequential: &Matrix) -> Result<(), Failure> {
        ensure_same_bits(&matrix.points, &sequential.points, "points", |at| (at / self.size, at % self.size))
    }

    fn describe(&self, matrix: &Matrix) -> Vec<String> {
        let mut residual = 0.0f64;
        let mut error = 0.0f64;
        for i in 1..self.size - 1 {
            for j in 1..self.size - 1 {
                let around = matrix.at(i - 1, j) + matrix.at(i + 1, j) + matrix.at(i, j - 1) + matrix.at(i, j + 1);
                residual = residual.max((around / 4.0 - matrix.at(i, j)).abs());
                error = error.max((matrix.at(i, j) - self.exact(i, j)).abs());
            }
        }
        vec![format!("largest residual {residual:.3e}, largest distance from the solution {error:.3e}")]
    }
}

impl Matrix {
    fn at(&self, i: usize, j: usize) -> f64 {
        self.points[i * self.size + j]
    }
}

/// Requests the half rows that a strip shares with its neighbours: theirs to read, its own to write. They arrive while the strip's inner
/// rows are relaxed.
fn ask_for_edges(halves: &Blocks<'_, f64>, strip: Range<usize>, colour: usize) -> Result<(), Failure> {
    if strip.is_empty() {
        return Ok(());
    }
    let mut asked = Vec::new();
    let mut ask = |own: usize, theirs: usize| {
        asked.extend([(2 * theirs + 1 - colour, false), (2 * own + colour, true)]);
    };
    if strip.start > 0 {
        ask(strip.start, strip.start - 1);
    }
    if strip.end < halves.count() / 2 {
        ask(strip.end - 1, strip.end);
    }
    halves.prefetch(&asked)
}

/// The rows between a strip's first and last, its first, and its last.
fn edges_last(strip: Range<usize>) -> [Range<usize>; 3] {
    let Range { start, end } = strip;
    let after_first = end.min(start + 1);
    let before_last = after_first.max(end.saturating_sub(1));
    [after_first..before_last, start..after_first, before_last..end]
}

/// Relaxes the points of `colour` in `rows`, none of them a boundary row.
fn sweep(halves: &Blocks<'_, f64>, rows: Range<usize>, colour: usize, omega: f64) {
    if rows.is_empty() {
        return;
    }
    let other = 1 - colour;
    let mut above = halves[2 * (rows.start - 1) + other].read();
    let mut beside = halves[2 * rows.start + other].read();
    for row in rows {
        let below = halves[2 * (row + 1) + other].read();
        let mut points = halves[2 * row + colour].write();
        relax(&mut points, &above, &beside, &below, first_column(row, colour), omega);
        above = beside;
        beside = below;
    }
}

/// Relaxes one half row by the four neighbours of each point, all of the other colour.
///
/// With first column 1 a point's neighbours in its own row are `beside[k]` and `beside[k + 1]`, and the last point is
/// boundary; with first column 0 they are `beside[k - 1]` and `beside[k]`, and the first point is boundary.
///
/// Never inlined, so that every mode runs the same machine code.
#[inline(never)]
fn relax(points: &mut [f64], above: &[f64], beside: &[f64], below: &[f64], first_column: usize, omega: f64) {
    let inner = points.len() - 1;
    let skip = 1 - first_column;
    let points = &mut points[skip..][..inner];
    let above = &above[skip..][..inner];
    let below = &below[skip..][..inner];
    let (left, right) = (&beside[..inner], &beside[1..][..inner]);
    for k in 0..inner {
        let mean = 0.25 * ((above[k] + below[k]) + (left[k] + right[k]));
        points[k] += omega * (mean - points[k]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    fn run(sor: &Sor, workers: usize) -> Matrix {
        solve(sor, &Crew::plain(workers)).unwrap()
    }

    /// The same sweeps over a matrix in natural order, point by point.
    fn plainly(sor: &Sor) -> Matrix {
        let n = sor.size;
        let mut m: Vec<f64> = (0..n * n).map(|at| sor.start(at / n, at % n)).collect();
        for half_sweep in 0..2 * sor.iterations {
            for i in 1..n - 1 {
                for j in 1..n - 1 {
                    if (i + j) % 2 == half_sweep % 2 {
                        let vertical = m[(i - 1) * n + j] + m[(i + 1) * n + j];
                        let level = m[i * n + j - 1] + m[i * n + j + 1];
                        let mean = 0.25 * (vertical + level);
                        m[i * n + j] += sor.omega() * (mean - m[i * n + j]);
                    }
                }
            }
        }
        Matrix { size: n, points: m }
    }

    #[test]
    fn it_equals_a_point_by_point_relaxation_to_the_last_bit() {
        for size in [4, 6, 10, 34] {
            let sor = Sor { size, iterations: 7 };
            let expected = plainly(&sor);
            for workers in [1, 2, 3, 5] {
                let matrix = run(&sor, workers);
                sor.verify(&matrix).unwrap();
                sor.compare(&matrix, &expected).unwrap();
            }
        }
    }

    #[test]
    fn a_strip_is_cut_into_its_edges_and_the_rest() {
        assert_eq!(edges_last(4..9), [5..8, 4..5, 8..9]);
        assert_eq!(edges_last(4..6), [5..5, 4..5, 5..6]);
        assert_eq!(edges_last(4..5), [5..5, 4..5, 5..5]);
        assert!(edges_last(4..4).iter().all(Range::is_empty));
        // Shares of a small matrix can lie inside its boundary altogether.
        assert!(edges_last(Range { start: 1, end: 0 }).iter().all(Range::is_empty));
    }

    #[test]
    fn it_converges_to_the_known_solution() {
        let sor = Sor { size: 32, iterations: 200 };
        let matrix = run(&sor, 2);
        for i in 0..32 {
            for j in 0..32 {
                assert!((matrix.at(i, j) - sor.exact(i, j)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn more_workers_than_rows_is_no_matter() {
        let sor = Sor { size: 4, iterations: 2 };
        sor.compare(&run(&sor, 7), &run(&sor, 1)).unwrap();
    }

    #[test]
    fn a_changed_point_is_found_and_named() {
        let sor = Sor { size: 6, iterations: 1 };
        let right = run(&sor, 1);
        let mut wrong = right.clone();
        wrong.points[2 * 6 + 3] += 1e-9;
        let message = sor.compare(&wrong, &right).unwrap_err().to_string();
        assert!(message.contains("1 of 36 points") && message.contains("row 2, column 3"));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (size, iterations) in [(0, 1), (2, 1), (7, 1), (1 << 20, 1), (8, 0)] {
            let refusal = Sor { size, iterations }.check().unwrap_err();
            assert_eq!(refusal.exit_code(), 2);
        }
    }
}
