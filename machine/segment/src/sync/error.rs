//! What can go wrong with synchronisation objects.

use core::fmt;

use crate::error::SegmentError;

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The rank; of a forked child, that of the process that joined.
    pub rank: u32,
    /// Number of the process; 0 if unknown.
    pub pid: u32,
    /// Number of the thread; where the process is unknown, from 1 among those of the rank that use the memory, or 0 if unknown.
    pub tid: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 if self.tid == 0 => f.write_str("an unknown thread"),
            0 => write!(f, "thread {} of rank {}", self.tid, self.rank),
            pid => write!(f, "thread {} of rank {} (process {pid})", self.tid, self.rank),
        }
    }
}

/// An object, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A numbered lock.
    Lock(u32),
    /// A numbered barrier.
    Barrier(u32),
    /// The broadcast.
    Broadcast,
    /// An object in memory: its kind and its address.
    At(&'static str, usize),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(number) => write!(f, "lock {number}"),
            Self::Barrier(number) => write!(f, "barrier {number}"),
            Self::Broadcast => f.write_str("the broadcast"),
            Self::At(kind, address) => write!(f, "the {kind} at {address:#x}"),
        }
    }
}

/// What can go wrong with synchronisation objects.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The memory is at its end, or an offset is outside.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A lock number beyond the last.
    #[error("lock {lock} is beyond the {locks} locks of the job")]
    UnknownLock {
        /// The number.
        lock: u32,
        /// Locks of the job.
        locks: u32,
    },
    /// A barrier number beyond the last.
    #[error("barrier {barrier} is beyond the {barriers} barriers of the job")]
    UnknownBarrier {
        /// The number.
        barrier: u32,
        /// Barriers of the job.
        barriers: u32,
    },
    /// A rank outside the job.
    #[error("rank {rank} is outside the job of {ranks} ranks")]
    UnknownRank {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The calling thread holds it already.
    #[error("this thread already holds {0}; locks do not nest")]
    Held(Object),
    /// The calling thread does not hold it.
    #[error("this thread does not hold {object}: {}", holder_text(holder))]
    NotHeld {
        /// The object.
        object: Object,
        /// Who does.
        holder: Option<Who>,
    },
    /// Its holder has ended without giving it back: what it protects may be half changed.
    #[error("{object} is held by {who}, which has ended; what it protects may be half changed")]
    HolderEnded {
        /// The object.
        object: Object,
        /// Who held it.
        who: Who,
    },
    /// It was destroyed, or its memory was freed.
    #[error("{0} is destroyed, or its memory has been freed")]
    Freed(Object),
    /// It is to be destroyed while it is used.
    #[error("{0} is locked, and cannot be destroyed")]
    InUse(Object),
    /// Its words have values that no operation gives them.
    #[error("{0} is damaged, or was never initialised: other data has been stored there")]
    Damaged(Object),
    /// A value above the highest.
    #[error("{object} would exceed {most}, its highest value")]
    TooHigh {
        /// The object.
        object: Object,
        /// Its highest value.
        most: u32,
    },
    /// More threads of a rank in a barrier than take part.
    #[error("{barrier} already waits with all {participants} participants of rank {rank}")]
    BarrierFull {
        /// The barrier.
        barrier: Object,
        /// The rank.
        rank: u32,
        /// Threads of it that take part.
        participants: u32,
    },
    /// A second thread of a rank in the broadcast.
    #[error("another thread of this rank is in a broadcast; one thread of each rank takes part")]
    BroadcastBusy,
    /// Ranks name different roots.
    #[error("this rank broadcasts from rank {root}, others from rank {others}; all ranks must name the same root")]
    OtherRoot {
        /// The root named here.
        root: u32,
        /// The root that others have named.
        others: u32,
    },
    /// Threads of a round ask for different reductions.
    #[error("{0} makes another reduction in this round, or of another type: all its threads must ask for the same")]
    OtherReduction(Object),
    /// It is in use as an object of another kind.
    #[error("{object} is in use as a {kind}")]
    OtherKind {
        /// The object.
        object: Object,
        /// The other kind.
        kind: &'static str,
    },
    /// The rank that keeps the state of an object has no room for it.
    #[error("{object} cannot be used: the rank that keeps it has {objects} objects in use, and no more; destroy some")]
    TooManyObjects {
        /// The object.
        object: Object,
        /// The most objects of a rank.
        objects: u32,
    },
    /// An object cannot lie there.
    #[error("{object} is not aligned to 8 bytes within what is in use of the shared memory")]
    Misplaced {
        /// The object.
        object: Object,
    },
    /// A size or count that cannot be.
    #[error("{object} cannot have {what} {value}: {legal}")]
    BadSize {
        /// The object.
        object: Object,
        /// Of what.
        what: &'static str,
        /// The value.
        value: u64,
        /// Which values can be.
        legal: &'static str,
    },
    /// A number of participants that cannot be.
    #[error("{participants} threads cannot take part in barriers: between 1 and {most}, and only while none waits")]
    BadParticipants {
        /// The number asked for.
        participants: u32,
        /// The most.
        most: u32,
    },
    /// The table of threads is full.
    #[error("{0} living threads use the locks of this shared memory: no more can")]
    TooManyThreads(u64),
}

fn holder_text(holder: &Option<Who>) -> String {
    holder.map_or_else(|| "nobody does".to_owned(), |who| format!("{who} does"))
}
