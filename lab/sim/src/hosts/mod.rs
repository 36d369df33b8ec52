//! The shared memory on computers whose processors, page faults and networks take time.
//!
//! Each rank runs the protocol that jobs run ([`SharedMemory`](mapwire_node::SharedMemory)); a [`Machine`] says what each of its steps
//! takes, and how a host learns of a message. Threads have priorities and turns. Nothing is drawn: the same [`Program`] on the same machine
//! gives the same times everywhere.
//!
//! | module | |
//! |---|---|
//! | `machine` | constants, processors, how hosts learn of messages |
//! | `program` | what threads do |
//! | `captured` | programs from the traces of jobs |
//! | `made` | programs that are made up |
//! | `agent`, `run`, `work`, `serve` | threads at work: those of programs, and those that handle messages |
//! | `profiles` | machines |

mod agent;
mod captured;
mod machine;
mod made;
mod profiles;
mod program;
mod run;
mod serve;
#[cfg(test)]
mod tests;
mod work;

use thiserror::Error;

use crate::hardware::Ps;

pub use captured::Scale;
pub use captured::{Captured, CapturedError, Live};
pub use machine::{Machine, Notice};
pub use made::{Water, barriers, locks, reads, water, writes};
pub use profiles::{Measured, here, millipage, today};
pub use program::{Deed, Entry, Program, Script};
pub use run::run;

#[derive(Debug, Error)]
pub enum HostsError {
    /// The shared memory cannot have this shape.
    #[error(transparent)]
    Config(#[from] mapwire_dsm::ConfigError),
    #[error("rank {rank}: {deed} at record {at} is refused: {error}")]
    Refused { rank: u16, deed: &'static str, at: u64, error: mapwire_dsm::Error },
    #[error("rank {rank}: the shared memory has ended: {end:?}")]
    Ended { rank: u16, end: mapwire_node::SharedEnd },
    #[error(
        "the program hangs after {} us: rank {rank} waits for {deed} at record {at}, and nobody lets it go on (threads that wait: {waiting})",
        .at_ps / 1_000_000
    )]
    Hangs { at_ps: Ps, rank: u16, deed: &'static str, at: u64, waiting: usize },
    #[error("the program takes more than {0} steps and is given up: run a shorter one, or one that computes less")]
    Long(u64),
}

/// Where the time of a rank's first thread went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub computing_ps: Ps,
    pub faults_ps: Ps,
    pub locks_ps: Ps,
    pub barriers_ps: Ps,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankOutcome {
    /// When its last thread had done all.
    pub finished_ps: Ps,
    /// Where the time of its first thread went.
    pub spent: Spent,
    /// Page faults for loads and for stores.
    pub faults: u64,
    /// Processor time of the threads that handle messages: of high priority, and of the one that polls when nothing else runs, without
    /// its looks.
    pub serving_ps: Ps,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// From the start to the end of the last thread.
    pub total_ps: Ps,
    /// From rank 0's first barrier to its last; what programs time. `None` with fewer than two barriers.
    pub work_ps: Option<Ps>,
    pub messages: u64,
    pub bytes: u64,
    pub ranks: Vec<RankOutcome>,
}
