//! Policies that choose a page to evict (UTLB §3.4).

use crate::page::{Page, PageRange};
use crate::pinned_pages::PinnedPages;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Rule for choosing victims among the pinned pages that no transfer holds.
///
/// As text: `lru`, `mru`, `lfu`, `mfu`, `random`, `random:7` with a seed. The application's own policy is an object, and has no text form.
///
/// ```
/// use mapwire_translation::Policy;
/// assert_eq!("random:7".parse(), Ok(Policy::Random { seed: 7 }));
/// assert_eq!(Policy::Lfu.to_string(), "lfu");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// The least recently used page.
    #[default]
    Lru,
    /// The most recently used page.
    Mru,
    /// The page used least often since it was pinned; of several, the least recently used.
    Lfu,
    /// The page used most often since it was pinned; of several, the least recently used.
    Mfu,
    /// A random page, uniformly.
    Random {
        /// Seed of the sequence of draws.
        seed: u64,
    },
    /// Pages that a [`ChooseVictims`] names. If it names too few, or does not exist, the least recently used.
    Application,
}

impl Policy {
    /// The five policies that need no chooser (UTLB §3.4), with the seed 0.
    pub const PREDEFINED: [Policy; 5] =
        [Policy::Lru, Policy::Mru, Policy::Lfu, Policy::Mfu, Policy::Random { seed: 0 }];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Lru => "lru",
            Policy::Mru => "mru",
            Policy::Lfu => "lfu",
            Policy::Mfu => "mfu",
            Policy::Random { seed: 0 } => "random",
            Policy::Random { seed } => return write!(f, "random:{seed}"),
            Policy::Application => "application",
        })
    }
}

/// Unknown policy name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} is not a policy for unpinning; choose lru, mru, lfu, mfu, random or random:SEED with a number")]
pub struct ParsePolicyError {
    found: String,
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        if let Some(seed) = word.strip_prefix("random:")
            && let Ok(seed) = seed.parse()
        {
            return Ok(Policy::Random { seed });
        }
        let names = ["lru", "mru", "lfu", "mfu", "random"];
        let named = names.iter().position(|name| *name == word);
        named.map(|at| Self::PREDEFINED[at]).ok_or_else(|| ParsePolicyError { found: word.into() })
    }
}

/// An application's own policy (UTLB §3.4): it often knows what it will use again.
///
/// ```
/// use mapwire_translation::*;
///
/// /// Gives up the page with the highest address.
/// #[derive(Debug)]
/// struct Highest;
///
/// impl ChooseVictims for Highest {
///     fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
///         let mut pages: Vec<_> = candidates.oldest_first().collect();
///         pages.sort();
///         victims.extend(pages.iter().rev().take(count as usize));
///     }
/// }
///
/// let mut user = UserTable::new(PinLimit::Pages(3)).choosing(Box::new(Highest));
/// let pages = |first, count| PageRange { first: Page(first), count };
/// user.commit_pinned(pages(7, 3))?;
/// let mut plan = PinPlan::new();
/// user.prepare(pages(1, 1), &mut plan)?;
/// assert_eq!(plan.to_unpin, [Page(9)]);
/// # Ok::<(), PinError>(())
/// ```
pub trait ChooseVictims: fmt::Debug + Send {
    /// A transfer uses the pages, all or some of which are pinned.
    fn used(&mut self, _pages: PageRange) {}

    /// The pages have been pinned.
    fn pinned(&mut self, _pages: PageRange) {}

    /// The page has been unpinned.
    fn unpinned(&mut self, _page: Page) {}

    /// Adds pages to evict, best first, at least `count` if it can. Excess pages, duplicates and pages that are not candidates are
    /// ignored.
    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>);
}

/// Pages that may be evicted: pinned, held by no transfer and not needed by the current one.
#[derive(Debug)]
pub struct Candidates<'a> {
    pinned: &'a PinnedPages,
    keep: PageRange,
}

impl<'a> Candidates<'a> {
    /// Those of `pinned` that are idle and not in `keep`.
    pub(crate) const fn new(pinned: &'a PinnedPages, keep: PageRange) -> Self {
        Self { pinned, keep }
    }

    /// Whether the page is a candidate.
    pub fn contains(&self, page: Page) -> bool {
        self.pinned.is_idle(page) && !self.keep.contains(page)
    }

    /// All candidates, least recently used first.
    pub fn oldest_first(&self) -> impl Iterator<Item = Page> {
        let idle = self.pinned.idle_oldest_first();
        idle.filter(|page| !self.keep.contains(*page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn policies_are_read_as_they_are_printed() {
        let seeded = Policy::Random { seed: 9 };
        for policy in Policy::PREDEFINED.into_iter().chain([seeded]) {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for word in ["", "LRU", "random:", "random:x", "random:-1", "application"] {
            let error = word.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(&std::format!("{word:?}")), "{error}");
            assert!(error.contains("lru, mru"), "{error}");
        }
    }
}
