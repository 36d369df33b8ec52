//! Synchronisation objects in a segment: plain words, used by any thread of any process that maps it, forked children too.
//!
//! An object whose words are all zero is in its initial state: a mutex unlocked, a flag clear. [`Objects`] is the handle of a process.
//!
//! | module | object |
//! |---|---|
//! | `numbered` | the job's locks and barriers by number, and its broadcast |
//! | `mutex` | one thread at a time; who has waited for long is next |
//! | `round` | the rounds of barriers |
//! | `threads` | the table of threads: who holds, who waits |
//! | `living` | whether a thread still lives |
//! | `words` | words and waits, as models replace them |
//!
//! **The holder** of a lock is a thread of a process. It unlocks what it locked; a forked child is another thread. If a holder ends, those
//! that wait learn it within a nap ([`NAP`](crate::NAP)) and get an error that names it, and so do all that come later.
//!
//! **Trust.** A hostile rank may store anything into an object: that gives wrong results, errors, or waits that end with the job.

mod error;
mod living;
mod mutex;
mod numbered;
mod objects;
mod round;
mod threads;
mod words;

#[cfg(test)]
mod tests;

pub use error::{Object, SyncError, Who};
pub use mutex::MUTEX_BYTES;
pub use numbered::{BARRIERS, LOCKS, WaitedBarrier};
pub use objects::Objects;
pub use threads::FREED;
