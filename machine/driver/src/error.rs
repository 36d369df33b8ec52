//! Errors of the driver.

use core::time::Duration;

use mapwire_host::memory::MemoryError;
use mapwire_host::pinning::PinError;
use mapwire_host::processes::Forked;
use mapwire_nic::{CommandError, NicError};
use mapwire_node::ExportError;
use mapwire_transport::job::JoinError;
use mapwire_transport::rendezvous::RendezvousError;
use mapwire_transport::shm::channel::ChannelError;
use mapwire_vmmc::VmmcError;
use mapwire_wire::{NodeId, WireError};
use thiserror::Error;

use crate::breach::Breach;
use crate::pages::PagesError;

/// The number of a rank, for messages that say "rank" before it.
fn rank(node: &NodeId) -> u16 {
    node.0
}

/// What can go wrong between a program and its peers.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The job could not be joined, or has ended.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// A channel to a peer could not be set up.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The way to other hosts.
    #[error(transparent)]
    Net(#[from] mapwire_transport::net::NetError),
    /// The way to other hosts by libfabric.
    #[error("--transport ofi: {0}")]
    Far(#[from] mapwire_transport::ofi::OfiError),
    /// An export or import.
    #[error(transparent)]
    Vmmc(#[from] VmmcError),
    /// Memory that is not exported, or an export that is not redirected.
    #[error(transparent)]
    Export(ExportError<PinError>),
    /// A table of the NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A send or fetch.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Pages could not be pinned.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// The pinner cannot be opened.
    #[error(transparent)]
    Pinner(#[from] PinError),
    /// Memory could not be had, mapped or passed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The translation cache cannot have the size asked for.
    #[error(transparent)]
    Cache(#[from] mapwire_translation::CacheError),
    /// A command that cannot be written.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A range that no address space holds.
    #[error(transparent)]
    Range(#[from] mapwire_translation::RangeError),
    /// No descriptor for an event loop.
    #[error("no descriptor for an event loop: {0}; raise the limit with `ulimit -n`, or close some")]
    EventFd(std::io::Error),
    /// This process has left the job.
    #[error("this process has left the job: its node and all that was made from it were given back")]
    Left,
    /// This process is a forked child of the one that joined.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Random numbers for keys could not be had.
    #[error("the operating system gives no random numbers for keys: {0}")]
    Entropy(std::io::Error),
    /// The service thread could not be started.
    #[error("the service thread could not be started: {0}")]
    Thread(std::io::Error),
    /// The trace of this rank cannot be begun.
    #[error("the trace cannot be written to {}: {error}; the folder must be there, and empty", path.display())]
    Trace { path: std::path::PathBuf, error: std::io::Error },
    #[error("rank {} is gone: it has left the job or died", rank(.0))]
    PeerGone(NodeId),
    /// The provider has not moved memory.
    #[error("libfabric did not finish a transfer with rank {}: {error}", rank(.peer))]
    Rma { peer: NodeId, error: mapwire_transport::ofi::rma::RmaError },
    /// This process has no descriptor left for memory that a peer passed.
    #[error("no file descriptor is left for the memory that rank {} exports; raise the limit (`ulimit -n`)", rank(.0))]
    NoDescriptor(NodeId),
    /// The peer counts as gone, mostly since it broke the rules.
    #[error("rank {}{} counts as gone: {breach}", rank(.peer), if .breach.is_fault() { " is broken, and" } else { "" })]
    PeerBroken { peer: NodeId, breach: Breach },
    /// Something took too long.
    #[error("{what} took longer than {after:?}; {waiting_for}")]
    Timeout {
        what: String,
        /// How long it was given.
        after: Duration,
        /// Whom it waits for, as far as that is known.
        waiting_for: String,
    },
    /// A rank number outside the job.
    #[error("rank {rank} is not in a job of {size} ranks")]
    NoSuchRank {
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// The memory is not there.
    #[error("{length} B at {address:#x} are not all memory that this process may {access}")]
    NotMapped {
        address: u64,
        length: u64,
        /// Read or write.
        access: &'static str,
    },
    /// Too many sends and fetches are under way.
    #[error("{0} sends and fetches are under way already: wait for some of them first")]
    TooManyOutstanding(usize),
    /// A service of the program is not registered.
    #[error(transparent)]
    Register(#[from] mapwire_node::RegisterError),
    /// No such service is registered.
    #[error("this process has no service of this type under {0}: register it first")]
    NoService(mapwire_wire::HandlerId),
}

impl From<JoinError> for DriverError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Rendezvous(error) => error.into(),
            JoinError::Channel(error) => error.into(),
            JoinError::Net(error) => error.into(),
            JoinError::Far(error) => error.into(),
        }
    }
}
