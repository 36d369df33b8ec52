//! Packets between processes of one host, through shared memory.

pub mod channel;
pub mod cursor;
mod packed;
#[allow(unsafe_code)]
mod prefetch;
#[allow(unsafe_code)]
pub mod ring;
mod shared;

#[cfg(test)]
mod tests;

#[cfg(all(test, loom))]
#[allow(unsafe_code)]
#[path = "tests/loom.rs"]
mod loom_tests;

pub use shared::ShmTransport;

/// The peer has written something into the shared memory that no correct peer writes. The channel cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer's {what} is {value}, which cannot be; the channel is closed")]
pub struct PeerCorrupt {
    /// The word that is impossible.
    pub what: &'static str,
    pub value: u64,
}
