//! Counters of the NIC's work: always counted, in every build.

use core::fmt;

/// Packets dropped unapplied, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejections {
    /// Not a valid packet, or from a node without a link.
    pub malformed: u64,
    /// Not the next in order of its sender: repeated, or after one that was lost.
    pub out_of_order: u64,
    /// Wrong key, range, right, or an export that is gone.
    pub refused: u64,
    /// An answer to no request, or a message to no handler.
    pub unexpected: u64,
}

impl Rejections {
    /// Sum of all reasons.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.malformed + self.out_of_order + self.refused + self.unexpected
    }
}

/// The NIC's counters since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands accepted.
    pub commands: u64,
    /// Commands refused.
    pub failed_commands: u64,
    /// Packets given to the transport.
    pub packets_sent: u64,
    /// Their payload bytes.
    pub bytes_sent: u64,
    /// Well-formed packets received in order, those later refused included.
    pub packets_received: u64,
    /// Their payload bytes.
    pub bytes_received: u64,
    /// Notifications raised.
    pub notifications: u64,
    /// Fetches completed for local processes.
    pub fetches: u64,
    /// Fetches served for other nodes, to their last byte.
    pub fetches_served: u64,
    /// Atomic operations carried out for other nodes.
    pub atomics_served: u64,
    /// Pieces of transfers that met the garbage frame because their page was not pinned.
    pub garbage_pieces: u64,
    /// Refused stores that were not reported because their sender takes no answers.
    pub untold_refusals: u64,
    /// Packets dropped because their translation was missing; their sender's link sends them again.
    pub dropped: u64,
    /// Packets dropped because they arrived early and found no room; their sender's link sends them again.
    pub early_dropped: u64,
    /// Datagrams without effect: malformed, from an unknown or former incarnation, or answers to no question.
    pub datagrams_ignored: u64,
    /// Retransmissions.
    pub packets_resent: u64,
    /// Packets dropped for good.
    pub rejected: Rejections,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} commands ({} refused), sent {} packets with {} B, received {} with {} B, {} notifications, \
             {} fetches and {} served, {} garbage pieces, {} packets rejected",
            self.commands,
            self.failed_commands,
            self.packets_sent,
            self.bytes_sent,
            self.packets_received,
            self.bytes_received,
            self.notifications,
            self.fetches,
            self.fetches_served,
            self.garbage_pieces,
            self.rejected.total()
        )
    }
}
