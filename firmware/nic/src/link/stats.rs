//! State and counters of a link.

use super::Link;

/// Counters since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Packets taken in order, or kept until their turn.
    pub received: u64,
    /// Packets received again.
    pub repeated: u64,
    /// Acks sent in datagrams of their own.
    pub acks_sent: u64,
    /// Acks that came in datagrams of their own.
    pub acks_received: u64,
    /// Losses found by later acks.
    pub losses: u64,
    pub timeouts: u64,
    /// Timeouts that an ack showed to be spurious.
    pub spurious: u64,
}

/// A snapshot of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// Smoothed round-trip time of the present path, in nanoseconds; `None` before the first.
    pub rtt_ns: Option<u64>,
    /// Minimum round-trip time of that path, in nanoseconds.
    pub min_rtt_ns: Option<u64>,
    /// Wait for an ack before a probe, in nanoseconds, without backoff.
    pub timeout_ns: u64,
    /// Congestion window, in bytes.
    pub window_bytes: u64,
    /// Bytes under way.
    pub in_flight_bytes: u64,
    /// Packets not acked.
    pub unacked: u32,
    /// Number of the present path.
    pub path: u8,
    /// Counters since the link was made.
    pub counters: LinkCounters,
}

impl<T> Link<T> {
    /// A snapshot of the link.
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
