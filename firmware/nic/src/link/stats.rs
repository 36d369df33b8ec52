//! What a link knows of its way, and what it has counted.

use super::Link;

/// What a link has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Packets taken in order, or kept until their turn.
    pub received: u64,
    /// Packets that came once more.
    pub repeated: u64,
    /// Acks sent in datagrams of their own.
    pub acks_sent: u64,
    /// Acks that came in datagrams of their own.
    pub acks_received: u64,
    /// Times that losses were found by later acks.
    pub losses: u64,
    /// Times that nothing came back in time.
    pub timeouts: u64,
    /// Of these, the times that an ack showed later that nothing was lost.
    pub spurious: u64,
}

/// A link as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// Smoothed round-trip time of the present path, in nanoseconds; `None` before the first.
    pub rtt_ns: Option<u64>,
    /// The least of that path.
    pub min_rtt_ns: Option<u64>,
    /// How long an ack is waited for, in nanoseconds, without backoff.
    pub timeout_ns: u64,
    /// Bytes that may be under way.
    pub window_bytes: u64,
    /// Bytes that are under way.
    pub in_flight_bytes: u64,
    /// Packets that are not acked.
    pub unacked: u32,
    /// Number of the path that is taken.
    pub path: u8,
    /// What it has counted.
    pub counters: LinkCounters,
}

impl<T> Link<T> {
    /// What is known of the way to the peer, and what was counted.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        let times = self.rtt.times_ns();
        LinkStats {
            rtt_ns: times.map(|times| times.0),
            min_rtt_ns: times.map(|times| times.1),
            timeout_ns: self.rtt.timeout_ns().saturating_add(self.config.ack_delay_ns),
            window_bytes: self.window.bytes(),
            in_flight_bytes: self.sent.in_flight_bytes(),
            unacked: self.sent.len(),
            path: self.paths.current(),
            counters: self.counters,
        }
    }
}
