//! Links between nodes: latency, bandwidth, a queue of limited length, strict order per pair; and what they deliver.

use core::fmt;

use mapwire_wire::link::LINK_HEADER_BYTES;
use mapwire_wire::{HEADER_BYTES, NodeId};

/// Packets of the longest for which a node has room before their turn, where seeds are drawn: so few that some find none.
pub const EARLY_PACKETS: u8 = 4;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It delivers each once and in order, and holds the sender back when its queue is full.
    Lossless,
    /// It drops what its queue has no room for, and bears all rules.
    Lossy {
        paths: u8,
        /// How long a link waits for a silent peer.
        dead_after_ns: u64,
        /// Whether nodes are told of crashes; otherwise their links find out.
        tells_of_crashes: bool,
        /// Packets of the longest for which a node has room before their turn.
        early_packets: u8,
        /// Whether datagrams are sealed. Then damaged ones arrive too: no checksum stands before the tag.
        is_sealed: bool,
    },
}

impl Delivery {
    /// Whether nodes seal their datagrams.
    #[must_use]
    pub const fn is_sealed(self) -> bool {
        matches!(self, Self::Lossy { is_sealed: true, .. })
    }

    /// What the network interface of a node's incarnation is made with.
    pub(super) fn of_nic(self, max_payload_bytes: usize, node: NodeId, incarnation: u32) -> mapwire_nic::Delivery {
        let Self::Lossy { paths, dead_after_ns, early_packets, .. } = self else {
            return mapwire_nic::Delivery::Lossless;
        };
        let epoch = u64::from(incarnation) << 32 | (u64::from(node.0) + 1);
        let bytes = max_payload_bytes + HEADER_BYTES + LINK_HEADER_BYTES;
        mapwire_nic::Delivery::Lossy(mapwire_nic::link::LinkConfig {
            paths,
            dead_after_ns,
            max_early_datagrams: early_packets.into(),
            ..mapwire_nic::link::LinkConfig::new(epoch, bytes as u32)
        })
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Lossy { paths, dead_after_ns, tells_of_crashes, early_packets, is_sealed } = self else {
            return f.write_str("which loses nothing");
        };
        let form = if *is_sealed { "sealed" } else { "plain" };
        let crashes = if *tells_of_crashes { "told" } else { "found by the links" };
        write!(
            f,
            "which may lose {form} packets, {paths} paths, a silent peer is dead after {dead_after_ns} ns, crashes are {crashes}, {early_packets} long packets may come early"
        )
    }
}
