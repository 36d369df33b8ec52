//! Most recently used first within cyclic sweeps, least recently used first otherwise.

use std::collections::VecDeque;

use mapwire_translation::{Candidates, ChooseVictims, Page, PageRange, PinMap};

/// Pages in a row that were used before until a sweep counts as one that comes again.
pub const SWEEP_PAGES: u64 = 8;

/// Sweeps that may be under way at a time.
const SWEEPS: usize = 16;
/// Pages behind the place of a sweep that are kept as its victims.
const KEPT_PAGES: usize = 1024;

/// Operations that go through memory at even steps.
#[derive(Clone, Debug)]
struct Run {
    at: Page,
    end: Page,
    /// From an operation to the next, in pages, where they do not follow one another: as it was from the one before the first.
    step: i64,
    /// Pages at its end that had been used before the sweep came to them.
    repeated: u64,
    /// Pages that it has left behind, the last ones last.
    left: VecDeque<Page>,
    time: u64,
}

impl Run {
    fn new(first: Page, before: Option<Page>) -> Self {
        Run {
            at: first,
            end: first,
            step: before.map_or(0, |before| first.0.wrapping_sub(before.0) as i64),
            repeated: 0,
            left: VecDeque::new(),
            time: 0,
        }
    }

    /// Whether an operation of the pages is its next: right behind, from the page on which the last one ended, or a step away.
    fn goes_on(&self, pages: PageRange) -> bool {
        let first = pages.first.0;
        let stays = self.at.0 <= first && first + 1 == self.end.0;
        first == self.end.0 || stays || self.step != 0 && first == self.at.0.wrapping_add_signed(self.step)
    }

    fn go_on(&mut self, pages: PageRange, fresh: u64, time: u64) {
        let new = |page: &Page| self.left.back() != Some(page);
        let more: Vec<_> = pages.iter().filter(new).collect();
        self.repeated = if fresh > 0 { 0 } else { self.repeated + more.len() as u64 };
        self.left.extend(more);
        let over = self.left.len().saturating_sub(KEPT_PAGES);
        self.left.drain(..over);
        (self.at, self.end, self.time) = (pages.first, pages.end(), time);
    }
}

/// Finds sweeps: operations that follow one another in memory, or at even steps, up or down; several may be under way at a time. While
/// a process sweeps what it has used before, the pages that the sweep has just left go first: they are needed again only after all
/// others. Otherwise, and on a first sweep, which may be the only one, the page used least recently goes.
#[derive(Debug, Default)]
pub struct Sweep {
    runs: Vec<Run>,
    /// The run that the operation under way belongs to.
    current: Option<usize>,
    /// Where the operation before it was.
    before: Option<Page>,
    known: Option<PinMap>,
    time: u64,
}

impl ChooseVictims for Sweep {
    fn used(&mut self, pages: PageRange) {
        self.time += 1;
        let known = self.known.get_or_insert_with(PinMap::new);
        // Pages that are planned for lie in the address space.
        let fresh = known.set(pages).unwrap_or(pages.count);
        let at = self.runs.iter().position(|run| run.goes_on(pages));
        let at = at.unwrap_or_else(|| self.begin(pages.first));
        self.runs[at].go_on(pages, fresh, self.time);
        (self.current, self.before) = (Some(at), Some(pages.first));
    }

    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        let run = self.current.map(|at| &self.runs[at]);
        let Some(run) = run.filter(|run| run.repeated >= SWEEP_PAGES) else { return };
        let newest = run.left.iter().rev().copied();
        victims.extend(newest.filter(|page| candidates.contains(*page)).take(count as usize));
    }
}

impl Sweep {
    /// The place of a new run, perhaps instead of that which rests longest.
    fn begin(&mut self, first: Page) -> usize {
        let run = Run::new(first, self.before);
        if self.runs.len() < SWEEPS {
            self.runs.push(run);
            return self.runs.len() - 1;
        }
        let at = (0..SWEEPS).min_by_key(|at| self.runs[*at].time).unwrap_or(0);
        self.runs[at] = run;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::driven::unpinned;
    use super::*;

    fn sweeps(pages: u64, times: u64, piece: u64) -> Vec<(u64, u64)> {
        (0..times).flat_map(|_| (0..pages / piece).map(move |at| (at * piece, piece))).collect()
    }

    fn with(limit: u64, operations: &[(u64, u64)]) -> (usize, usize) {
        let sweep = unpinned(limit, Some(Box::<Sweep>::default()), operations).len();
        (sweep, unpinned(limit, None, operations).len())
    }

    #[test]
    fn a_cyclic_sweep_larger_than_the_limit_keeps_most_of_the_limit_pinned() {
        let operations = sweeps(100, 10, 1);
        let (sweep, lru) = with(80, &operations);
        assert_eq!(lru, 1000 - 80);
        // From the second sweep on about 20 pages of 100 do not fit.
        assert!(sweep < 20 + 9 * 35, "{sweep}");
        let (sweep, lru) = with(80, &sweeps(100, 10, 5));
        assert!(sweep * 2 < lru, "{sweep} {lru}");
    }

    #[test]
    fn a_sweep_that_comes_once_and_pages_used_in_no_order_go_as_by_lru() {
        let once = sweeps(300, 1, 1);
        assert_eq!(unpinned(50, Some(Box::<Sweep>::default()), &once), unpinned(50, None, &once));
        let scattered: Vec<_> = (0..500_u64).map(|n| (n * n * 7919 % 997 * 2, 1)).collect();
        assert_eq!(unpinned(50, Some(Box::<Sweep>::default()), &scattered), unpinned(50, None, &scattered));
    }

    #[test]
    fn sweeps_at_even_steps_are_found_up_and_down() {
        let columns = |row: u64| (0..16).map(move |column| (row * 16 + column, 1));
        let up: Vec<_> =
            (0..10).flat_map(|_| (0..16).flat_map(|column| (0..16).map(move |row| (row * 16 + column, 1)))).collect();
        let (sweep, lru) = with(192, &up);
        assert!(sweep * 3 < lru * 2, "{sweep} {lru}");
        let down: Vec<_> = (0..10).flat_map(|_| (0..16).flat_map(columns).rev()).collect();
        let (sweep, lru) = with(192, &down);
        assert!(sweep * 2 < lru, "{sweep} {lru}");
    }

    #[test]
    fn two_sweeps_in_turn_are_told_apart() {
        let one = sweeps(100, 10, 1);
        let both: Vec<_> = one.iter().flat_map(|(page, count)| [(*page, *count), (page + 5000, *count)]).collect();
        let (sweep, lru) = with(150, &both);
        assert!(sweep * 2 < lru, "{sweep} {lru}");
    }
}
