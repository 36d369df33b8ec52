//! The library side of translation for one process: is the source of a transfer pinned, and if not, what has to be
//! pinned and what unpinned for it?
//!
//! The table only plans. The driver pins and unpins between plan and commit, and may fail halfway: what it has done
//! it commits, what it has not done it does not, and the table is right at every step.

use crate::Counters;
use crate::limit::{PinError, PinLimit, PinnedPages};
use crate::page::{Page, PageRange};
use crate::pin_map::{Check, PinMap};
use alloc::vec::Vec;

/// What [`UserTable::prepare`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepared {
    /// Every page is pinned; the transfer may start. The plan is left as it was.
    AllPinned,
    /// The plan says what must be done first.
    MustPin,
}

/// What the driver has to do before a transfer. Made once and used again, so that planning seldom allocates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PinPlan {
    /// Pages to unpin, before anything is pinned; least recently used first.
    pub to_unpin: Vec<Page>,
    /// Runs of pages to pin, in rising order, each as long as one call can pin.
    pub to_pin: Vec<PageRange>,
}

impl PinPlan {
    /// Nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing to do, as before; keeps the memory.
    pub fn clear(&mut self) {
        self.to_unpin.clear();
        self.to_pin.clear();
    }

    /// Pages of all runs to pin.
    pub fn pages_to_pin(&self) -> u64 {
        self.to_pin.iter().map(|run| run.count).sum()
    }
}

/// Pinned pages of one process: the bits that a check reads, and under a limit the order of use.
///
/// * Before a transfer: [`prepare`](Self::prepare), then [`hold`](Self::hold); after it [`release`](Self::release).
/// * By the driver: [`commit_unpinned`](Self::commit_unpinned), [`commit_pinned`](Self::commit_pinned).
/// * Getters: [`counters`](Self::counters), [`limit`](Self::limit), [`map`](Self::map).
///
/// ```
/// use mapwire_translation::*;
/// let mut user = UserTable::new(PinLimit::Pages(2));
/// let mut plan = PinPlan::new();
/// let page = |n| PageRange::single(Page(n));
/// for n in [1, 2] {
///     user.prepare(page(n), &mut plan)?;
///     user.commit_pinned(page(n))?;
/// }
/// assert_eq!(user.prepare(page(3), &mut plan)?, Prepared::MustPin);
/// assert_eq!(plan, PinPlan { to_unpin: vec![Page(1)], to_pin: vec![page(3)] });
/// # Ok::<(), PinError>(())
/// ```
#[derive(Clone, Debug)]
pub struct UserTable {
    map: PinMap,
    order: Option<PinnedPages>,
    check_misses: u64,
    pins: u64,
    unpins: u64,
}

impl UserTable {
    /// No page pinned.
    pub fn new(limit: PinLimit) -> Self {
        let order = match limit {
            PinLimit::Unlimited => None,
            PinLimit::Pages(pages) => Some(PinnedPages::new(pages)),
        };
        UserTable {
            map: PinMap::new(),
            order,
            check_misses: 0,
            pins: 0,
            unpins: 0,
        }
    }

    /// Whether a transfer of the range can start, and if not, the plan that makes it possible. Under a limit the
    /// range's pinned pages count as used now.
    ///
    /// # Errors
    /// [`PinError::LimitTooSmall`] if the range cannot fit; [`PinError::Range`] if it leaves the address space. The
    /// plan is then empty.
    #[inline]
    pub fn prepare(&mut self, range: PageRange, plan: &mut PinPlan) -> Result<Prepared, PinError> {
        if self.map.check(range) == Check::AllPinned {
            if let Some(order) = &mut self.order {
                order.touch(range);
            }
            return Ok(Prepared::AllPinned);
        }
        self.plan(range, plan)?;
        Ok(Prepared::MustPin)
    }

    #[cold]
    fn plan(&mut self, range: PageRange, plan: &mut PinPlan) -> Result<(), PinError> {
        plan.clear();
        range.in_address_space()?;
        if let Some(order) = &mut self.order {
            // Asked first: walking a range of any length would take as long.
            if range.count > order.limit_pages() {
                return Err(too_small(order, range, order.held_pages()));
            }
        }
        let mut rest = range;
        while let Some(run) = self.map.first_unpinned_run(rest) {
            plan.to_pin.push(run);
            rest = PageRange {
                first: run.end(),
                count: range.end().0 - run.end().0,
            };
        }
        let fresh = plan.pages_to_pin();
        self.check_misses += fresh;
        let Some(order) = &mut self.order else {
            return Ok(());
        };
        order.touch(range);
        let over = (order.pinned_pages() + fresh).saturating_sub(order.limit_pages());
        if order.victims(over, range, &mut plan.to_unpin) {
            return Ok(());
        }
        plan.clear();
        let held_elsewhere = order.held_pages() - order.held_in(range);
        Err(too_small(order, range, held_elsewhere))
    }

    /// The driver has pinned the pages and the NIC knows their frames.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn commit_pinned(&mut self, run: PageRange) -> Result<(), PinError> {
        self.pins += self.map.set(run)?;
        if let Some(order) = &mut self.order {
            order.insert(run)?;
        }
        Ok(())
    }

    /// The NIC has forgotten the page and the driver has unpinned it.
    pub fn commit_unpinned(&mut self, page: Page) {
        self.unpins += self.map.clear(PageRange::single(page));
        if let Some(order) = &mut self.order {
            order.remove(page);
        }
    }

    /// A transfer of the range starts: its pages stay pinned until it is released. Without a limit nothing is ever
    /// unpinned to make room, and this does nothing.
    ///
    /// # Errors
    /// [`PinError::NotPinned`]; nothing is held then.
    #[inline]
    pub fn hold(&mut self, range: PageRange) -> Result<(), PinError> {
        match &mut self.order {
            Some(order) => order.hold(range),
            None => Ok(()),
        }
    }

    /// A transfer of the range has completed.
    ///
    /// # Errors
    /// [`PinError::NotHeld`], if it was not held as often.
    #[inline]
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        match &mut self.order {
            Some(order) => order.release(range),
            None => Ok(()),
        }
    }

    /// The limit it was made with.
    pub fn limit(&self) -> PinLimit {
        self.order.as_ref().map_or(PinLimit::Unlimited, |order| {
            PinLimit::Pages(order.limit_pages())
        })
    }

    /// Which pages are pinned.
    pub fn map(&self) -> &PinMap {
        &self.map
    }

    /// Whether a transfer holds the page; without a limit holds are not kept, and the answer is no.
    pub fn is_held(&self, page: Page) -> bool {
        self.order.as_ref().is_some_and(|order| order.is_held(page))
    }

    /// Check misses, pins, unpins and pinned pages.
    pub fn counters(&self) -> Counters {
        Counters {
            check_misses: self.check_misses,
            pins: self.pins,
            unpins: self.unpins,
            pinned_pages: self.map.count(),
            ..Counters::default()
        }
    }

    /// Bytes of host memory taken.
    pub fn memory_bytes(&self) -> usize {
        self.map.memory_bytes() + self.order.as_ref().map_or(0, PinnedPages::memory_bytes)
    }
}

fn too_small(order: &PinnedPages, range: PageRange, held_pages: u64) -> PinError {
    PinError::LimitTooSmall {
        needed_pages: range.count,
        limit_pages: order.limit_pages(),
        held_pages,
    }
}
