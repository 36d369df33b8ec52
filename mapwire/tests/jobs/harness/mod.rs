//! How these tests run: see `job` for how a test becomes a job.

pub(crate) mod denials;
pub(crate) mod hostile;
mod job;
mod leaks;
mod rank;

pub(crate) use job::{Job, job};
pub(crate) use rank::{Rank, eventually, pattern, refusal, refused};
