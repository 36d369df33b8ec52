//! Memory that turned out not to be there.

use alloc::collections::BTreeMap;

use crate::page::{Page, PageRange};

/// Runs of pages of a process that could not be pinned as a whole, as far as they are known.
///
/// A run that contains one that is not all there is not all there either, so only runs are kept of which none contains another. Their ends rise with their
/// beginnings. Memory and steps grow with the runs kept and their logarithm.
///
/// ```
/// use mapwire_translation::{AbsentRuns, Page, PageRange};
/// let run = |first, count| PageRange { first: Page(first), count };
/// let mut absent = AbsentRuns::default();
/// assert!(absent.insert(run(10, 4)));
/// assert!(!absent.insert(run(8, 8))); // follows
/// assert!(absent.lacks(run(10, 5)) && !absent.lacks(run(10, 3)));
/// assert!(absent.found(run(10, 5)) && !absent.lacks(run(8, 8)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct AbsentRuns {
    /// First page → page behind the last.
    ends: BTreeMap<Page, Page>,
}

impl AbsentRuns {
    /// Not all pages of the run are there. Returns whether that is news. Of an empty run it never is.
    pub fn insert(&mut self, run: PageRange) -> bool {
        if run.is_empty() || self.lacks(run) {
            return false;
        }
        // What contains the run begins no later and ends no earlier; beginnings before the run's have rising ends.
        while let Some((&first, &end)) = self.ends.range(..=run.first).next_back()
            && end >= run.end()
        {
            self.ends.remove(&first);
        }
        self.ends.insert(run.first, run.end());
        true
    }

    /// Whether it is known that not all pages of the run are there.
    pub fn lacks(&self, run: PageRange) -> bool {
        self.first_within(run).is_some()
    }

    /// All pages of the run are there. Returns whether that is news.
    pub fn found(&mut self, run: PageRange) -> bool {
        let mut news = false;
        while let Some(first) = self.first_within(run) {
            self.ends.remove(&first);
            news = true;
        }
        news
    }

    /// Whether no run is known.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The first page of the first kept run within the run.
    fn first_within(&self, run: PageRange) -> Option<Page> {
        let (first, end) = self.ends.range(run.first..).next()?;
        (*end <= run.end()).then_some(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn run() -> impl Strategy<Value = PageRange> {
        (0_u64..30, 0_u64..8).prop_map(|(first, count)| PageRange {
            first: Page(first),
            count,
        })
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
                        prop_assert_eq!(absent.insert(run), !lacks && !run.is_empty());
                        if !lacks && !run.is_empty() {
                            list.retain(|it| !is_within(run, *it));
                            list.push(run);
                        }
                    }
                    1 => {
                        prop_assert_eq!(absent.found(run), lacks);
                        list.retain(|it| !is_within(*it, run));
                    }
                    _ => prop_assert_eq!(absent.lacks(run), lacks),
                }
                prop_assert_eq!(absent.is_empty(), list.is_empty());
                prop_assert_eq!(absent.ends.len(), list.len());
            }
        }
    }
}
