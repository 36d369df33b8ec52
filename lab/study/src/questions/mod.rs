//! Questions that the papers leave open, put to traces.
//!
//! UTLB §8 names three: how tables of fixed size for each process compare with a shared cache when several programs share a node,
//! what policies other than LRU do, and what an application's own policy can win. Beside them: which design bears a small limit on
//! pinned memory, and how little NIC memory is enough.
//!
//! | module | what it holds |
//! |---|---|
//! | [`per_process`], [`policies`], [`application`], [`limits`], [`smallest`] | the questions |
//! | [`source`] | where traces come from: files, or what a test makes up |
//! | [`survey`], [`knowledge`] | what is known of a trace beforehand: footprints; next and last uses |
//! | [`choosers`] | policies of applications, and the optimum |
//! | [`replays`] | configurations with such policies, by the firmware's own code |
//! | [`memory_limit`] | limits on pinned memory as parts of a footprint |
//! | [`row`] | rows and words of an answer |
//!
//! Every question counts sends and fetches unless it is told otherwise: exports count against a limit on pinned pages, and no policy
//! can choose them.

pub mod application;
pub mod choosers;
pub mod knowledge;
pub mod limits;
pub mod memory_limit;
pub mod per_process;
pub mod policies;
pub mod replays;
pub mod row;
pub mod smallest;
pub mod source;
pub mod survey;

#[cfg(test)]
mod testing;

use crate::files::FileError;

pub use memory_limit::MemoryLimit;
pub use row::{Answer, Column, Row};
pub use source::{Passed, Source, pass_file};

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// A trace that cannot be read or studied.
    #[error(transparent)]
    File(#[from] FileError),
    /// A design that does not suit the question.
    #[error("--design {design}: {why}")]
    Design {
        /// The design.
        design: String,
        /// What does not suit.
        why: &'static str,
    },
    /// Operations that do not suit the question.
    #[error("--ops recv: {why}")]
    Receives {
        /// What does not suit.
        why: &'static str,
    },
    /// More uses of pages than can be kept.
    #[error(
        "{trace} uses pages more than {most} times, and the optimum keeps the next use of each in memory (4 bytes); leave it out with --no-optimum"
    )]
    TooLong {
        /// The trace.
        trace: String,
        /// How many there may be.
        most: u64,
    },
}
