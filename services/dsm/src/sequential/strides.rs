//! Read-ahead: which minipages a thread is about to read, from the strides of its read faults.
//!
//! Each thread has a few *runs*. A run is a place and a stride, in pages of one view or in views of one page. A fault where a run leads to
//! widens its window: the number of minipages that are brought ahead of the thread. The minipages of a page share messages, so their window
//! widens faster. A fault elsewhere begins a run with the stride from the nearest one, and replaces the run that was used least recently, so
//! that a loop over several arrays has a run in each.
//!
//! A copy that another rank takes away ahead of its thread ends the run: nothing has shown that it was of use. Unless twice as many were
//! of use before, runs of the thread must from then on be longer before they bring anything, until others have proven useful: a program that reads a row in pages, again and again,
//! does not want its neighbour's.
//!
//! A run of views goes on at the next page, which the next minipages of an array share.

use crate::address::Key;
use crate::config::{MAX_PREFETCHES, SET};
use crate::{Rank, Thread};
use alloc::vec;
use alloc::vec::Vec;

/// Runs of a thread.
const RUNS: usize = 8;
/// Pages that a new run brings ahead, and as how many times as many the next fault finds.
const PAGES_WIDEN: u16 = 2;
/// The same for minipages of a page.
const VIEWS_WIDEN: u16 = 4;
/// The greatest caution: arrays of some dozens of minipages are still read ahead, and show that it is of use.
const MOST_CAUTION: u16 = 16;
/// Most pages ahead: the program's own prefetches need some groups, too.
const MOST_PAGES: u16 = MAX_PREFETCHES * 3 / 4;

#[derive(Debug)]
pub(super) struct Strides {
    /// Empty if read-ahead is off.
    threads: Vec<Reader>,
    /// Threads from this number on have no runs.
    end: usize,
    /// Number of faults so far.
    faults: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Reader {
    runs: [Run; RUNS],
    /// Number of faults that a run must continue for before it brings anything.
    caution: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// The last fault.
    last: Key,
    stride: Stride,
    /// For how many faults it has gone on.
    length: u16,
    window: u16,
    /// Minipages that were brought ahead of the last fault.
    ahead: u16,
    /// Minipages that were brought ahead and are behind the last fault: they were of use.
    passed: u16,
    /// Number of the last fault; 0: there was none.
    used: u64,
}

/// The way from one minipage to the next: a number of pages or of views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stride {
    #[default]
    None,
    Pages(i64),
    Views(i64),
}

/// Minipages to be brought ahead of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    thread: usize,
    run: usize,
}

impl Stride {
    fn between(from: Key, to: Key) -> Self {
        let (views, pages) = distance(from, to);
        match (views, pages) {
            (0, 0) => Stride::None,
            (0, pages) => Stride::Pages(pages),
            (views, 0) => Stride::Views(views),
            _ => Stride::None,
        }
    }
}

fn distance(from: Key, to: Key) -> (i64, i64) {
    (i64::from(to.view) - i64::from(from.view), i64::from(to.page) - i64::from(from.page))
}

impl Run {
    /// Distance of a minipage from the last fault, in strides.
    fn steps_to(&self, key: Key) -> Option<u16> {
        let (way, stride) = match (self.stride, distance(self.last, key)) {
            (Stride::Pages(stride), (0, pages)) => (pages, stride),
            (Stride::Views(stride), (views, 0)) => (views, stride),
            _ => return None,
        };
        let steps = if way % stride == 0 { way / stride } else { 0 };
        u16::try_from(steps).ok().filter(|&steps| steps > 0)
    }

    /// The minipage so many strides behind the last fault; `None` beyond all numbers.
    fn at(&self, steps: u16) -> Option<Key> {
        let Key { view, page } = self.last;
        let behind = |at: i64, stride: i64| at.checked_add(stride.checked_mul(steps.into())?);
        match self.stride {
            Stride::None => None,
            Stride::Pages(stride) => Some(Key { view, page: u32::try_from(behind(page.into(), stride)?).ok()? }),
            Stride::Views(stride) => Some(Key { view: u16::try_from(behind(view.into(), stride)?).ok()?, page }),
        }
    }

    fn widen(&mut self) {
        let (factor, most) = match self.stride {
            Stride::Views(_) => (VIEWS_WIDEN, SET),
            _ => (PAGES_WIDEN, MOST_PAGES),
        };
        self.window = (factor * self.window).clamp(factor, most);
    }

    /// Goes on to a fault, if the run leads there: no further than behind what was brought ahead. Whether it does.
    fn goes_on(&mut self, key: Key, caution: &mut u16) -> bool {
        let left = match self.steps_to(key) {
            Some(steps) if steps <= self.ahead + 1 => self.ahead.saturating_sub(steps),
            _ if self.is_at_next_page(key) => 0,
            _ => return false,
        };
        if self.ahead > 0 && left == 0 {
            // All that was brought ahead was used.
            *caution /= 2;
        }
        self.passed = self.passed.saturating_add(self.ahead - left);
        self.last = key;
        self.ahead = left;
        self.length = self.length.saturating_add(1);
        if self.length > *caution {
            self.widen();
        }
        true
    }

    fn is_at_next_page(&self, key: Key) -> bool {
        let (_, pages) = distance(self.last, key);
        matches!(self.stride, Stride::Views(stride) if self.length > 0 && pages == stride.signum())
    }

    fn is_ahead(&self, key: Key) -> Option<u16> {
        self.steps_to(key).filter(|&steps| steps <= self.ahead)
    }
}

impl Strides {
    /// Without runs; nothing is ever read ahead if it is off, or if there is only one rank.
    pub(super) fn new(threads: Thread, is_on: bool, ranks: Rank) -> Self {
        let threads = if is_on && ranks > 1 { usize::from(threads) } else { 0 };
        Strides { threads: vec![Reader::default(); threads], end: 0, faults: 0 }
    }

    /// A read fault of a thread. Which run it continues, if it does.
    pub(super) fn note_fault(&mut self, thread: Thread, key: Key) -> Option<Wanted> {
        let thread = usize::from(thread);
        let Reader { runs, caution } = self.threads.get_mut(thread)?;
        self.end = self.end.max(thread + 1);
        self.faults += 1;
        let used = self.faults;
        if let Some(run) = runs.iter_mut().position(|run| run.used > 0 && run.goes_on(key, caution)) {
            runs[run].used = used;
            return Some(Wanted { thread, run });
        }
        let near = |run: &&Run| run.used > 0 && Stride::between(run.last, key) != Stride::None;
        let way = |run: &&Run| {
            let (views, pages) = distance(run.last, key);
            views.abs() + pages.abs()
        };
        let stride =
            runs.iter().filter(near).min_by_key(way).map_or(Stride::None, |run| Stride::between(run.last, key));
        let oldest = runs.iter_mut().min_by_key(|run| run.used)?;
        *oldest = Run { last: key, stride, used, ..Run::default() };
        None
    }

    /// The next minipage to be brought ahead; `None`: there are enough.
    pub(super) fn next(&self, Wanted { thread, run }: Wanted) -> Option<Key> {
        let run = &self.threads[thread].runs[run];
        (run.ahead < run.window).then(|| run.at(run.ahead + 1))?
    }

    /// The next minipage is under way, or here already.
    pub(super) fn note_ahead(&mut self, Wanted { thread, run }: Wanted) {
        self.threads[thread].runs[run].ahead += 1;
    }

    /// Another rank takes a copy away. Whether it was brought ahead of a thread that has not got that far: runs that led there end.
    pub(super) fn note_lost(&mut self, key: Key) -> bool {
        let mut was_ahead = false;
        for Reader { runs, caution } in &mut self.threads[..self.end] {
            for run in runs.iter_mut().filter(|run| run.is_ahead(key).is_some()) {
                // The last ones before an end may have been read, too: that does not show.
                if run.passed < 2 * run.ahead {
                    *caution = (2 * *caution + 2).min(MOST_CAUTION);
                }
                *run = Run::default();
                was_ahead = true;
            }
        }
        was_ahead
    }

    /// Nothing is there: runs lead no further.
    pub(super) fn note_refused(&mut self, key: Key) {
        for run in self.threads[..self.end].iter_mut().flat_map(|reader| &mut reader.runs) {
            if let Some(steps) = run.is_ahead(key) {
                run.ahead = steps - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(page: u32) -> Key {
        Key { view: 0, page }
    }

    /// The minipages that are brought ahead at a fault.
    fn fault(strides: &mut Strides, key: Key) -> Vec<Key> {
        let mut ahead = Vec::new();
        if let Some(wanted) = strides.note_fault(0, key) {
            while let Some(key) = strides.next(wanted) {
                ahead.push(key);
                strides.note_ahead(wanted);
            }
        }
        ahead
    }

    #[test]
    fn the_third_fault_in_a_stride_brings_two_and_each_further_one_twice_as_many() {
        for stride in [1i32, 7, -3] {
            let mut strides = Strides::new(1, true, 2);
            let at = |step: i32| page((1000 + step * stride) as u32);
            let pages = |steps: core::ops::Range<i32>| steps.map(at).collect::<Vec<_>>();
            assert_eq!(fault(&mut strides, at(0)), []);
            assert_eq!(fault(&mut strides, at(1)), []);
            assert_eq!(fault(&mut strides, at(2)), pages(3..5));
            assert_eq!(fault(&mut strides, at(5)), pages(6..10));
            // What is under way already is not brought again.
            assert_eq!(fault(&mut strides, at(6)), pages(10..15));
            assert_eq!(fault(&mut strides, at(15)), pages(16..28), "the most are 12");
            assert_eq!(fault(&mut strides, at(29)), [], "a fault further on is not of the run");
        }
    }

    #[test]
    fn loops_over_several_arrays_have_a_run_in_each() {
        let mut strides = Strides::new(1, true, 2);
        for step in 0..3 {
            for array in [0, 100, 250, 730] {
                let ahead = fault(&mut strides, page(array + step));
                let expected: Vec<_> = if step < 2 { Vec::new() } else { (3..5).map(|at| page(array + at)).collect() };
                assert_eq!(ahead, expected, "array {array}, step {step}");
            }
        }
    }

    #[test]
    fn minipages_of_a_page_are_brought_up_to_the_last_view_and_on_the_next_page_all_at_once() {
        let mut strides = Strides::new(1, true, 2);
        let unit = |page, view| Key { view, page };
        let mut faults = 0;
        let mut here = Vec::new();
        for at in (0..3).flat_map(|page| (0..64).map(move |view| unit(page, view))) {
            if !here.contains(&at) {
                faults += 1;
                here.extend(fault(&mut strides, at));
            }
        }
        assert_eq!(faults, 5 + 1 + 1);
    }

    #[test]
    fn a_run_whose_minipages_are_taken_away_unused_ends_and_one_that_leads_nowhere_stays_short() {
        let mut strides = Strides::new(1, true, 2);
        (0..2).for_each(|at| _ = fault(&mut strides, page(at)));
        assert_eq!(fault(&mut strides, page(2)).len(), 2);
        assert!(!strides.note_lost(page(2)) && !strides.note_lost(page(5)));
        assert!(strides.note_lost(page(4)));
        assert!(!strides.note_lost(page(3)), "once");
        // Two faults more than before.
        (5..9).for_each(|at| assert_eq!(fault(&mut strides, page(at)), []));
        assert_eq!(fault(&mut strides, page(9)).len(), 2);
        strides.note_refused(page(11));
        assert_eq!(fault(&mut strides, page(11)).len(), 4);
    }

    #[test]
    fn a_thread_whose_copies_are_taken_again_and_again_stops_until_long_runs_prove_useful() {
        let mut strides = Strides::new(1, true, 2);
        let mut brought = Vec::new();
        for row in 0..20 {
            // Rows of 8 pages, far apart; what lies behind each is another's.
            let first = 1000 * row * row;
            let mut here = Vec::new();
            for at in (first..first + 8).map(page) {
                if !here.contains(&at) {
                    here.extend(fault(&mut strides, at));
                }
            }
            brought.push(here.len());
            here.iter().filter(|at| at.page >= first + 8).for_each(|&at| _ = strides.note_lost(at));
        }
        assert!(brought[0] > 4 && brought[10..].iter().all(|&count| count <= 2), "{brought:?}");
        let long: usize = (0..200).map(|at| fault(&mut strides, page(20_000_000 + at)).len()).sum();
        assert!(long > 100, "{long}");
    }

    #[test]
    fn an_array_that_is_written_and_read_again_and_again_is_brought_ahead_whatever_was_before() {
        let mut strides = Strides::new(1, true, 2);
        strides.note_fault(0, page(1));
        strides.threads[0].caution = MOST_CAUTION;
        let array: Vec<Key> = (0..64).map(|view| Key { view, page: 9 }).collect();
        for round in 0..100 {
            let (mut here, mut faults) = (Vec::new(), 0);
            for &at in &array {
                if !here.contains(&at) {
                    faults += 1;
                    here.extend(fault(&mut strides, at));
                }
            }
            assert!(faults < if round < 5 { 30 } else { 16 }, "{faults} faults in round {round}");
            array.iter().for_each(|&at| _ = strides.note_lost(at));
        }
    }

    #[test]
    fn faults_that_lie_anywhere_bring_nothing() {
        let mut strides = Strides::new(1, true, 2);
        let mut at = 1u32;
        for _ in 0..1000 {
            at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            assert_eq!(fault(&mut strides, page(at >> 6)), []);
        }
        let mut off = Strides::new(1, false, 2);
        (0..9).for_each(|at| assert_eq!(fault(&mut off, page(at)), []));
    }
}
