//! Sizes of a node's remote procedure calls.

/// How much a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of the longest arguments or results that this node takes.
    pub max_record_bytes: u64,
    /// Calls that a peer may have under way here before a thread takes them.
    pub window: u32,
    /// Calls of a peer that threads may have in hand before the others wait.
    pub max_in_progress: usize,
    /// Calls of this node that may wait for their replies; at most [`MOST_IN_FLIGHT`].
    pub max_in_flight: usize,
    /// The first session; each is one higher.
    pub session: u64,
}

/// Bytes of the longest arguments or results unless told otherwise.
pub const DEFAULT_MAX_RECORD_BYTES: u64 = 4 << 20;

/// Calls of a node that may wait for their replies at most: so many replies may come to it at once.
pub const MOST_IN_FLIGHT: usize = 4096;

impl Default for Config {
    fn default() -> Self {
        Self {
            max_record_bytes: DEFAULT_MAX_RECORD_BYTES,
            window: 256,
            max_in_progress: 1024,
            max_in_flight: 1024,
            session: 1,
        }
    }
}
