//! The congestion window: CUBIC (RFC 9438) with slow start, in bytes.

/// RFC 9438 §4.1: the window shrinks to 7/10 on a loss.
const BETA_TENTHS: u64 = 7;
/// Packets of the first window (RFC 6928) and of the smallest (RFC 9002 §7.2).
const FIRST_PACKETS: u64 = 10;
const LEAST_PACKETS: u64 = 2;
/// Time beyond which the cubic function is not evaluated: 100 s.
const MOST_NS: u64 = 100_000_000_000;
/// (10⁹ ns)³, that is, one cubic second.
const CUBED: u128 = 1_000_000_000_000_000_000_000_000_000;

/// How many bytes may be under way.
#[derive(Debug)]
pub(super) struct Window {
    packet_bytes: u64,
    bytes: u64,
    threshold_bytes: u64,
    /// W_max: the window before the last reduction, at which the cubic function aims.
    prior_bytes: u64,
    aim_bytes: u64,
    /// W_est: the window that Reno would have.
    reno_bytes: u64,
    /// Start of this stage of congestion avoidance, and K.
    stage: Option<(u64, u64)>,
    /// Time of the last reduction: losses of packets sent before it tell nothing new (RFC 9002 §7.3.2).
    reduced_ns: Option<u64>,
}

impl Window {
    /// A window for packets of at most `packet_bytes`.
    pub(super) fn new(packet_bytes: u64) -> Self {
        let packet_bytes = packet_bytes.max(1);
        Self {
            packet_bytes,
            bytes: FIRST_PACKETS * packet_bytes,
            threshold_bytes: u64::MAX,
            prior_bytes: 0,
            aim_bytes: 0,
            reno_bytes: 0,
            stage: None,
            reduced_ns: None,
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_old(&self, sent_ns: u64) -> bool {
        self.reduced_ns.is_some_and(|reduced| sent_ns <= reduced)
    }

    /// A packet of `acked_bytes`, sent at `sent_ns`, is acked while the window was full.
    pub(super) fn handle_acked(&mut self, now_ns: u64, acked_bytes: u64, sent_ns: u64, rtt_ns: u64) {
        if self.is_old(sent_ns) {
            return;
        }
        if self.bytes < self.threshold_bytes {
            self.bytes += acked_bytes;
            return;
        }
        let (begin_ns, k_ns) = match self.stage {
            Some(stage) => stage,
            None => {
                self.reno_bytes = self.bytes;
                self.aim_bytes = self.aim_bytes.max(self.bytes);
                let stage = (now_ns, self.k_ns());
                self.stage = Some(stage);
                stage
            }
        };
        // RFC 9438 §4.3: α = 3 (1 − β) / (1 + β) = 9/17 until the former window is reached, then 1.
        let step = self.packet_bytes * acked_bytes / self.bytes;
        self.reno_bytes += match self.reno_bytes < self.prior_bytes {
            true => step * 9 / 17,
            false => step,
        };
        let since_ns = now_ns.saturating_sub(begin_ns);
        if self.cubic(since_ns, k_ns) < self.reno_bytes {
            self.bytes = self.bytes.max(self.reno_bytes);
        } else {
            // §4.4 and §4.5: grow towards the value one round-trip time from now, by half at most.
            let target = self.cubic(since_ns.saturating_add(rtt_ns), k_ns);
            let target = target.clamp(self.bytes, self.bytes + self.bytes / 2);
            self.bytes += (target - self.bytes) * acked_bytes / self.bytes;
        }
    }

    /// A packet sent at `sent_ns` is lost.
    pub(super) fn handle_lost(&mut self, now_ns: u64, sent_ns: u64) {
        if self.is_old(sent_ns) {
            return;
        }
        self.reduced_ns = Some(now_ns);
        self.stage = None;
        self.prior_bytes = self.bytes;
        // §4.7, fast convergence.
        self.aim_bytes = match self.bytes < self.aim_bytes {
            true => self.bytes * (10 + BETA_TENTHS) / 20,
            false => self.bytes,
        };
        self.bytes = (self.bytes * BETA_TENTHS / 10).max(self.least());
        self.threshold_bytes = self.bytes;
    }

    /// Persistent congestion: shrinks to the smallest window (RFC 9002 §7.6).
    pub(super) fn collapse(&mut self) {
        self.threshold_bytes = (self.bytes * BETA_TENTHS / 10).max(self.least());
        self.bytes = self.least();
        self.stage = None;
    }

    /// Undoes a needless collapse: the window is `bytes` again, and grows from there as if it had just been found.
    pub(super) fn restore(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
        self.threshold_bytes = self.bytes;
    }

    const fn least(&self) -> u64 {
        LEAST_PACKETS * self.packet_bytes
    }

    /// §4.2: K is the cube root of (W_max − cwnd) / C, with C = 0.4.
    fn k_ns(&self) -> u64 {
        let missing = u128::from(self.aim_bytes - self.bytes).min(1 << 32);
        cube_root(missing * 5 * CUBED / (2 * u128::from(self.packet_bytes)))
    }

    /// §4.2: W_cubic(t) = C (t − K)³ + W_max.
    fn cubic(&self, since_ns: u64, k_ns: u64) -> u64 {
        let off = u128::from(since_ns.abs_diff(k_ns).min(MOST_NS));
        let packet_bytes = u128::from(self.packet_bytes.min(1 << 16));
        let change = (off * off * off * packet_bytes * 2 / (5 * CUBED)) as u64;
        match since_ns < k_ns {
            true => self.aim_bytes.saturating_sub(change),
            false => self.aim_bytes.saturating_add(change),
        }
    }
}

fn cube_root(of: u128) -> u64 {
    let mut root = 0u128;
    // 2^42 cubed is 2^126.
    for bit in (0..42).rev() {
        let next = root | 1 << bit;
        if next * next * next <= of {
            root = next;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_rounded_down() {
        for (of, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3)] {
            assert_eq!(cube_root(of), root);
        }
        assert_eq!(cube_root(CUBED), 1_000_000_000);
        assert_eq!(cube_root(u128::MAX), (1 << 42) - 1);
    }

    #[test]
    fn slow_start_doubles_and_one_round_of_losses_shrinks_it_once() {
        let mut window = Window::new(1000);
        for _ in 0..10 {
            window.handle_acked(1, 1000, 0, 1);
        }
        assert_eq!(window.bytes(), 20_000);
        window.handle_lost(10, 5);
        assert_eq!(window.bytes(), 14_000);
        window.handle_lost(11, 9);
        window.handle_acked(12, 1000, 9, 1);
        assert_eq!(window.bytes(), 14_000, "both were sent before the reduction");
        window.handle_lost(20, 11);
        assert_eq!(window.bytes(), 9_800);
    }

    #[test]
    fn it_comes_back_to_where_it_was_after_k_and_goes_beyond() {
        let mut window = Window::new(1000);
        window.bytes = 1_000_000;
        window.handle_lost(0, 0);
        // K = ∛(300 / 0.4) = 9.09 s; the round-trip time is so long that Reno's window stays below.
        let rtt_ns = 200_000_000;
        let mut now_ns = 1;
        let mut at_k = 0;
        while now_ns < 15_000_000_000 {
            let before = window.bytes();
            let packets = before / 1000;
            for _ in 0..packets {
                window.handle_acked(now_ns, 1000, now_ns, rtt_ns);
            }
            assert!(window.bytes() >= before && window.bytes() <= before + before / 2 + 1000);
            now_ns += rtt_ns;
            if now_ns < 9_000_000_000 {
                at_k = window.bytes();
            }
        }
        assert!((980_000..=1_010_000).contains(&at_k), "{at_k}");
        assert!(window.bytes() > 1_060_000, "{}", window.bytes());
    }

    #[test]
    fn it_never_falls_below_two_packets() {
        let mut window = Window::new(1000);
        for now_ns in 1..100 {
            window.handle_lost(now_ns * 2, now_ns * 2 - 1);
        }
        assert_eq!(window.bytes(), 2000);
        window.collapse();
        assert_eq!(window.bytes(), 2000);
    }
}
