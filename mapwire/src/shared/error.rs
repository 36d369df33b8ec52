//! What can go wrong with the shared memory.

use core::time::Duration;
use std::sync::Arc;

use mapwire_driver::DriverError;
use mapwire_driver::breach::Breach;
use mapwire_driver::engine::Engine;
use mapwire_driver::service_memory::MemoryFault;
use mapwire_driver::threads::{MAX_THREADS, TooManyThreads};
use mapwire_dsm::PeerError;
use mapwire_host::faults::{ProtectionError, WatchError};
use mapwire_host::processes::Forked;
use mapwire_host::views::ViewError;
use mapwire_segment::SegmentError;
use mapwire_segment::heap::HeapError;
use mapwire_segment::sync::SyncError;
use mapwire_wire::NodeId;
use thiserror::Error;

/// The number of a rank, for messages that say "rank" before it.
fn rank(node: &NodeId) -> u16 {
    node.0
}

/// What can go wrong with the shared memory.
#[derive(Debug, Error)]
pub enum SharedError {
    /// This process is a forked child of the one that joined.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The model refuses.
    #[error(transparent)]
    Model(#[from] mapwire_dsm::Error),
    /// Its tables cannot have this shape.
    #[error(transparent)]
    Config(#[from] mapwire_dsm::ConfigError),
    /// The memory that ranks of a host share.
    #[error(transparent)]
    Segment(SegmentError),
    /// Its heap.
    #[error(transparent)]
    Heap(HeapError),
    /// Its locks, barriers and other objects.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// The views cannot be mapped.
    #[error(transparent)]
    Views(#[from] ViewError),
    /// Its messages cannot reach it.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Pages cannot be protected.
    #[error(transparent)]
    Protection(#[from] ProtectionError),
    /// Faults cannot be caught.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// What carries packets between hosts catches page faults itself.
    #[error(
        "libfabric's provider `{0}` catches SIGSEGV and SIGBUS itself, so accesses to shared memory cannot be served beside it: use another provider (--transport ofi:tcp), or --transport shm"
    )]
    Provider(String),
    /// A peer does not follow the protocol.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A peer sent a message of another kind.
    #[error(
        "rank {} sent a message that is not one of the shared memory; end the job, its memory is no longer consistent",
        rank(.0)
    )]
    Garbled(NodeId),
    /// A rank is gone, and with it what it owned.
    #[error("rank {} is gone, and with it the shared memory that it owned", rank(.0))]
    RankGone(NodeId),
    /// A rank is gone that held objects which this rank keeps.
    #[error(
        "rank {} is gone, and with it the shared memory that it owned; it held {held}, and what that protects may be half changed",
        rank(.peer)
    )]
    HolderGone {
        /// The rank.
        peer: NodeId,
        /// The objects.
        held: String,
    },
    /// A rank has closed the memory while others use it.
    #[error(
        "rank {} has taken its part of the shared memory away: it did not wait for the others to close it too",
        rank(.0)
    )]
    RankClosed(NodeId),
    /// A rank asked for memory before it had joined.
    #[error(
        "rank {} asked for shared memory before it had opened it; end the job, its memory is no longer consistent",
        rank(.0)
    )]
    NoView(NodeId),
    /// The part of another rank cannot be reached.
    #[error("no way to the part of the shared memory that rank {} owns: {}", rank(.0), .1)]
    Unreachable(NodeId, Arc<DriverError>),
    /// Not all ranks have opened it.
    #[error("{missing} not opened the shared memory, and for {} s no other has; {states}", .after.as_secs_f32())]
    Late {
        /// Who has not.
        missing: String,
        /// For so long nothing has changed.
        after: Duration,
        /// The ranks by state.
        states: String,
    },
    /// A rank broke the rules of the link, and counts as gone.
    #[error("rank {} is broken ({breach}), and with it the shared memory that it owned", rank(.peer))]
    RankBroken {
        /// The rank.
        peer: NodeId,
        /// What it did.
        breach: Breach,
    },
    /// Shared memory is open already.
    #[error("the shared memory of this process is open already")]
    Open,
    /// Shared memory is not open.
    #[error("the shared memory of this process is not open, or no longer")]
    NotOpen,
    /// More threads than were announced.
    #[error("more than {0} threads of this process use the shared memory")]
    TooManyThreads(usize),
}

impl SharedError {
    /// Not all ranks have come within the timeout.
    pub(super) fn late(engine: &Engine, missing: &[NodeId]) -> Self {
        let (after, states) = (engine.timeout(), engine.states());
        Self::Late { missing: missing_text(missing), after, states }
    }
}

/// Who has not come, as the subject of a sentence.
fn missing_text(ranks: &[NodeId]) -> String {
    const NAMED: usize = 8;
    let named: Vec<String> = ranks.iter().take(NAMED).map(|rank| rank.0.to_string()).collect();
    match ranks.len() {
        0 => "a rank on another host has".into(),
        1 => format!("rank {} has", named[0]),
        2..=NAMED => format!("ranks {} have", named.join(", ")),
        all => format!("ranks {} and {} more have", named.join(", "), all - NAMED),
    }
}

impl From<TooManyThreads> for SharedError {
    fn from(_: TooManyThreads) -> Self {
        Self::TooManyThreads(MAX_THREADS)
    }
}

impl From<HeapError> for SharedError {
    fn from(error: HeapError) -> Self {
        match error {
            HeapError::Segment(error) => error.into(),
            error => Self::Heap(error),
        }
    }
}

impl From<SegmentError> for SharedError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::RankGone(rank) => Self::RankGone(NodeId(rank as u16)),
            error => Self::Segment(error),
        }
    }
}

impl From<&MemoryFault> for SharedError {
    fn from(fault: &MemoryFault) -> Self {
        match fault.clone() {
            MemoryFault::Closed(node) => Self::RankClosed(node),
            MemoryFault::Unmet(node) => Self::NoView(node),
            MemoryFault::Unreachable(node, error) => Self::Unreachable(node, error),
            MemoryFault::Protection(error) => Self::Protection(error),
            MemoryFault::Outside => Self::NotOpen,
        }
    }
}
