//! Round-trip time (RFC 9002 §5, after RFC 6298).

/// Least time that a timer waits beyond the round-trip time, in place of RFC 9002's 1 ms: a NIC's clock is finer.
const GRANULARITY_NS: u64 = 10_000;

/// Upper bound of `slack_ns`: a peer whose processor is taken away for longer is probed.
const MOST_SLACK_NS: u64 = 10_000_000;

/// Estimate of the round-trip time on the present path.
#[derive(Debug)]
pub(super) struct Rtt {
    latest_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    sampled: bool,
    /// How late acks have come when nothing was lost: the peer, or this node, shares its processor. RFC 9002 has 1 ms for all
    /// peers, which would slow down recovery where nobody is ever late.
    slack_ns: u64,
}

impl Rtt {
    /// No estimate yet; timers assume `initial_ns`.
    pub(super) const fn new(initial_ns: u64) -> Self {
        Self {
            latest_ns: initial_ns,
            smoothed_ns: initial_ns,
            variation_ns: initial_ns / 2,
            min_ns: initial_ns,
            sampled: false,
            slack_ns: 0,
        }
    }

    /// Takes the time between a transmission and its ack, which the peer delayed by `ack_delay_ns`, of which at most
    /// `most_delay_ns` counts.
    pub(super) fn sample(&mut self, took_ns: u64, ack_delay_ns: u64, most_delay_ns: u64) {
        self.latest_ns = took_ns;
        if !self.sampled {
            // RFC 6298 (2.2).
            *self = Self {
                latest_ns: took_ns,
                smoothed_ns: took_ns,
                variation_ns: took_ns / 2,
                min_ns: took_ns,
                sampled: true,
                slack_ns: self.slack_ns,
            };
            return;
        }
        self.min_ns = self.min_ns.min(took_ns);
        let delay_ns = ack_delay_ns.min(most_delay_ns);
        // RFC 9002 §5.3: the delay is not subtracted if the result would fall below the minimum ever seen.
        let adjusted = match took_ns.saturating_sub(delay_ns) {
            adjusted if adjusted >= self.min_ns => adjusted,
            _ => took_ns,
        };
        let off = self.smoothed_ns.abs_diff(adjusted);
        self.variation_ns = self.variation_ns - self.variation_ns / 4 + off / 4;
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + adjusted / 8;
    }

    /// A probe was spurious: the ack of what was sent before it came after `took_ns` (Eifel, RFC 4015; F-RTO, RFC 5682).
    pub(super) fn handle_spurious(&mut self, took_ns: u64) {
        let late_ns = took_ns.saturating_sub(self.smoothed_ns);
        // A quarter more: the next may be slightly later.
        let slack_ns = late_ns.saturating_add(late_ns / 4).min(MOST_SLACK_NS);
        self.slack_ns = self.slack_ns.max(slack_ns);
    }

    /// A probe was needed: waiting less would have been better.
    pub(super) fn handle_needed(&mut self) {
        self.slack_ns /= 2;
    }

    /// Smoothed and minimum round-trip time, once there is a sample.
    pub(super) fn times_ns(&self) -> Option<(u64, u64)> {
        self.sampled.then_some((self.smoothed_ns, self.min_ns))
    }

    pub(super) const fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// Wait for an ack before a probe (RFC 9002 §6.2.1), without the peer's delay.
    pub(super) fn timeout_ns(&self) -> u64 {
        let late_ns = self.smoothed_ns.saturating_add(self.slack_ns);
        self.usual_ns().max(late_ns)
    }

    /// Longest time that an ack usually takes.
    pub(super) fn usual_ns(&self) -> u64 {
        let margin_ns = self.variation_ns.saturating_mul(4).max(GRANULARITY_NS);
        self.smoothed_ns.saturating_add(margin_ns)
    }

    /// Time after its transmission at which a packet is lost, once a later one is acked (RFC 9002 §6.1.2).
    pub(super) fn loss_delay_ns(&self) -> u64 {
        let longest_ns = self.smoothed_ns.max(self.latest_ns);
        longest_ns.saturating_add(longest_ns / 8).max(GRANULARITY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_replaces_the_guess_and_later_ones_move_it() {
        let mut rtt = Rtt::new(1_000_000);
        assert_eq!(rtt.timeout_ns(), 3_000_000);
        rtt.sample(100_000, 0, 0);
        assert_eq!((rtt.smoothed_ns(), rtt.timeout_ns()), (100_000, 300_000));
        rtt.sample(180_000, 0, 0);
        assert_eq!(rtt.smoothed_ns(), 110_000);
        assert_eq!(rtt.variation_ns, 57_500);
        assert_eq!(rtt.loss_delay_ns(), 202_500);
    }

    #[test]
    fn a_delay_that_the_peer_exaggerates_never_gives_less_than_the_least_time() {
        let mut rtt = Rtt::new(1_000_000);
        rtt.sample(100_000, 0, 50_000);
        rtt.sample(140_000, u64::MAX, 50_000);
        assert_eq!(rtt.smoothed_ns(), 105_000);
        rtt.sample(180_000, u64::MAX, 50_000);
        assert_eq!(rtt.smoothed_ns(), 105_000 - 13_125 + 16_250);
        rtt.sample(u64::MAX, 0, 0);
        assert!(rtt.timeout_ns() > rtt.smoothed_ns());
    }
}
