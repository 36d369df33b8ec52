//! Memory that turned out not to exist.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::page::{Page, PageRange};

/// Runs of pages of a process that could not be pinned as a whole, as far as known.
///
/// A run that contains an absent run is absent too. All are kept all the same: one of them may appear before the others. Memory grows with
/// the number of distinct runs; a query takes a step for each page of its run at which a kept one begins.
///
/// ```
/// use mapwire_translation::{AbsentRuns, Page, PageRange};
/// let run = |first, count| PageRange { first: Page(first), count };
/// let mut absent = AbsentRuns::default();
/// assert!(absent.insert(run(10, 4)) && absent.insert(run(8, 8)));
/// assert!(absent.lacks(run(10, 5)) && !absent.lacks(run(10, 3)));
/// assert!(absent.found(run(10, 5)) && absent.lacks(run(8, 8)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct AbsentRuns {
    /// First page → ends (exclusive).
    ends: BTreeMap<Page, BTreeSet<Page>>,
}

impl AbsentRuns {
    /// Records that some page of the run is missing. Returns whether that is new for exactly this run; false for an empty run.
    pub fn insert(&mut self, run: PageRange) -> bool {
        !run.is_empty() && self.ends.entry(run.first).or_default().insert(run.end())
    }

    /// Whether some page of the run is known to be missing.
    pub fn lacks(&self, run: PageRange) -> bool {
        let mut beginning = self.ends.range(run.first..run.end());
        beginning.any(|(_, ends)| ends.first().is_some_and(|end| *end <= run.end()))
    }

    /// Records that all pages of the run exist. Returns whether that is new.
    pub fn found(&mut self, run: PageRange) -> bool {
        let mut news = false;
        let mut from = run.first;
        while let Some((&first, ends)) = self.ends.range_mut(from..run.end()).next() {
            let before = ends.len();
            *ends = ends.split_off(&Page(run.end().0 + 1));
            news |= ends.len() < before;
            if ends.is_empty() {
                self.ends.remove(&first);
            }
            from = Page(first.0 + 1);
        }
        news
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn run() -> impl Strategy<Value = PageRange> {
        (0_u64..30, 0_u64..8).prop_map(|(first, count)| PageRange { first: Page(first), count })
    }

    fn is_within(inner: PageRange, outer: PageRange) -> bool {
        outer.first <= inner.first && inner.end() <= outer.end()
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_runs(steps in prop::collection::vec((0..3, run()), 0..200)) {
            let mut absent = AbsentRuns::default();
            let mut list: Vec<PageRange> = Vec::new();
            for (step, run) in steps {
                let lacks = list.iter().any(|it| is_within(*it, run));
                match step {
                    0 => {
                        let news = !list.contains(&run) && !run.is_empty();
                        prop_assert_eq!(absent.insert(run), news);
                        list.extend(news.then_some(run));
                    }
                    1 => {
                        prop_assert_eq!(absent.found(run), lacks);
                        list.retain(|it| !is_within(*it, run));
                    }
                    _ => prop_assert_eq!(absent.lacks(run), lacks),
                }
                prop_assert_eq!(absent.is_empty(), list.is_empty());
                let kept: usize = absent.ends.values().map(BTreeSet::len).sum();
                prop_assert_eq!(kept, list.len());
            }
        }
    }
}
