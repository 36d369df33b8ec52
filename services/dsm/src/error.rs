//! Errors: misuse by this rank's program, and protocol violations by a peer.

use crate::{Barrier, Lock, Protocol, Rank, Thread};
use thiserror::Error;

/// Why an operation failed. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A fault on an address that no minipage covers: a wild pointer.
    #[error("no allocation covers page {page} of view {view}: the pointer is wild or was never handed out")]
    NotShared {
        view: u16,
        /// Page of the access, from the start of the segment.
        page: u64,
    },
    /// The segment has no room for the allocation.
    #[error("shared memory is full: {asked_bytes} bytes asked, {left_bytes} bytes left; give the job a larger segment")]
    OutOfMemory {
        /// Size of the request, in bytes.
        asked_bytes: u64,
        /// Unallocated bytes that this rank could reach, perhaps in several pieces.
        left_bytes: u64,
    },
    /// An allocation of 0 bytes.
    #[error("an allocation of 0 bytes has no address; ask for at least 1 byte")]
    ZeroBytes,
    /// An allocation in units of 0 bytes, or in units longer than all of it.
    #[error(
        "a unit of {unit_bytes} bytes does not suit an allocation of {length_bytes}: give between 1 and {length_bytes} bytes, or no unit"
    )]
    Unit {
        /// Bytes of the unit.
        unit_bytes: u64,
        /// Bytes of the allocation.
        length_bytes: u64,
    },
    /// No rows, or rows of no bytes.
    #[error("{rows} rows of {row_bytes} bytes have no address; ask for at least 1 row of 1 byte")]
    NoRows {
        rows: u64,
        /// Bytes of a row.
        row_bytes: u64,
    },
    /// Rows with a unit.
    #[error("rows of {row_bytes} bytes are units already; allocate them without a unit, or an array with one")]
    UnitOfRows {
        /// Bytes of a row.
        row_bytes: u64,
    },
    /// A thread number beyond the configured ones.
    #[error("thread {thread} is beyond the {threads} configured threads of this rank; configure more")]
    UnknownThread {
        thread: Thread,
        /// Threads of a rank.
        threads: u16,
    },
    /// A thread began an operation before its last one ended.
    #[error("thread {thread} still waits for its last operation; a thread does one at a time")]
    ThreadBusy { thread: Thread },
    /// A lock number beyond the configured ones.
    #[error("lock {lock} is beyond the {locks} configured locks; configure more")]
    UnknownLock {
        lock: Lock,
        /// Locks of the job.
        locks: u32,
    },
    /// A thread locked a lock that it holds.
    #[error("thread {thread} already holds lock {lock}; locks do not nest")]
    LockHeld { lock: Lock, thread: Thread },
    /// A thread unlocked a lock that it does not hold.
    #[error("thread {thread} does not hold lock {lock}; only its holder may unlock it")]
    LockNotHeld { lock: Lock, thread: Thread },
    /// A barrier number beyond the configured ones.
    #[error("barrier {barrier} is beyond the {barriers} configured barriers; configure more")]
    UnknownBarrier {
        barrier: Barrier,
        /// Barriers of the job.
        barriers: u32,
    },
    /// More threads arrived at a barrier than take part, or the number changed while some waited.
    #[error("barrier {barrier} already waits for other ranks with all {participants} participants of this one")]
    BarrierFull {
        barrier: Barrier,
        /// Threads of a rank that take part.
        participants: u16,
    },
    /// A second thread of the rank called broadcast while one was waiting in it.
    #[error("another thread of this rank is in a broadcast; one thread of each rank takes part")]
    BroadcastBusy,
    /// This rank names another root than the ranks already in the broadcast.
    #[error("this rank broadcasts from rank {root}, others from rank {others}; all ranks must name the same root")]
    OtherRoot {
        /// The root named here.
        root: Rank,
        /// The root the others named.
        others: Rank,
    },
    /// The number of participants was 0, above the threads, or changed while threads waited in a barrier.
    #[error("{participants} threads cannot take part in barriers: between 1 and {threads}, and only while none waits")]
    BadParticipants {
        participants: u16,
        /// Threads of a rank.
        threads: u16,
    },
    /// An allocation asks for a protocol that this job does not run, or for which it has no view.
    #[error(
        "the job keeps its memory coherent by {protocol} in {views} views: an hlrc job of at least 2 views takes allocations of either \
         protocol, a minipages job none of hlrc, and only hlrc has homes"
    )]
    OtherProtocol {
        /// The job's protocol.
        protocol: Protocol,
        /// Views of the job.
        views: u16,
    },
    /// A rank gives something to itself.
    #[error("rank {rank} pushes to itself; name another rank")]
    OwnRank { rank: Rank },
    /// A rank number outside the job.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    UnknownRank {
        rank: Rank,
        /// Ranks of the job.
        ranks: u16,
    },
}

impl Error {
    /// Whether rank `from` of `ranks` can push something to rank `to`.
    ///
    /// # Errors
    /// [`UnknownRank`](Self::UnknownRank), [`OwnRank`](Self::OwnRank).
    pub fn check_push(from: Rank, to: Rank, ranks: u16) -> Result<(), Self> {
        match to {
            rank if rank >= ranks => Err(Self::UnknownRank { rank, ranks }),
            rank if rank == from => Err(Self::OwnRank { rank }),
            _ => Ok(()),
        }
    }
}

/// A message that a correct peer would not send; it was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("rank {from} broke the shared-memory protocol: {violation}; end the job, its memory is no longer consistent")]
pub struct PeerError {
    pub from: Rank,
    pub violation: Violation,
}

/// How a message violates the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The sender is not another rank of the job.
    #[error("the sender is not another rank of the job")]
    Sender,
    /// It names a rank, thread, view, page, lock or barrier that does not exist.
    #[error("it names a rank, thread, page, lock or barrier that does not exist")]
    OutOfRange,
    /// It names a minipage that this rank does not know, or knows differently.
    #[error("it names a minipage that this rank knows otherwise or not at all")]
    Minipage,
    /// It is for a manager, and this rank is not that manager, or the sender is not.
    #[error("it was sent to or by a rank that does not manage what it names")]
    NotManager,
    /// It answers no request of this rank.
    #[error("it answers nothing that was asked")]
    Unasked,
    /// It repeats a request that is not answered yet.
    #[error("it asks again for what was not yet answered")]
    Repeated,
    /// It requests data that this rank does not hold.
    #[error("it wants a copy that this rank does not hold")]
    NoCopy,
    /// It passes or requests a lock token against the queue's order.
    #[error("it does not fit the state of the lock's queue")]
    LockOrder,
    /// It belongs to another round of the barrier.
    #[error("it belongs to another round of the barrier")]
    Epoch,
    /// It names an interval that its writer has not published, or a time before one that it named earlier.
    #[error("its vector time runs backwards, or ahead of this rank's own")]
    Time,
    /// It is for a page's home, and this rank is not that home, or the sender is not.
    #[error("it was sent to or by a rank that is not the home of the page that it names")]
    NotHome,
    /// Its payload is unknown to the coherence protocol.
    #[error("it carries bytes that this rank's protocol does not know")]
    Payload,
    /// Ranks named different roots in the same broadcast.
    #[error("it names another root than the other ranks of this broadcast")]
    Root,
}
