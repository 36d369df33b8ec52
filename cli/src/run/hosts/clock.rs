//! How far the clock of a host is from the head's. Each host counts from its own start, so traces of two hosts have nothing in common
//! without it.

use super::frame::{boot, clock_ns};

/// An agent's clock, by the times in its messages: none can arrive before it was sent, so the fastest one tells most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    is_ours: bool,
    /// The least that the head's clock was ahead when a word arrived, in nanoseconds.
    least_ns: Option<i64>,
}

impl Clock {
    pub(super) fn begin(&mut self, boot_there: &str, clock_there_ns: u64) {
        self.is_ours = !boot_there.is_empty() && boot_there == boot();
        self.note(clock_there_ns);
    }

    /// Takes a word that has just come.
    pub(super) fn note(&mut self, clock_there_ns: u64) {
        self.note_at(clock_ns(), clock_there_ns);
    }

    fn note_at(&mut self, here_ns: u64, there_ns: u64) {
        let behind = here_ns.wrapping_sub(there_ns) as i64;
        self.least_ns = Some(self.least_ns.map_or(behind, |least| least.min(behind)));
    }

    /// By how many nanoseconds the agent's clock is ahead of the head's, but for the time that the fastest of its words took.
    pub(super) fn ahead_ns(&self) -> i64 {
        match self.least_ns {
            Some(behind) if !self.is_ours => behind.wrapping_neg(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_word_tells_how_far_a_clock_is_ahead() {
        let hour = 3_600_000_000_000;
        let mut clock = Clock::default();
        for (said, took) in [(0, 900), (1_000, 100), (2_000, 5_000)] {
            clock.note_at(said + took, said + hour);
        }
        assert_eq!(clock.ahead_ns(), hour as i64 - 100);
    }

    #[test]
    fn processes_of_one_boot_have_one_clock() {
        let mut clock = Clock::default();
        clock.begin(&boot(), clock_ns() - 1_000_000);
        if !boot().is_empty() {
            assert_eq!(clock.ahead_ns(), 0);
        }
    }
}
