//! How these tests run: see `job` for how a test becomes a job.

pub(crate) mod denials;
pub(crate) mod hostile;
mod job;
mod leaks;
mod rank;

pub(crate) use job::{Job, is_rank, job, launcher};
pub(crate) use rank::{Rank, eventually, pattern, refusal, refused};
