//! The interface of a parallel program, for the code that runs, times and checks it.

use serde_json::{Value, json};

use crate::crew::{Crew, Worker};
use crate::error::Failure;

/// A parallel program: one problem, its shared memory, and the work on it.
///
/// A run calls [`layout`](Program::layout) in every rank, then in every worker [`prepare`](Program::prepare), a barrier,
/// [`work`](Program::work), a barrier; then [`collect`](Program::collect) in rank 0. A layout serves many runs: `prepare`
/// sets everything that `work` relies on.
pub trait Program: Sync {
    /// The blocks and words of a run, in the memory of a crew.
    type Memory<'c>: Sync;
    /// The result, copied out of shared memory.
    type Outcome: Send;

    /// The program's name, as on the command line.
    fn name(&self) -> &'static str;

    /// Refuses invalid sizes.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// The problem in one line of text.
    fn problem(&self) -> String;

    /// The problem's own fields, for a row of figures: an object.
    fn fields(&self) -> Value;

    /// Approximate bytes of shared memory in a layout for `workers`.
    fn shared_bytes(&self, workers: usize) -> u64;

    /// Lays out shared memory. Collective over ranks.
    fn layout<'c>(&self, crew: &'c Crew) -> Result<Self::Memory<'c>, Failure>;

    /// Puts the problem into shared memory, each worker its own part. Not timed.
    fn prepare(&self, worker: &Worker<'_>, memory: &Self::Memory<'_>) -> Result<(), Failure>;

    /// Solves it. Timed.
    fn work(&self, worker: &Worker<'_>, memory: &Self::Memory<'_>) -> Result<(), Failure>;

    /// Copies the result out. Rank 0 only, while no worker works.
    fn collect(&self, memory: &Self::Memory<'_>) -> Self::Outcome;

    /// Checks that the outcome is a valid result of this problem.
    fn verify(&self, outcome: &Self::Outcome) -> Result<(), Failure>;

    /// Checks that it equals the sequential run's result.
    fn compare(&self, outcome: &Self::Outcome, sequential: &Self::Outcome) -> Result<(), Failure>;

    /// The result as lines of text.
    fn describe(&self, outcome: &Self::Outcome) -> Vec<String>;

    /// The result's own fields, for a row of figures: an object.
    fn outcome_fields(&self, _outcome: &Self::Outcome) -> Value {
        json!({})
    }
}
