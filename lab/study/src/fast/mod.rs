//! Engines that count hits and misses at hundreds of millions of lookups a second. Each takes some configurations only, and
//! agrees with the replay by the firmware to the last count.
//!
//! What makes them fast: a cache's state is small numbers, not tags. Pages that may meet in a set are numbered apart
//! ([`Keys`]); a set of four ways is then one word of four such numbers, of eight ways one word of eight bytes, the number used
//! last in the lowest place, and looking up, hitting, filling and evicting are the same dozen instructions without a branch
//! ([`lanes`]).

pub mod keys;
pub mod lanes;
pub mod levels;
pub mod limited;
pub mod pins;
pub mod stack;

pub use keys::{KeyStream, Keys};
pub use levels::{Levels, Shape};
pub use limited::Limited;
pub use pins::{PinCounts, Pins};
pub use stack::Stack;

#[cfg(test)]
mod tests;
