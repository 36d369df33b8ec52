//! The library side of translation for one process: whether a transfer's source is pinned, and if not, what must be pinned and unpinned
//! for it.
//!
//! The table only plans. The driver pins and unpins between plan and commit, and may fail halfway: it commits only what it has done, and
//! the table is right at every step.

use crate::Counters;
use crate::choosing::{Candidates, ChooseVictims};
use crate::limit::{PinError, PinLimit, PinRules};
use crate::page::{PAGE_NUMBER_END, Page, PageRange};
use crate::pin_map::{Check, PinMap};
use crate::pinned_pages::PinnedPages;
use crate::policy::Policy;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Result of [`UserTable::prepare`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepared {
    /// Every page is pinned; the transfer may start. The plan is unchanged.
    AllPinned,
    /// The plan must be carried out first.
    MustPin,
}

/// Work for the driver before a transfer. Reused, so that planning seldom allocates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PinPlan {
    /// Pages to unpin before anything is pinned, in the order of the policy.
    pub to_unpin: Vec<Page>,
    /// Runs of pages to pin, in ascending order, each as long as one call can pin.
    pub to_pin: Vec<PageRange>,
    /// Optional runs of pages to pin ahead, in ascending order, behind the range.
    pub ahead: Vec<PageRange>,
}

impl PinPlan {
    /// An empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the plan; keeps its memory.
    pub fn clear(&mut self) {
        self.to_unpin.clear();
        self.to_pin.clear();
        self.ahead.clear();
    }

    /// Pages in all runs that the transfer needs pinned.
    pub fn pages_to_pin(&self) -> u64 {
        pages(&self.to_pin)
    }
}

fn pages(runs: &[PageRange]) -> u64 {
    runs.iter().map(|run| run.count).sum()
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
/// assert_eq!(plan, PinPlan { to_unpin: vec![Page(1)], to_pin: vec![page(3)], ahead: vec![] });
/// # Ok::<(), PinError>(())
/// ```
#[derive(Debug)]
pub struct UserTable {
    map: PinMap,
    order: Option<PinnedPages>,
    chooser: Option<Box<dyn ChooseVictims>>,
    prepin_pages: u64,
    check_misses: u64,
    pins: u64,
    unpins: u64,
}

impl UserTable {
    /// Pages that transfers hold, pinned or not; 0 without a limit, as no holds are recorded then.
    pub fn held_pages(&self) -> u64 {
        self.order.as_ref().map_or(0, PinnedPages::held_pages)
    }

    /// No page pinned; victims are the least recently used, and nothing is pinned ahead.
    pub fn new(limit: PinLimit) -> Self {
        Self::with(PinRules::default().with_limit(limit))
    }

    /// No page pinned.
    pub fn with(rules: PinRules) -> Self {
        let order = match rules.limit {
            PinLimit::Unlimited => None,
            PinLimit::Pages(pages) => Some(PinnedPages::with(pages, rules.policy)),
        };
        Self::from_order(order, rules)
    }

    /// No page pinned. Keeps holds and the order of use even without a limit: for callers that unpin for reasons of their own.
    pub fn tracking(rules: PinRules) -> Self {
        let limit_pages = match rules.limit {
            PinLimit::Unlimited => u64::MAX,
            PinLimit::Pages(pages) => pages,
        };
        Self::from_order(Some(PinnedPages::with(limit_pages, rules.policy)), rules)
    }

    fn from_order(order: Option<PinnedPages>, rules: PinRules) -> Self {
        UserTable {
            map: PinMap::new(),
            order,
            chooser: None,
            prepin_pages: rules.prepin_pages.max(1),
            check_misses: 0,
            pins: 0,
            unpins: 0,
        }
    }

    /// The same, with victims chosen by the application. No effect without a limit; with one, call it before any page is pinned.
    #[must_use]
    pub fn choosing(mut self, chooser: Box<dyn ChooseVictims>) -> Self {
        if let Some(order) = &mut self.order {
            *order = PinnedPages::with(order.limit_pages(), Policy::Application);
            self.chooser = Some(chooser);
        }
        self
    }

    /// Checks whether a transfer of the range can start; if not, plans what makes it possible. Under a limit the range's pinned pages
    /// count as used now.
    ///
    /// In page order, each page that is neither pinned nor pinned ahead for an earlier one is a check miss. Pinning ahead may unpin
    /// others, but never a page of the range.
    ///
    /// # Errors
    /// [`PinError::LimitTooSmall`] if the range does not fit; [`PinError::Range`] if it leaves the address space. The plan is then empty.
    #[inline]
    pub fn prepare(&mut self, range: PageRange, plan: &mut PinPlan) -> Result<Prepared, PinError> {
        if self.map.check(range) == Check::AllPinned {
            if let Some(order) = &mut self.order {
                order.touch(range);
                if let Some(chooser) = &mut self.chooser {
                    chooser.used(range);
                }
            }
            return Ok(Prepared::AllPinned);
        }
        self.check_misses += self.plan(range, self.prepin_pages, plan)?;
        Ok(Prepared::MustPin)
    }

    /// As [`prepare`](Self::prepare), for exported memory: nothing is pinned ahead of it, and it is a check miss only for a library that
    /// checks.
    ///
    /// # Errors
    /// As there.
    pub fn prepare_export(&mut self, range: PageRange, checks: bool, plan: &mut PinPlan) -> Result<Prepared, PinError> {
        if self.map.check(range) == Check::AllPinned {
            return self.prepare(range, plan);
        }
        let misses = self.plan(range, 1, plan)?;
        self.check_misses += if checks { misses } else { 0 };
        Ok(Prepared::MustPin)
    }

    /// Plans the pins that serve the NIC's miss of `wanted`, one of `pages`: all of them, or as many as there is room for, always
    /// including `wanted`; nothing if `wanted` is pinned and only the NIC does not know it. No check miss is counted.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), for `wanted` alone.
    pub fn plan_fill(&mut self, pages: PageRange, wanted: Page, plan: &mut PinPlan) -> Result<(), PinError> {
        plan.clear();
        pages.in_address_space()?;
        if self.map.contains(wanted) {
            return Ok(());
        }
        self.unpinned_runs(pages, &mut plan.to_pin);
        let Some(order) = &mut self.order else {
            return Ok(());
        };
        let alone = PageRange::single(wanted);
        let mut chooser = self.chooser.as_deref_mut();
        let over = (order.pinned_pages() + plan.pages_to_pin()).saturating_sub(order.limit_pages());
        victims(order, chooser.as_deref_mut(), over, pages, &mut plan.to_unpin);
        shorten(&mut plan.to_pin, over - plan.to_unpin.len() as u64);
        if plan.to_pin.iter().any(|run| run.contains(wanted)) {
            return Ok(());
        }
        plan.clear();
        plan.to_pin.push(alone);
        if !make_room(order, chooser, alone, plan) {
            plan.clear();
            return Err(too_small(order, alone));
        }
        Ok(())
    }

    #[cold]
    fn plan(&mut self, range: PageRange, prepin_pages: u64, plan: &mut PinPlan) -> Result<u64, PinError> {
        plan.clear();
        range.in_address_space()?;
        if let Some(order) = &self.order {
            // Checked first: walking a range of any length would take as long.
            if range.count > order.limit_pages() {
                return Err(too_small(order, range));
            }
        }
        self.unpinned_runs(range, &mut plan.to_pin);
        let misses = self.plan_ahead(range, prepin_pages, plan);
        if let Some(order) = &mut self.order {
            order.touch(range);
            if let Some(chooser) = &mut self.chooser {
                chooser.used(range);
            }
            if !make_room(order, self.chooser.as_deref_mut(), range, plan) {
                plan.clear();
                return Err(too_small(order, range));
            }
        }
        Ok(misses)
    }

    /// Marks the page as used now, if it is pinned: without checks, the host only sees the use as a miss.
    pub fn touch(&mut self, page: Page) {
        let alone = PageRange::single(page);
        if let Some(order) = &mut self.order {
            order.touch(alone);
        }
        if let Some(chooser) = &mut self.chooser {
            chooser.used(alone);
        }
    }

    fn unpinned_runs(&mut self, range: PageRange, runs: &mut Vec<PageRange>) {
        let mut rest = range;
        while let Some(run) = self.map.first_unpinned_run(rest) {
            runs.push(run);
            rest = PageRange { first: run.end(), count: range.end().0 - run.end().0 };
        }
    }

    /// Adds the pages that the range's last check misses pin beyond its end. Returns the range's number of check misses.
    fn plan_ahead(&mut self, range: PageRange, prepin_pages: u64, plan: &mut PinPlan) -> u64 {
        if prepin_pages == 1 {
            return plan.pages_to_pin();
        }
        let (mut misses, mut covered) = (0, 0);
        for run in &plan.to_pin {
            let first = run.first.0.max(covered);
            let more = run.end().0.saturating_sub(first).div_ceil(prepin_pages);
            if more > 0 {
                misses += more;
                covered = first.saturating_add(more.saturating_mul(prepin_pages));
            }
        }
        let end = range.end();
        let beyond = PageRange { first: end, count: covered.min(PAGE_NUMBER_END).saturating_sub(end.0) };
        self.unpinned_runs(beyond, &mut plan.ahead);
        misses
    }

    /// The driver has pinned the pages and the NIC knows their frames.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn commit_pinned(&mut self, run: PageRange) -> Result<(), PinError> {
        self.commit(run, true)
    }

    /// As [`commit_pinned`](Self::commit_pinned), for pages pinned ahead: no transfer has used them.
    ///
    /// # Errors
    /// A range that leaves the 48-bit address space is refused whole.
    pub fn commit_ahead(&mut self, run: PageRange) -> Result<(), PinError> {
        self.commit(run, false)
    }

    fn commit(&mut self, run: PageRange, used: bool) -> Result<(), PinError> {
        if run.is_empty() {
            return Ok(());
        }
        self.pins += self.map.set(run)?;
        if let Some(order) = &mut self.order {
            match used {
                true => order.insert(run)?,
                false => order.insert_ahead(run)?,
            }
        }
        if let Some(chooser) = &mut self.chooser {
            chooser.pinned(run);
        }
        Ok(())
    }

    /// The NIC has forgotten the page and the driver has unpinned it.
    pub fn commit_unpinned(&mut self, page: Page) {
        self.unpins += self.map.clear(PageRange::single(page));
        if let Some(order) = &mut self.order {
            order.remove(page);
        }
        if let Some(chooser) = &mut self.chooser {
            chooser.unpinned(page);
        }
    }

    /// Starts a transfer of the range: its pages stay pinned until it is released. Does nothing without a limit, when nothing is ever
    /// unpinned to make room.
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

    /// [`hold`](Self::hold) of pages whether pinned or not: those pinned later are held too.
    ///
    /// # Errors
    /// [`PinError::Range`]; nothing is held then.
    pub fn hold_any(&mut self, range: PageRange) -> Result<(), PinError> {
        match &mut self.order {
            Some(order) => Ok(order.hold_any(range)?),
            None => Ok(()),
        }
    }

    /// Adds up to `count` pages to `plan` to unpin, by the policy, of those that may go and that no transfer holds. Adds none if no order
    /// of use is kept.
    pub fn plan_reclaim(&mut self, count: u64, may_go: impl Fn(Page) -> bool, plan: &mut PinPlan) {
        plan.clear();
        if let Some(order) = &mut self.order {
            order.victims_where(count, may_go, &mut plan.to_unpin);
        }
    }

    /// Ends a transfer of the range.
    ///
    /// # Errors
    /// [`PinError::NotHeld`], if the range was not held as often.
    #[inline]
    pub fn release(&mut self, range: PageRange) -> Result<(), PinError> {
        match &mut self.order {
            Some(order) => order.release(range),
            None => Ok(()),
        }
    }

    /// The limit it was made with.
    pub fn limit(&self) -> PinLimit {
        match &self.order {
            Some(order) if order.limit_pages() < u64::MAX => PinLimit::Pages(order.limit_pages()),
            _ => PinLimit::Unlimited,
        }
    }

    /// The map of pinned pages.
    pub fn map(&self) -> &PinMap {
        &self.map
    }

    /// Whether a transfer holds the page; always false without a limit, as no holds are recorded then.
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

    /// Host memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.map.memory_bytes() + self.order.as_ref().map_or(0, PinnedPages::memory_bytes)
    }
}

/// Plans victims, and cuts pinning ahead to the room available. False if there is no room even for the range.
fn make_room(
    order: &mut PinnedPages,
    mut chooser: Option<&mut (dyn ChooseVictims + 'static)>,
    range: PageRange,
    plan: &mut PinPlan,
) -> bool {
    let ahead = pages(&plan.ahead);
    let needed = order.pinned_pages() + plan.pages_to_pin();
    let over = (needed + ahead).saturating_sub(order.limit_pages());
    if ahead > 0 {
        let end = plan.ahead.last().map_or(range.end(), |run| run.end());
        let keep = PageRange { first: range.first, count: end.0 - range.first.0 };
        victims(order, chooser.as_deref_mut(), over, keep, &mut plan.to_unpin);
        let missing = over - plan.to_unpin.len() as u64;
        if missing <= ahead {
            shorten(&mut plan.ahead, missing);
            return true;
        }
        plan.ahead.clear();
        plan.to_unpin.clear();
    }
    let over = needed.saturating_sub(order.limit_pages());
    victims(order, chooser, over, range, &mut plan.to_unpin);
    plan.to_unpin.len() as u64 == over
}

/// Adds up to `count` victims to `out`, which must be empty: those that the application chooses, then those of the policy.
fn victims(
    order: &mut PinnedPages,
    chooser: Option<&mut (dyn ChooseVictims + 'static)>,
    count: u64,
    keep: PageRange,
    out: &mut Vec<Page>,
) {
    let Some(chooser) = chooser.filter(|_| count > 0) else {
        order.victims(count, keep, out);
        return;
    };
    let candidates = Candidates::new(order, keep);
    let mut named = Vec::new();
    chooser.choose(count, &candidates, &mut named);
    let mut taken = BTreeSet::new();
    for page in named {
        if out.len() as u64 == count {
            return;
        }
        if candidates.contains(page) && taken.insert(page) {
            out.push(page);
        }
    }
    let mut others = Vec::new();
    order.victims(count, keep, &mut others);
    let rest = others.iter().filter(|page| !taken.contains(page));
    let missing = count as usize - out.len();
    out.extend(rest.take(missing));
}

/// Removes the last `pages` pages.
fn shorten(runs: &mut Vec<PageRange>, mut pages: u64) {
    while let Some(run) = runs.last_mut() {
        let cut = run.count.min(pages);
        run.count -= cut;
        pages -= cut;
        if !run.is_empty() {
            return;
        }
        runs.pop();
    }
}

fn too_small(order: &PinnedPages, range: PageRange) -> PinError {
    PinError::LimitTooSmall {
        needed_pages: range.count,
        limit_pages: order.limit_pages(),
        held_pages: order.held_outside(range),
    }
}

#[cfg(test)]
mod tests;
