//! Limits log lines that others can cause at will: a few of each cause in a period, and then the number of the others.
//!
//! [`LogLimit`] only counts. A writer asks it before each such line, and [polls](LogLimit::poll) it from time to time for what was left out.
//! It allocates only when it is made.

use std::fmt;
use std::time::{Duration, Instant};

/// Lines of one cause that are written before the others of [`SPAN`] are counted.
pub const MOST_LINES: u32 = 8;
/// Period after which the count is reported.
pub const SPAN: Duration = Duration::from_secs(10);
/// Most causes counted separately. Others share one count.
pub const MOST_CAUSES: usize = 64;

#[derive(Debug)]
pub struct LogLimit<C> {
    causes: Vec<(Option<C>, Lines)>,
}

#[derive(Clone, Copy, Debug)]
struct Lines {
    since: Instant,
    said: u32,
    left_out: u64,
}

/// Number of lines of a cause that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut<C> {
    /// Cause; `None`: several, beyond [`MOST_CAUSES`].
    pub cause: Option<C>,
    pub count: u64,
}

impl<C: fmt::Display> fmt::Display for LeftOut<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{cause}")?,
            None => f.write_str("various causes")?,
        }
        write!(f, ": {} more, not said one by one", self.count)
    }
}

impl<C: Copy + PartialEq> Default for LogLimit<C> {
    fn default() -> Self {
        Self { causes: Vec::with_capacity(MOST_CAUSES + 1) }
    }
}

impl<C: Copy + PartialEq> LogLimit<C> {
    /// Whether to write a line of this cause now. If not, it is counted.
    pub fn admit(&mut self, cause: C, now: Instant) -> bool {
        let is_known = |known: Option<C>| move |one: &(Option<C>, Lines)| one.0 == known;
        let found = self.causes.iter().position(is_known(Some(cause)));
        let found = found.or_else(|| {
            let is_quiet = |lines: &Lines| lines.left_out == 0 && lines.is_over(now);
            self.causes.retain(|(_, lines)| !is_quiet(lines));
            let shared = self.causes.len() >= MOST_CAUSES;
            let cause = (!shared).then_some(cause);
            let known = self.causes.iter().position(is_known(cause));
            known.or_else(|| {
                let lines = Lines { since: now, said: 0, left_out: 0 };
                self.causes.push((cause, lines));
                self.causes.len().checked_sub(1)
            })
        });
        let lines = found.and_then(|at| self.causes.get_mut(at));
        lines.is_some_and(|(_, lines)| lines.admit(now))
    }

    /// Lines left out of a cause whose period is over; report them. Call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<LeftOut<C>> {
        let is_due = |(_, lines): &&mut (Option<C>, Lines)| lines.left_out > 0 && lines.is_over(now);
        let (cause, lines) = self.causes.iter_mut().find(is_due)?;
        let count = std::mem::take(&mut lines.left_out);
        lines.since = now;
        Some(LeftOut { cause: *cause, count })
    }

    /// Time at which to call [`poll`](Self::poll) next.
    #[must_use]
    pub fn poll_at(&self) -> Option<Instant> {
        let counted = self.causes.iter().filter(|(_, lines)| lines.left_out > 0);
        counted.map(|(_, lines)| lines.since + SPAN).min()
    }

    /// Everything left out and not reported yet, for a writer that stops.
    pub fn finish(&mut self) -> impl Iterator<Item = LeftOut<C>> + use<'_, C> {
        let counted = self.causes.drain(..);
        counted.filter_map(|(cause, lines)| {
            let count = lines.left_out;
            (count > 0).then_some(LeftOut { cause, count })
        })
    }
}

impl Lines {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.since + SPAN
    }

    /// A period in which none was left out ends silently, and another begins. After one in which some were, lines are still counted.
    fn admit(&mut self, now: Instant) -> bool {
        if self.left_out == 0 && self.is_over(now) {
            *self = Self { since: now, said: 0, left_out: 0 };
        }
        let is_said = self.said < MOST_LINES;
        match is_said {
            true => self.said += 1,
            false => self.left_out += 1,
        }
        is_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(limit: &mut LogLimit<u32>, now: Instant) -> Vec<(Option<u32>, u64)> {
        std::iter::from_fn(|| limit.poll(now)).map(|left| (left.cause, left.count)).collect()
    }

    #[test]
    fn of_a_flood_a_few_lines_are_said_and_then_how_many_more_there_were() {
        let mut limit = LogLimit::default();
        let begin = Instant::now();
        let said = |limit: &mut LogLimit<u32>, lines, now| (0..lines).filter(|_| limit.admit(7, now)).count();
        assert_eq!(said(&mut limit, 10_000, begin), MOST_LINES as usize);
        // Another has its own lines.
        assert!(limit.admit(8, begin));
        assert_eq!(told(&mut limit, begin), []);
        assert_eq!(limit.poll_at(), Some(begin + SPAN));
        assert_eq!(told(&mut limit, begin + SPAN), [(Some(7), 9_992)]);
        // It continues, and only the count is reported.
        assert_eq!(said(&mut limit, 5, begin + SPAN), 0);
        assert_eq!(told(&mut limit, begin + SPAN), []);
        assert_eq!(told(&mut limit, begin + 2 * SPAN), [(Some(7), 5)]);
        // It is quiet, and starts again.
        assert_eq!(limit.poll_at(), None);
        assert_eq!(said(&mut limit, 9, begin + 3 * SPAN), 8);
        let rest: Vec<_> = limit.finish().collect();
        let (cause, count) = (Some(7), 1);
        assert_eq!(rest, [LeftOut { cause, count }]);
    }

    #[test]
    fn lines_that_come_slowly_are_all_said() {
        let mut limit = LogLimit::default();
        let begin = Instant::now();
        for at in 0..100 {
            assert!(limit.admit(7, begin + at * (SPAN / MOST_LINES)));
        }
        assert_eq!(limit.poll_at(), None);
    }

    #[test]
    fn too_many_causes_share_a_count_and_cost_no_memory() {
        let mut limit = LogLimit::default();
        let capacity = limit.causes.capacity();
        let begin = Instant::now();
        let said = (0..1_000).filter(|cause| limit.admit(*cause, begin));
        assert_eq!(said.count(), MOST_CAUSES + MOST_LINES as usize);
        assert_eq!(limit.causes.capacity(), capacity);
        let left = 1_000 - (MOST_CAUSES + MOST_LINES as usize) as u64;
        assert_eq!(told(&mut limit, begin + SPAN), [(None, left)]);
        let left = LeftOut::<u32> { cause: None, count: 3 };
        assert_eq!(left.to_string(), "various causes: 3 more, not said one by one");
        // Quiet causes make room.
        assert!(limit.admit(5_000, begin + SPAN));
    }
}
