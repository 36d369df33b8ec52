//! Links between nodes: latency, bandwidth, a queue of limited length, strict order per pair.

/// What all links of a cluster are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// From the last bit out to the last bit in, in nanoseconds.
    pub latency_ns: u64,
    /// Of each node's port, in bits a second.
    pub bits_per_second: u64,
    /// Packets between two nodes, in one direction, that have left the one and have not been taken by the other; at least 1.
    pub queue_packets: u32,
}

impl LinkConfig {
    /// 10 Gb/s, 10 µs.
    pub const TEN_GIGABIT: Self = Self { latency_ns: 10_000, bits_per_second: 10_000_000_000, queue_packets: 256 };

    /// How long a port takes for so many bytes.
    #[inline]
    pub(crate) fn serialization_ns(&self, bytes: u64) -> u64 {
        // Below 2^64 for any packet.
        bytes * 8 * 1_000_000_000 / self.bits_per_second.max(1)
    }
}

/// One direction between two nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// When the packet before the next arrives.
    pub(crate) last_arrival_ns: u64,
    pub(crate) queued: u32,
    /// The sender has been told that there is no room.
    pub(crate) is_full: bool,
    /// The last datagrams by which the sender's first self asked for the receiver's epoch, and told its own.
    pub(crate) greetings: [Vec<u8>; 2],
}
