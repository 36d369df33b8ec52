//! Several paths to a peer: after repeated timeouts the next one is used, as in UTLB §4.1's remapping of a link whose switches or
//! cables have failed.

/// Timeouts in a row after which a path is left.
const TIMEOUTS_A_PATH: u32 = 3;
/// Least time from the first of them: before anything has arrived, timeouts are guesses, and sealing may still be in its
/// handshake.
const LEAST_NS: u64 = 50_000_000;

#[derive(Debug)]
pub(super) struct Paths {
    count: u8,
    current: u8,
    timeouts: u32,
    /// Time of the first of these timeouts.
    since_ns: u64,
}

impl Paths {
    /// `count` is raised to at least one.
    pub(super) fn new(count: u8) -> Self {
        Self { count: count.max(1), current: 0, timeouts: 0, since_ns: 0 }
    }

    pub(super) const fn current(&self) -> u8 {
        self.current
    }

    /// Something arrived.
    pub(super) const fn handle_progress(&mut self) {
        self.timeouts = 0;
    }

    /// A timeout. True if the path has changed.
    pub(super) const fn handle_timeout(&mut self, now_ns: u64) -> bool {
        if self.timeouts == 0 {
            self.since_ns = now_ns;
        }
        self.timeouts = self.timeouts.saturating_add(1);
        let is_soon = now_ns < self.since_ns.saturating_add(LEAST_NS);
        if is_soon || self.timeouts < TIMEOUTS_A_PATH || self.count == 1 {
            return false;
        }
        self.timeouts = 0;
        self.current = (self.current + 1) % self.count;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_left_after_three_timeouts_in_a_row_and_the_only_one_never() {
        let mut paths = Paths::new(2);
        let mut now_ns = 0;
        let mut times_out = |paths: &mut Paths| {
            now_ns += LEAST_NS;
            paths.handle_timeout(now_ns)
        };
        assert!(!times_out(&mut paths) && !times_out(&mut paths));
        paths.handle_progress();
        assert!(!times_out(&mut paths) && !times_out(&mut paths) && times_out(&mut paths));
        assert_eq!(paths.current(), 1);
        assert!((0..3).any(|_| times_out(&mut paths)));
        assert_eq!(paths.current(), 0);
        let mut single = Paths::new(0);
        assert!(!(0..10).any(|_| times_out(&mut single)));
    }

    #[test]
    fn a_path_is_not_left_for_many_timeouts_within_a_moment() {
        let mut paths = Paths::new(2);
        assert!((0..50).all(|ms| !paths.handle_timeout(1_000_000 * ms)));
        assert!(paths.handle_timeout(LEAST_NS));
    }
}
