//! What can go wrong between a rank and its launcher.

use std::time::Duration;

use mapwire_names::NamesError;
use mapwire_transport::board::BoardError;
use rustix::io::Errno;

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
    /// A variable that a user sets makes no sense.
    #[error("{name}=`{value}`: expected {expected}")]
    Setting {
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
    #[error("rank {rank} on host {host} has {what} {theirs}, this rank has {ours}: both must have the same")]
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
    /// A name that no job can have.
    #[error("`{0}` is not the name of a job: expected 1 to 64 ASCII letters, digits, `.`, `-` and `_`")]
    JobName(String),
    /// The store of names.
    #[error(transparent)]
    Store(#[from] NamesError),
    /// A value in the store was not made by a process that has the shared secret.
    #[error("the value of {key} at {address} is not signed by this secret: somebody without it writes there")]
    Forged {
        /// The store.
        address: String,
        /// The key.
        key: String,
    },
    /// The job was begun with another secret.
    #[error(
        "job {name} at {address} was begun with another secret: all its processes must have the same file (MAPWIRE_SECRET_FILE, --secret-file)"
    )]
    JobSecret {
        /// The job.
        name: String,
        /// The store.
        address: String,
    },
    /// The job was begun by another release.
    #[error("job {name} was begun by mapwire {theirs}, and this is mapwire {ours}: use the same release")]
    JobVersion {
        /// The job.
        name: String,
        /// The release that began it.
        theirs: String,
        /// This release.
        ours: String,
    },
    /// The job has another size.
    #[error(
        "job {name} has {theirs} ranks, and this process wants it to have {ours}: say the same everywhere (--of, MAPWIRE_SIZE), or give one of two jobs another name"
    )]
    JobSize {
        /// The job.
        name: String,
        /// Its size.
        theirs: u32,
        /// The size that this process was given.
        ours: u32,
    },
    /// The job takes no more ranks, or not these.
    #[error(
        "job {name} runs and has no room for {wanted}: ranks {members}; give this job another name, or end that one"
    )]
    JobInUse {
        /// The job.
        name: String,
        /// What this process wants.
        wanted: String,
        /// Who is in it.
        members: String,
    },
    /// Ranks did not come in time.
    #[error(
        "{count} of the {size} ranks of job {name} did not come within {} s: {missing}; start them too, or wait longer (--timeout, MAPWIRE_TIMEOUT)",
        .after.as_secs_f32()
    )]
    Missing {
        /// The job.
        name: String,
        /// Its size.
        size: u32,
        /// How many ranks are missing.
        count: usize,
        /// Which.
        missing: String,
        /// The timeout.
        after: Duration,
    },
    /// Ranks have not come to a fence in time.
    #[error("ranks {missing} did not come to a fence within {} s; are they stopped?", .after.as_secs_f32())]
    Late {
        /// Which.
        missing: String,
        /// The timeout.
        after: Duration,
    },
    /// The job has ended before all its ranks had joined.
    #[error("the job has ended: {0}")]
    Ended(String),
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
