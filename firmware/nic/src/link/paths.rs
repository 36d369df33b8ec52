//! Several paths to a peer: one that times out again and again is left for the next, as UTLB §4.1's remapping of a link whose
//! switches or cables have failed.

/// Timeouts in a row after which a path is left.
const TIMEOUTS_A_PATH: u32 = 3;

/// Which path is taken.
#[derive(Debug)]
pub(super) struct Paths {
    count: u8,
    current: u8,
    timeouts: u32,
}

impl Paths {
    /// `count` paths, at least one.
    pub(super) fn new(count: u8) -> Self {
        Self {
            count: count.max(1),
            current: 0,
            timeouts: 0,
        }
    }

    pub(super) const fn current(&self) -> u8 {
        self.current
    }

    /// Something came back.
    pub(super) const fn handle_progress(&mut self) {
        self.timeouts = 0;
    }

    /// Nothing came back in time. True when the path has changed.
    pub(super) const fn handle_timeout(&mut self) -> bool {
        self.timeouts += 1;
        if self.timeouts < TIMEOUTS_A_PATH || self.count == 1 {
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
        assert!(!paths.handle_timeout() && !paths.handle_timeout());
        paths.handle_progress();
        assert!(!paths.handle_timeout() && !paths.handle_timeout() && paths.handle_timeout());
        assert_eq!(paths.current(), 1);
        assert!((0..3).any(|_| paths.handle_timeout()));
        assert_eq!(paths.current(), 0);
        let mut single = Paths::new(0);
        assert!(!(0..10).any(|_| single.handle_timeout()));
    }
}
