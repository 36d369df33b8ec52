//! What can go wrong between a rank and its launcher.

use std::time::Duration;

use mapwire_transport::board::BoardError;

use crate::launcher::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Why a rank cannot join its launcher, or exchange values through it.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A variable that the launcher sets makes no sense.
    #[error("{name}=`{value}`: expected {expected}; the launcher sets it, do not set it by hand")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// The descriptor that the launcher passed is not usable.
    #[error(
        "PMI_FD={fd}: not an open socket ({why}); was it closed by a script between launcher and program? Start the program directly"
    )]
    Descriptor {
        /// Its number.
        fd: i32,
        /// What is wrong with it.
        why: String,
    },
    /// Slurm started the ranks without a way to exchange values.
    #[error(
        "srun started {ranks} ranks that cannot exchange addresses; start them with `srun --mpi=pmi2` or `srun --mpi=pmix` (`srun --mpi=list` shows what there is)"
    )]
    NoExchange {
        /// Ranks in the job step.
        ranks: u32,
    },
    /// The library is not there.
    #[error(
        "cannot load libpmix.so.2, which ranks started by mpirun, prterun or `srun --mpi=pmix` need: {0}; install it (Debian: libpmix2), or use `srun --mpi=pmi2`"
    )]
    NoLibrary(String),
    /// The launcher's answer makes no sense.
    #[error("{protocol}: the launcher answered `{answer}` instead of {expected}")]
    Protocol {
        /// The protocol spoken.
        protocol: &'static str,
        /// The beginning of what it said.
        answer: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The launcher reports an error.
    #[error("{protocol}: {what} failed: {reason}")]
    Refused {
        /// The protocol spoken.
        protocol: &'static str,
        /// What was asked.
        what: String,
        /// Its reason.
        reason: String,
    },
    /// The launcher is gone.
    #[error("the launcher closed its connection: it has ended, or is ending this job")]
    Closed,
    /// The time is over.
    #[error("{what} took longer than {} s; is a rank missing or stopped?", .after.as_secs_f32())]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// An earlier failure left the connection in an unknown state.
    #[error("the connection to the launcher failed before and cannot be used any more")]
    Spent,
    /// A key that no launcher can hold.
    #[error("key `{0}`: expected 1 to {MAX_KEY_BYTES} ASCII letters, digits, `-` and `_`")]
    Key(String),
    /// A value that is too long.
    #[error("the value of `{key}` has {bytes} bytes; the limit is {MAX_VALUE_BYTES}")]
    TooLong {
        /// Its key.
        key: String,
        /// Its length.
        bytes: usize,
    },
    /// No such rank.
    #[error("no rank {rank} in a job of {size}")]
    NoRank {
        /// The rank asked for.
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// What a rank put into the exchange of values is missing, or is not of mapwire.
    #[error(
        "rank {rank} does not introduce itself as a rank of mapwire: all ranks must run programs that use it, of the same version"
    )]
    Stranger {
        /// The rank.
        rank: u32,
    },
    /// Ranks that cannot work together.
    #[error(
        "rank {rank} on host {host} has {what} {theirs}, this rank has {ours}: both must have the same"
    )]
    Differs {
        /// The other rank.
        rank: u32,
        /// Its host.
        host: String,
        /// What differs: `mapwire`, for its version, or a variable.
        what: &'static str,
        /// What it has.
        theirs: String,
        /// What this rank has.
        ours: String,
    },
    /// The ranks of this host have no broker.
    #[error(transparent)]
    Broker(#[from] BoardError),
    /// The kernel refused.
    #[error("{call} for the connection to the launcher failed: {source}")]
    Os {
        /// The system call.
        call: &'static str,
        /// What it answered.
        source: std::io::Error,
    },
}

/// The beginning of what a launcher said, safe to print.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(80)];
    let more = if bytes.len() > shown.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
