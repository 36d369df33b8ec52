//! What can go wrong: misuse by this rank's program, and violations by a peer.

use crate::{Barrier, Lock, Rank, Thread};
use thiserror::Error;

/// An operation that cannot be done. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A fault on an address that no minipage covers: a wild pointer.
    #[error("no allocation covers page {page} of view {view}: the pointer is wild or was never handed out")]
    NotShared {
        /// The view of the access.
        view: u16,
        /// The page of the access.
        page: u64,
    },
    /// The segment cannot take the allocation.
    #[error("shared memory is full: {asked_bytes} bytes asked, {left_bytes} bytes left; give the job a larger segment")]
    OutOfMemory {
        /// What was asked for.
        asked_bytes: u64,
        /// What is not yet allocated, in pieces that this rank could reach.
        left_bytes: u64,
    },
    /// An allocation of no bytes.
    #[error("an allocation of 0 bytes has no address; ask for at least 1 byte")]
    ZeroBytes,
    /// A thread number beyond the configured ones.
    #[error("thread {thread} is beyond the {threads} configured threads of this rank; configure more")]
    UnknownThread {
        /// The number given.
        thread: Thread,
        /// How many there are.
        threads: u16,
    },
    /// A thread began an operation before its last one ended.
    #[error("thread {thread} still waits for its last operation; a thread does one at a time")]
    ThreadBusy {
        /// Which thread.
        thread: Thread,
    },
    /// A lock number beyond the configured ones.
    #[error("lock {lock} is beyond the {locks} configured locks; configure more")]
    UnknownLock {
        /// The number given.
        lock: Lock,
        /// How many there are.
        locks: u32,
    },
    /// A thread locked a lock that it holds.
    #[error("thread {thread} already holds lock {lock}; locks do not nest")]
    LockHeld {
        /// Which lock.
        lock: Lock,
        /// Which thread.
        thread: Thread,
    },
    /// A thread unlocked a lock that it does not hold.
    #[error("thread {thread} does not hold lock {lock}; only its holder may unlock it")]
    LockNotHeld {
        /// Which lock.
        lock: Lock,
        /// Which thread.
        thread: Thread,
    },
    /// A barrier number beyond the configured ones.
    #[error("barrier {barrier} is beyond the {barriers} configured barriers; configure more")]
    UnknownBarrier {
        /// The number given.
        barrier: Barrier,
        /// How many there are.
        barriers: u32,
    },
    /// More threads arrived at a barrier than take part, or the number changed while some waited.
    #[error("barrier {barrier} already waits for other ranks with all {participants} participants of this one")]
    BarrierFull {
        /// Which barrier.
        barrier: Barrier,
        /// How many threads of a rank take part.
        participants: u16,
    },
    /// A second thread of the rank called broadcast while one waited in it.
    #[error("another thread of this rank is in a broadcast; one thread of each rank takes part")]
    BroadcastBusy,
    /// This rank names another root than those that are in the broadcast already.
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
        /// The number given.
        participants: u16,
        /// How many threads there are.
        threads: u16,
    },
    /// A rank number outside the job.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    UnknownRank {
        /// The number given.
        rank: Rank,
        /// How many there are.
        ranks: u16,
    },
}

/// A message that a correct peer would not have sent. It was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("rank {from} broke the shared-memory protocol: {violation}; end the job, its memory is no longer consistent")]
pub struct PeerError {
    /// The sender.
    pub from: Rank,
    /// What was wrong.
    pub violation: Violation,
}

/// How a message was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The sender is not another rank of the job.
    #[error("the sender is not another rank of the job")]
    Sender,
    /// It names a rank, thread, view, page, lock or barrier that does not exist.
    #[error("it names a rank, thread, page, lock or barrier that does not exist")]
    OutOfRange,
    /// It names a minipage that this rank knows otherwise or not at all.
    #[error("it names a minipage that this rank knows otherwise or not at all")]
    Minipage,
    /// It is for the manager of something, and this rank is not, or the sender is not.
    #[error("it was sent to or by a rank that does not manage what it names")]
    NotManager,
    /// It answers nothing that this rank asked.
    #[error("it answers nothing that was asked")]
    Unasked,
    /// It asks again for what was not yet answered.
    #[error("it asks again for what was not yet answered")]
    Repeated,
    /// It asks for data that this rank does not hold.
    #[error("it wants a copy that this rank does not hold")]
    NoCopy,
    /// It passes or asks for a lock token against the queue's order.
    #[error("it does not fit the state of the lock's queue")]
    LockOrder,
    /// It belongs to another round of the barrier.
    #[error("it belongs to another round of the barrier")]
    Epoch,
    /// It carries bytes that the protocol which keeps this rank's memory coherent does not know.
    #[error("it carries bytes that this rank's protocol does not know")]
    Payload,
    /// Ranks named different roots in the same broadcast.
    #[error("it names another root than the other ranks of this broadcast")]
    Root,
}
