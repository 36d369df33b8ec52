//! LU factorisation without pivoting of a dense row-major matrix, in one allocation.
//!
//! Rows are dealt to the workers in turn, and lie one after another: neighbours share pages and cache lines, and belong to different
//! workers. At step `k` every worker subtracts row `k` from those of its rows that remain; a barrier ends the step. Every element sees the
//! same operations in the same order whoever performs them: the result equals the sequential one to the last bit.

use clap::Args;
use serde_json::{Value, json};

use crate::crew::{Crew, Worker};
use crate::error::Failure;
use crate::lu::{Factors, Lu, subtract_scaled};
use crate::phase::Blocks;
use crate::program::Program;

/// The matrix.
#[derive(Args, Clone, Debug)]
pub struct LuNc {
    /// Rows and columns of the matrix
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub size: usize,
}

impl LuNc {
    /// The same matrix as one block: its factors lie as the rows do here.
    fn block(&self) -> Lu {
        Lu { size: self.size, block: self.size }
    }
}

impl Program for LuNc {
    type Memory<'c> = Blocks<'c, f64>;
    type Outcome = Factors;

    fn name(&self) -> &'static str {
        "lu-nc"
    }

    fn check(&self) -> Result<(), Failure> {
        self.block().check()
    }

    fn problem(&self) -> String {
        format!("LU factorisation of a row-major {0} x {0} matrix", self.size)
    }

    fn fields(&self) -> Value {
        json!({"size": self.size})
    }

    fn shared_bytes(&self, _workers: usize) -> u64 {
        (self.size * self.size * size_of::<f64>()) as u64
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Blocks<'c, f64>, Failure> {
        crew.adjacent(&vec![self.size; self.size])
    }

    fn prepare(&self, worker: &Worker<'_>, rows: &Blocks<'_, f64>) -> Result<(), Failure> {
        for i in (worker.id()..self.size).step_by(worker.count()) {
            for (j, element) in rows[i].write().iter_mut().enumerate() {
                *element = self.block().element(i, j);
            }
        }
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, rows: &Blocks<'_, f64>) -> Result<(), Failure> {
        let (me, workers) = (worker.id(), worker.count());
        for k in 0..self.size {
            let pivot_row = rows[k].read();
            let mut mine = (k + 1..self.size).filter(|i| i % workers == me).peekable();
            if k % workers != me && mine.peek().is_some() {
                worker.note_must_move(((self.size - k) * size_of::<f64>()) as u64);
            }
            for i in mine {
                eliminate(&mut rows[i].write()[k..], &pivot_row[k..]);
            }
            drop(pivot_row);
            worker.barrier()?;
        }
        Ok(())
    }

    fn collect(&self, rows: &Blocks<'_, f64>) -> Factors {
        Factors((0..self.size).flat_map(|i| rows[i].read().to_vec()).collect())
    }

    fn verify(&self, factors: &Factors) -> Result<(), Failure> {
        self.block().verify(factors)
    }

    fn compare(&self, factors: &Factors, sequential: &Factors) -> Result<(), Failure> {
        self.block().compare(factors, sequential)
    }

    fn describe(&self, factors: &Factors) -> Vec<String> {
        self.block().describe(factors)
    }
}

/// Subtracts from a row that multiple of the pivot's row that clears its first element, and keeps the multiple there. Never inlined, so
/// that every mode runs the same machine code.
#[inline(never)]
fn eliminate(row: &mut [f64], pivot_row: &[f64]) {
    row[0] /= pivot_row[0];
    let scale = row[0];
    subtract_scaled(&mut row[1..], &pivot_row[1..], scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    #[test]
    fn any_number_of_workers_gives_the_factors_of_one_block() {
        for size in [1, 2, 7, 40] {
            let program = LuNc { size };
            let block = solve(&program.block(), &Crew::plain(1)).unwrap();
            for workers in [1, 2, 3, 5] {
                let factors = solve(&program, &Crew::plain(workers)).unwrap();
                program.verify(&factors).unwrap();
                program.compare(&factors, &block).unwrap();
            }
        }
    }

    #[test]
    fn each_row_must_move_once_to_each_worker_that_needs_it() {
        let crew = Crew::plain(2);
        solve(&LuNc { size: 4 }, &crew).unwrap();
        // Rows 0, 1 and 2, from their diagonal on.
        assert_eq!(crew.traffic().must_move_bytes, (4 + 3 + 2) * 8);
    }
}
