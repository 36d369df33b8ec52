//! Failures of a program, and their exit codes.

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Invalid input: exit code 2.
    #[error("{0}")]
    Input(String),
    /// The run is over and its result is wrong: exit code 1. Says what differed.
    #[error("check: FAILED: {0}")]
    Differs(String),
    /// The machine or the job failed: exit code 1.
    #[error("{doing}: {cause}")]
    Machine {
        /// What the program was about to do.
        doing: &'static str,
        /// Why that failed.
        cause: String,
    },
    /// Rank 0 has failed, and says why: exit code 1.
    #[error("rank 0 has failed")]
    Elsewhere,
}

impl Failure {
    /// The exit code for this failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Differs(_) | Self::Machine { .. } | Self::Elsewhere => 1,
        }
    }

    /// Whether rank 0 reports it, so that the other ranks need not.
    pub fn is_said_by_rank_0(&self) -> bool {
        matches!(self, Self::Input(_) | Self::Elsewhere)
    }
}

/// `Ok` if `holds`, else [`Failure::Differs`] with what differed.
pub fn ensure(holds: bool, what_differed: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Differs(what_differed())) }
}
