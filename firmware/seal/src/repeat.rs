//! Schedules retransmissions of a handshake datagram.

/// Delay before the first repetition.
const FIRST_NS: u64 = 20_000_000;
/// Longest delay. Over a path that loses every second datagram, the handshake succeeds within seconds.
const MOST_NS: u64 = 320_000_000;

/// Least interval between two sends that the peer's repetitions cause.
const LEAST_NS: u64 = 5_000_000;

/// A datagram that is repeated until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    /// Whether it is to be sent now.
    is_due: bool,
    sends: u32,
    delay_ns: u64,
    sent_at_ns: u64,
    again_at_ns: u64,
    ends_at_ns: u64,
}

impl Repeat {
    /// A datagram that is due at once, and repeated until `ends_at_ns`.
    pub(crate) const fn new(ends_at_ns: u64) -> Self {
        Self { is_due: true, sends: 0, delay_ns: FIRST_NS, sent_at_ns: 0, again_at_ns: u64::MAX, ends_at_ns }
    }

    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Number of times that it was sent.
    pub(crate) const fn sends(&self) -> u32 {
        self.sends
    }

    /// Makes it due at once, and resets the delay.
    pub(crate) const fn hasten(&mut self) {
        self.is_due = true;
        self.delay_ns = FIRST_NS;
    }

    /// Makes it due because the peer asks again, unless it was just sent.
    pub(crate) const fn handle_asked(&mut self, now_ns: u64) {
        self.is_due |= now_ns >= self.sent_at_ns.saturating_add(LEAST_NS);
    }

    pub(crate) fn handle_sent(&mut self, now_ns: u64) {
        self.is_due = false;
        self.sends = self.sends.saturating_add(1);
        self.sent_at_ns = now_ns;
        self.again_at_ns = now_ns.saturating_add(self.delay_ns);
        self.delay_ns = (self.delay_ns * 2).min(MOST_NS);
    }

    /// Makes it due if it is time; `false` once its end has come.
    pub(crate) const fn handle_time(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.again_at_ns {
            self.is_due = true;
            self.again_at_ns = u64::MAX;
        }
        now_ns < self.ends_at_ns
    }

    /// Time of the next [`handle_time`](Self::handle_time).
    pub(crate) fn next_ns(&self) -> u64 {
        self.again_at_ns.min(self.ends_at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_limit_and_end() {
        let mut repeat = Repeat::new(2_000_000_000);
        let (mut now_ns, mut delays) = (0, alloc::vec::Vec::new());
        loop {
            assert!(repeat.is_due());
            repeat.handle_sent(now_ns);
            assert!(!repeat.is_due());
            delays.push((repeat.next_ns() - now_ns) / 1_000_000);
            now_ns = repeat.next_ns();
            if !repeat.handle_time(now_ns) {
                break;
            }
        }
        assert_eq!(delays[..6], [20, 40, 80, 160, 320, 320]);
        assert_eq!(now_ns, 2_000_000_000);
    }

    #[test]
    fn a_peer_that_asks_again_and_again_is_answered_every_5_ms() {
        let mut repeat = Repeat::new(u64::MAX);
        let mut sends = 0;
        for now_ns in (0..50_000_000).step_by(100_000) {
            repeat.handle_asked(now_ns);
            if repeat.is_due() {
                repeat.handle_sent(now_ns);
                sends += 1;
            }
        }
        assert_eq!(sends, 10);
    }
}
