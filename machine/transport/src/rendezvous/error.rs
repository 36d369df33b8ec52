//! What can go wrong for a rank at the rendezvous.

use std::time::Duration;

use mapwire_host::limits::advice;
use rustix::io::Errno;

use super::message::Refusal;
use crate::board::BoardError;
use crate::local::Failure;

/// Why a rank cannot join, ask or pass.
#[derive(Debug, thiserror::Error)]
pub enum RendezvousError {
    /// Nobody listens at the job's address.
    #[error(
        "cannot reach the launcher of this job ({0}): it has ended, or MAPWIRE_JOB is stale; start the program with `mapwire run`"
    )]
    Unreachable(Errno),
    /// Somebody of another user listens there.
    #[error("the process that listens at the address in MAPWIRE_JOB belongs to user {0}, not to this one")]
    ForeignBroker(u32),
    /// The broker does not admit this rank.
    #[error("the launcher refused rank {rank}: {why}")]
    Refused { rank: u32, why: Refusal },
    /// The broker's answer makes no sense.
    #[error("the launcher broke the rendezvous protocol: {0}")]
    Protocol(&'static str),
    /// The board is not usable.
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error("{what} took longer than {} s; rank {rank} waits, states of the job: {states}", .after.as_secs_f32())]
    Timeout {
        what: String,
        rank: u32,
        after: Duration,
        /// The ranks by state, as the board shows them.
        states: String,
    },
    /// The broker has gone, so the job is over.
    #[error("the launcher of this job has ended")]
    JobEnded,
    /// No such peer, or the rank itself.
    #[error("rank {peer} cannot be a peer of rank {rank} in a job of {size}")]
    NoSuchPeer { peer: u32, rank: u32, size: u32 },
    #[error("{call} at the rendezvous failed: {errno}{}", advice(*.errno))]
    Os { call: &'static str, errno: Errno },
}

impl From<Failure> for RendezvousError {
    fn from((call, errno): Failure) -> Self {
        Self::Os { call, errno }
    }
}
