//! What has happened to calls.

/// How often something has happened at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that this node made.
    pub calls_made: u64,
    /// Replies to calls that nobody waits for any more: dropped.
    pub late_replies: u64,
    /// Calls that came for programs of this node.
    pub calls_taken: u64,
    /// Calls that were refused by their header.
    pub calls_refused: u64,
    /// Replies that this node gave.
    pub replies_sent: u64,
    /// Records of connections that are over: dropped.
    pub stray_records: u64,
    /// Messages that no peer sends that keeps to the protocol.
    pub broken_messages: u64,
}
