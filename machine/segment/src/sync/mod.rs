//! Synchronisation objects in a segment: plain words, used by any thread of any process that maps it, forked children too.
//!
//! An object whose words are all zero is in its initial state: a mutex unlocked, a flag clear. [`Objects`] is the handle of a process.
//!
//! | module | object |
//! |---|---|
//! | `numbered` | the job's locks and barriers by number, and its broadcast |
//! | `placed` | objects anywhere in the segment, by offset: handles to the following |
//! | `mutex` | one thread at a time; who has waited for long is next |
//! | `rwlock` | one writer or many readers |
//! | `condition` | waiting with a mutex unlocked |
//! | `semaphore` | a count to take from |
//! | `barrier` | threads that meet |
//! | `round` | the rounds of a numbered barrier |
//! | `reduction` | a sum, a least or greatest value of threads that meet |
//! | `once` | what one thread does for all |
//! | `deque` | a queue of work that others steal from |
//! | `bell` | waking those that wait for something else, such as a flag's value |
//! | `threads` | the table of threads: who holds, who waits |
//! | `living` | whether a thread still lives |
//! | `words` | words and waits, as models replace them |
//!
//! **The holder** of a lock is a thread of a process. It unlocks what it locked; a forked child is another thread. If a holder ends, those
//! that wait learn it within a nap ([`NAP`](crate::NAP)) and get an error that names it, and so do all that come later.
//!
//! **Trust.** A hostile rank may store anything into an object: that gives wrong results, errors, or waits that end with the job.

mod barrier;
mod bell;
mod condition;
mod deque;
mod error;
mod living;
mod mutex;
mod numbered;
mod objects;
mod once;
mod placed;
mod reduction;
mod round;
mod rwlock;
mod semaphore;
mod threads;
mod words;

#[cfg(test)]
mod tests;

pub use deque::Steal;
pub use error::{Object, SyncError, Who};
pub use mutex::MUTEX_BYTES;
pub use numbered::{BARRIERS, LOCKS, WaitedBarrier};
pub use objects::Objects;
pub use placed::{BARRIER_BYTES, CONDITION_BYTES, FLAG_BYTES, ONCE_BYTES, QUEUE_BYTES, REDUCTION_BYTES};
pub use placed::{Barrier, Condition, Flag, Mutex, Once, Queue, Reduction, RwLock, Semaphore};
pub use placed::{RWLOCK_BYTES, SEMAPHORE_BYTES, check_capacity, check_count};
pub use reduction::{Number, Reduce, number_of, word_of};
pub use semaphore::SEMAPHORE_MAX;
pub use threads::FREED;
