//! Victims that the application chooses (UTLB §3.4).

use crate::page::{Page, PageRange};
use crate::pinned_pages::PinnedPages;
use alloc::vec::Vec;
use core::fmt;

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
