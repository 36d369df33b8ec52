//! When a datagram of a handshake is sent again.

/// Delay before the first repetition.
const FIRST_NS: u64 = 20_000_000;
/// The longest delay. A path that loses every second datagram is passed within seconds.
const MOST_NS: u64 = 320_000_000;

/// A datagram that is sent until something is heard of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    /// Whether it is to be sent now.
    is_due: bool,
    sends: u32,
    delay_ns: u64,
    again_at_ns: u64,
    ends_at_ns: u64,
}

impl Repeat {
    /// A datagram that is due at once, until `ends_at_ns`.
    pub(crate) const fn new(ends_at_ns: u64) -> Self {
        Self {
            is_due: true,
            sends: 0,
            delay_ns: FIRST_NS,
            again_at_ns: u64::MAX,
            ends_at_ns,
        }
    }

    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// How often it was sent.
    pub(crate) const fn sends(&self) -> u32 {
        self.sends
    }

    /// Sends it at once; the delay starts anew.
    pub(crate) const fn hasten(&mut self) {
        self.is_due = true;
        self.delay_ns = FIRST_NS;
    }

    pub(crate) fn handle_sent(&mut self, now_ns: u64) {
        self.is_due = false;
        self.sends = self.sends.saturating_add(1);
        self.again_at_ns = now_ns.saturating_add(self.delay_ns);
        self.delay_ns = (self.delay_ns * 2).min(MOST_NS);
    }

    /// Makes it due if it is time; `false` if its end has come.
    pub(crate) const fn handle_time(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.again_at_ns {
            self.is_due = true;
            self.again_at_ns = u64::MAX;
        }
        now_ns < self.ends_at_ns
    }

    /// When [`handle_time`](Self::handle_time) has something to do.
    pub(crate) fn next_ns(&self) -> u64 {
        self.again_at_ns.min(self.ends_at_ns)
    }
}
