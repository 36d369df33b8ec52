//! Most recently used first within cyclic sweeps, least recently used first otherwise.

use mapwire_translation::{Candidates, ChooseVictims, Page, PageRange, PinMap};

/// Pages in a row that were swept before until a sweep counts as one that comes again.
pub const SWEEP_PAGES: u64 = 8;

/// Sweeps that may be under way at a time.
const SWEEPS: usize = 16;
/// Pages behind the place of a sweep that are looked at for victims, besides those that are wanted.
const LOOK_BACK_PAGES: u64 = 1024;

/// Pages used one after the other, in rising order.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Page,
    /// The page behind the one used last.
    end: Page,
    /// Pages of its end that had been used before the sweep came to them.
    repeated: u64,
    /// When it went on last.
    time: u64,
}

/// Finds sequential sweeps. While a process sweeps what it has used before, the pages that the sweep has just left go first: they are
/// needed again only after all others. Otherwise, and on a first sweep, which may be the only one, the page used least recently goes.
#[derive(Debug, Default)]
pub struct Sweep {
    runs: Vec<Run>,
    /// The run that the operation under way belongs to.
    current: Option<usize>,
    known: Option<PinMap>,
    time: u64,
}

impl ChooseVictims for Sweep {
    fn used(&mut self, pages: PageRange) {
        self.time += 1;
        // All pages of a plan lie in the address space.
        let known = self.known.get_or_insert_with(PinMap::new);
        let fresh = known.set(pages).unwrap_or(pages.count);
        let end = pages.end();
        // A piece that starts on the page where the last one ended goes on, too.
        let goes_on = |run: &Run| {
            run.end == pages.first || run.first <= pages.first && run.end.0 == pages.first.0 + 1
        };
        let at = self.runs.iter().position(goes_on);
        let at = at.unwrap_or_else(|| {
            let new = Run {
                first: pages.first,
                end: pages.first,
                repeated: 0,
                time: 0,
            };
            if self.runs.len() < SWEEPS {
                self.runs.push(new);
                return self.runs.len() - 1;
            }
            let oldest = (0..SWEEPS)
                .min_by_key(|at| self.runs[*at].time)
                .unwrap_or(0);
            self.runs[oldest] = new;
            oldest
        });
        let run = &mut self.runs[at];
        let more = end.0 - run.end.0;
        run.repeated = if fresh > 0 { 0 } else { run.repeated + more };
        (run.end, run.time) = (end, self.time);
        self.current = Some(at);
    }

    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        let Some(run) = self.current.map(|at| self.runs[at]) else {
            return;
        };
        if run.repeated < SWEEP_PAGES {
            return;
        }
        let least = run
            .end
            .0
            .saturating_sub(count.saturating_add(LOOK_BACK_PAGES))
            .max(run.first.0);
        let behind = (least..run.end.0).rev().map(Page);
        let idle = behind.filter(|page| candidates.contains(*page));
        victims.extend(idle.take(count as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::super::driven::unpinned;
    use super::*;

    fn sweeps(pages: u64, times: u64, piece: u64) -> Vec<(u64, u64)> {
        (0..times)
            .flat_map(|_| (0..pages / piece).map(move |at| (at * piece, piece)))
            .collect()
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
        assert_eq!(
            unpinned(50, Some(Box::<Sweep>::default()), &once),
            unpinned(50, None, &once)
        );
        let scattered: Vec<_> = (0..500_u64).map(|n| (n * n * 7919 % 997 * 2, 1)).collect();
        assert_eq!(
            unpinned(50, Some(Box::<Sweep>::default()), &scattered),
            unpinned(50, None, &scattered)
        );
    }

    #[test]
    fn two_sweeps_in_turn_are_told_apart() {
        let one = sweeps(100, 10, 1);
        let both: Vec<_> = one
            .iter()
            .flat_map(|(page, count)| [(*page, *count), (page + 5000, *count)])
            .collect();
        let (sweep, lru) = with(150, &both);
        assert!(sweep * 2 < lru, "{sweep} {lru}");
    }
}
