//! Pacing: a window is spread over its round-trip time (RFC 9002 §7.7).

/// Size of a burst, in packets.
const BURST_PACKETS: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct Pacer {
    next_ns: u64,
}

impl Pacer {
    /// Time from which a packet may leave.
    pub(super) const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// A packet of `bytes` leaves; `packet_bytes` is the longest.
    pub(super) fn handle_sent(&mut self, now_ns: u64, bytes: u64, packet_bytes: u64, window_bytes: u64, rtt_ns: u64) {
        // Faster than the window by a quarter, so that the window and not the pace decides.
        let cost_ns = |bytes: u64| {
            let cost = u128::from(bytes) * u128::from(rtt_ns) / 5;
            let cost = cost.saturating_mul(4) / u128::from(window_bytes.max(1));
            u64::try_from(cost).unwrap_or(u64::MAX)
        };
        let credit_ns = cost_ns(packet_bytes.saturating_mul(BURST_PACKETS - 1));
        // A packet may leave at `next_ns − credit`: `next_ns` is at most a burst ahead of what was sent.
        let from_ns = self.next_ns.max(now_ns.saturating_sub(credit_ns));
        self.next_ns = from_ns.saturating_add(cost_ns(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_packets_leave_at_five_quarters_of_the_windows_rate() {
        let mut pacer = Pacer::default();
        let mut now_ns = 1_000_000;
        let mut at_once = 0;
        while pacer.next_ns() <= now_ns {
            pacer.handle_sent(now_ns, 1000, 1000, 10_000, 100_000);
            at_once += 1;
        }
        assert_eq!(at_once, 4);
        let begin_ns = now_ns;
        for _ in 0..100 {
            now_ns = now_ns.max(pacer.next_ns());
            pacer.handle_sent(now_ns, 1000, 1000, 10_000, 100_000);
        }
        // 10 packets a round trip of 100 µs, by 5/4: one each 8 µs.
        assert_eq!((now_ns - begin_ns) / 100, 8_000);
    }

    #[test]
    fn nothing_overflows() {
        let mut pacer = Pacer::default();
        pacer.handle_sent(u64::MAX, u64::MAX, u64::MAX, 0, u64::MAX);
        assert_eq!(pacer.next_ns(), u64::MAX);
    }
}
