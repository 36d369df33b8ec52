//! Synchronisation objects anywhere in the shared memory, by their offset: see [`Shared::objects`](crate::Shared::objects).
//!
//! Where all ranks are on one host, an object is the words that lie there. Otherwise its address only names it: a rank that a hash of
//! the address decides keeps its state, and a call is a message there and one back. The words there are then not used; zeroed memory is a
//! new object all the same. What a thread has stored before it gives something (unlocks, posts, sets, arrives) is visible to those that
//! take it, in each coherence.
//!
//! | | one host | otherwise |
//! |---|---|---|
//! | order | a thread that has waited for more than a millisecond is next | that of arrival |
//! | a holder that ends | found, by thread and process | found if its rank ends: then every call is an error |
//! | objects in use | as many as the memory holds | 65,536 for each rank that keeps them |
//! | forked children | use them | do not have the memory |

mod kinds;
mod objects;
mod queue;
mod served;

pub use kinds::{Barrier, Condition, Flag, Mutex, Once, Reduction, RwLock, Semaphore};
pub use mapwire_host::waiting::now_ns;
pub use mapwire_segment::SegmentError;
pub use mapwire_segment::sync::{
    BARRIER_BYTES, BARRIERS, CONDITION_BYTES, FLAG_BYTES, FREED, LOCKS, MUTEX_BYTES, Number, ONCE_BYTES, Object,
    QUEUE_BYTES, REDUCTION_BYTES, RWLOCK_BYTES, Reduce, SEMAPHORE_BYTES, SEMAPHORE_MAX, Steal, SyncError,
    WaitedBarrier, Who,
};
pub use objects::Objects;
pub use queue::Queue;

/// An object among the words of one host's memory, or one that a rank keeps.
#[derive(Clone, Copy, Debug)]
enum Backed<T, S> {
    OneHost(T),
    Served(S),
}
