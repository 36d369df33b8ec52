//! Memory that the processes of one host share.
//!
//! A [`Segment`] is one file in memory that all ranks of a job map at the same address. The processor keeps it coherent: loads, stores and
//! system calls work on it as on any memory, in forked children too, and nothing of mapwire runs on that way.
//!
//! | module | part |
//! |---|---|
//! | `segment` | the mapping, its growth, and words in it |
//! | `layout` | where its parts lie |
//! | `meeting` | how the ranks agree on its address and settings, before any uses it |
//! | `heap` | blocks of it, allocated and freed by any rank |
//! | `waiting` | how threads wait for words to change, and learn that they wait in vain |
//! | [`sync`] | locks, barriers and other objects in it |
//!
//! **Trust.** Every rank may store anywhere in the segment. So nothing read from it is an address: offsets are checked against the length
//! at each use, counts bound no loop without a limit of this process's own, and what a hostile rank writes costs the others wrong data,
//! an error or a wait, and never an access outside the segment.
//!
//! **Growth.** The mapping is as long as the memory may become, the file as long as what is used. It grows by steps and never shrinks, so
//! that core dumps, `mlockall` and limits count only what is used. Freed pages are given back by punching holes.

#![deny(unsafe_code)]

mod adopting;
mod error;
#[cfg(test)]
#[allow(unsafe_code)]
mod forked;
pub mod heap;
pub mod layout;
mod meeting;
mod segment;
pub mod sync;
mod waiting;

pub use adopting::Adoption;
pub use error::SegmentError;
pub use meeting::{Meeting, Settings};
pub use segment::Segment;
pub use waiting::{NAP, Vigil, Waited};
