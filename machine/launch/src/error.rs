//! What can go wrong between a rank and its launcher.

use std::time::Duration;

use mapwire_names::NamesError;
use mapwire_transport::board::BoardError;
use rustix::io::Errno;

use crate::launcher::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Why a rank cannot join its launcher, or exchange values through it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each case and field is")]
pub enum LaunchError {
    /// A variable that the launcher sets makes no sense.
    #[error("{name}=`{value}`: expected {expected}; the launcher sets it, do not set it by hand")]
    Variable { name: &'static str, value: String, expected: &'static str },
    /// A variable that a user sets makes no sense.
    #[error("{name}=`{value}`: expected {expected}")]
    Setting { name: &'static str, value: String, expected: &'static str },
    #[error(
        "PMI_FD={fd}: not an open socket ({why}); was it closed by a script between launcher and program? Start the program directly"
    )]
    Descriptor { fd: i32, why: String },
    #[error(
        "srun started {ranks} ranks that cannot exchange addresses; start them with `srun --mpi=pmi2` or `srun --mpi=pmix` (`srun --mpi=list` shows what there is)"
    )]
    NoExchange { ranks: u32 },
    #[error(
        "cannot load libpmix.so.2, which ranks started by mpirun, prterun or `srun --mpi=pmix` need: {0}; install it (Debian: libpmix2), or use `srun --mpi=pmi2`"
    )]
    NoLibrary(String),
    #[error("{protocol}: the launcher answered `{answer}` instead of {expected}")]
    Protocol { protocol: &'static str, answer: String, expected: &'static str },
    #[error("{protocol}: {what} failed: {reason}")]
    Refused { protocol: &'static str, what: String, reason: String },
    #[error("the launcher closed its connection: it has ended, or is ending this job")]
    Closed,
    #[error("{what} took longer than {} s; is a rank missing or stopped?", .after.as_secs_f32())]
    Timeout { what: &'static str, after: Duration },
    #[error("the connection to the launcher failed before and cannot be used any more")]
    Spent,
    #[error("key `{0}`: expected 1 to {MAX_KEY_BYTES} ASCII letters, digits, `-` and `_`")]
    Key(String),
    #[error("the value of `{key}` has {bytes} bytes; the limit is {MAX_VALUE_BYTES}")]
    TooLong { key: String, bytes: usize },
    #[error("no rank {rank} in a job of {size}")]
    NoRank { rank: u32, size: u32 },
    /// What a rank put into the exchange of values is missing, or is not of mapwire.
    #[error(
        "rank {rank} does not introduce itself as a rank of mapwire: all ranks must run programs that use it, of the same version"
    )]
    Stranger { rank: u32 },
    #[error("rank {rank} on host {host} has {what} {theirs}, this rank has {ours}: both must have the same")]
    Differs { rank: u32, host: String, what: &'static str, theirs: String, ours: String },
    #[error("`{0}` is not the name of a job: expected 1 to 64 ASCII letters, digits, `.`, `-` and `_`")]
    JobName(String),
    #[error(transparent)]
    Store(#[from] NamesError),
    /// A value in the store was not made by a process that has the shared secret.
    #[error("the value of {key} at {address} is not signed by this secret: somebody without it writes there")]
    Forged { address: String, key: String },
    #[error(
        "job {name} at {address} was begun with another secret: all its processes must have the same file (MAPWIRE_SECRET_FILE, --secret-file)"
    )]
    JobSecret { name: String, address: String },
    #[error("job {name} was begun by mapwire {theirs}, and this is mapwire {ours}: use the same release")]
    JobVersion { name: String, theirs: String, ours: String },
    #[error(
        "job {name} has {theirs} ranks, and this process wants it to have {ours}: say the same everywhere (--of, MAPWIRE_SIZE), or give one of two jobs another name"
    )]
    JobSize { name: String, theirs: u32, ours: u32 },
    #[error(
        "job {name} runs and has no room for {wanted}: ranks {members}; give this job another name, or end that one"
    )]
    JobInUse { name: String, wanted: String, members: String },
    #[error(
        "{count} of the {size} ranks of job {name} did not come within {} s: {missing}; start them too, or wait longer (--timeout, MAPWIRE_TIMEOUT)",
        .after.as_secs_f32()
    )]
    Missing { name: String, size: u32, count: usize, missing: String, after: Duration },
    #[error("ranks {missing} did not come to a fence within {} s; are they stopped?", .after.as_secs_f32())]
    Late { missing: String, after: Duration },
    #[error("the job has ended: {0}")]
    Ended(String),
    #[error(transparent)]
    Broker(#[from] BoardError),
    #[error("{call} for the connection to the launcher failed: {source}")]
    Os { call: &'static str, source: std::io::Error },
}

impl From<(&'static str, Errno)> for LaunchError {
    fn from((call, errno): (&'static str, Errno)) -> Self {
        Self::Os { call, source: errno.into() }
    }
}

/// The beginning of what a launcher said, safe to print.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(80)];
    let more = if bytes.len() > shown.len() { "…" } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
