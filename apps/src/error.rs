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

/// `Ok` if `ours` are the numbers of the sequential run to the last bit, else how many `what` differ and the first of them, whose row and
/// column `place` gives.
pub fn ensure_same_bits(
    ours: &[f64],
    sequential: &[f64],
    what: &str,
    place: impl Fn(usize) -> (usize, usize),
) -> Result<(), Failure> {
    let differs = |at: &usize| ours[*at].to_bits() != sequential[*at].to_bits();
    let Some(first) = (0..ours.len()).find(differs) else {
        return Ok(());
    };
    let (row, column) = place(first);
    Err(Failure::Differs(format!(
        "{} of {} {what} differ from the sequential run, first row {row}, column {column}: {:e} instead of {:e}",
        (0..ours.len()).filter(differs).count(),
        ours.len(),
        ours[first],
        sequential[first],
    )))
}

/// Says what was being done when mapwire failed.
pub(crate) fn while_doing(doing: &'static str) -> impl Fn(mapwire::Error) -> Failure {
    move |error| Failure::Machine { doing, cause: error.to_string() }
}

/// A number of bytes as text.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x10_0000 => (1u64 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    format!("{:.1} {name}", bytes as f64 / unit as f64)
}
