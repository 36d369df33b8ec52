//! The library side of translation for one process: is the source of a transfer pinned, and if not, what has to be
//! pinned and what unpinned for it?
//!
//! The table only plans. The driver pins and unpins between plan and commit, and may fail halfway: what it has done
//! it commits, what it has not done it does not, and the table is right at every step.

use crate::Counters;
use crate::limit::{PinError, PinLimit, PinRules};
use crate::page::{PAGE_NUMBER_END, Page, PageRange};
use crate::pin_map::{Check, PinMap};
use crate::pinned_pages::PinnedPages;
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
    /// Runs of pages to pin ahead, in rising order, behind the range: the transfer can do without them.
    pub ahead: Vec<PageRange>,
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
        self.ahead.clear();
    }

    /// Pages of all runs that the transfer needs pinned.
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
#[derive(Clone, Debug)]
pub struct UserTable {
    map: PinMap,
    order: Option<PinnedPages>,
    prepin_pages: u64,
    check_misses: u64,
    pins: u64,
    unpins: u64,
}

impl UserTable {
    /// No page pinned; victims are those used least recently, and nothing is pinned ahead.
    pub fn new(limit: PinLimit) -> Self {
        Self::with(PinRules::default().with_limit(limit))
    }

    /// No page pinned.
    pub fn with(rules: PinRules) -> Self {
        let order = match rules.limit {
            PinLimit::Unlimited => None,
            PinLimit::Pages(pages) => Some(PinnedPages::new(pages)),
        };
        UserTable {
            map: PinMap::new(),
            order,
            prepin_pages: rules.prepin_pages.max(1),
            check_misses: 0,
            pins: 0,
            unpins: 0,
        }
    }

    /// Whether a transfer of the range can start, and if not, the plan that makes it possible. Under a limit the
    /// range's pinned pages count as used now.
    ///
    /// Going through the range in order, each page that is not pinned, nor pinned ahead for one before it, is a check miss.
    /// What is pinned ahead may make others be unpinned, but never a page of the range.
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
        if let Some(order) = &self.order {
            // Asked first: walking a range of any length would take as long.
            if range.count > order.limit_pages() {
                return Err(too_small(order, range));
            }
        }
        self.unpinned_runs(range, &mut plan.to_pin);
        let misses = self.plan_ahead(range, plan);
        if let Some(order) = &mut self.order {
            order.touch(range);
            if !make_room(order, range, plan) {
                plan.clear();
                return Err(too_small(order, range));
            }
        }
        self.check_misses += misses;
        Ok(())
    }

    fn unpinned_runs(&mut self, range: PageRange, runs: &mut Vec<PageRange>) {
        let mut rest = range;
        while let Some(run) = self.map.first_unpinned_run(rest) {
            runs.push(run);
            rest = PageRange {
                first: run.end(),
                count: range.end().0 - run.end().0,
            };
        }
    }

    /// Adds what the last check misses of the range pin beyond its end. Gives how many check misses the range has.
    fn plan_ahead(&mut self, range: PageRange, plan: &mut PinPlan) -> u64 {
        if self.prepin_pages == 1 {
            return plan.pages_to_pin();
        }
        let (mut misses, mut covered) = (0, 0);
        for run in &plan.to_pin {
            let first = run.first.0.max(covered);
            let more = run
                .end()
                .0
                .saturating_sub(first)
                .div_ceil(self.prepin_pages);
            if more > 0 {
                misses += more;
                covered = first.saturating_add(more * self.prepin_pages);
            }
        }
        let end = range.end();
        let beyond = PageRange {
            first: end,
            count: covered.min(PAGE_NUMBER_END).saturating_sub(end.0),
        };
        self.unpinned_runs(beyond, &mut plan.ahead);
        misses
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

/// Plans victims, and cuts what is pinned ahead to the room that there is. False if not even the range has room.
fn make_room(order: &mut PinnedPages, range: PageRange, plan: &mut PinPlan) -> bool {
    let ahead = pages(&plan.ahead);
    let over = |pinned: u64| pinned.saturating_sub(order.limit_pages());
    let all = over(order.pinned_pages() + plan.pages_to_pin() + ahead);
    let needed = over(order.pinned_pages() + plan.pages_to_pin());
    if ahead > 0 {
        let end = plan.ahead.last().map_or(range.end(), |run| run.end());
        let keep = PageRange {
            first: range.first,
            count: end.0 - range.first.0,
        };
        order.victims(all, keep, &mut plan.to_unpin);
        let missing = all - plan.to_unpin.len() as u64;
        if missing <= ahead {
            shorten(&mut plan.ahead, missing);
            return true;
        }
        plan.ahead.clear();
        plan.to_unpin.clear();
    }
    order.victims(needed, range, &mut plan.to_unpin)
}

/// Takes the last `pages` pages off.
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
mod tests {
    use super::*;
    use crate::page::RangeError;
    use alloc::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range(first: u64, count: u64) -> PageRange {
        PageRange {
            first: Page(first),
            count,
        }
    }

    /// Does what the plan says, as a driver that never fails.
    fn carry_out(user: &mut UserTable, plan: &PinPlan) {
        plan.to_unpin
            .iter()
            .for_each(|page| user.commit_unpinned(*page));
        plan.to_pin
            .iter()
            .for_each(|run| user.commit_pinned(*run).unwrap());
    }

    fn send(user: &mut UserTable, pages: PageRange) -> Result<PinPlan, PinError> {
        let mut plan = PinPlan::new();
        user.prepare(pages, &mut plan)?;
        carry_out(user, &plan);
        user.hold(pages)?;
        user.release(pages)?;
        Ok(plan)
    }

    #[test]
    fn without_a_limit_pages_are_pinned_once_and_never_given_up() {
        let mut user = UserTable::new(PinLimit::Unlimited);
        assert_eq!(send(&mut user, range(5, 3)).unwrap().to_pin, [range(5, 3)]);
        assert_eq!(
            send(&mut user, range(3, 7)).unwrap().to_pin,
            [range(3, 2), range(8, 2)]
        );
        assert_eq!(send(&mut user, range(3, 7)).unwrap(), PinPlan::new());
        assert_eq!(
            user.counters(),
            Counters {
                check_misses: 7,
                pins: 7,
                pinned_pages: 7,
                ..Counters::default()
            }
        );
    }

    #[test]
    fn a_hand_computed_trace_under_a_limit_gives_its_golden_counts() {
        let mut user = UserTable::new(PinLimit::Pages(4));
        send(&mut user, range(0, 3)).unwrap(); // 0 1 2, oldest first
        send(&mut user, range(0, 1)).unwrap(); // 1 2 0
        send(&mut user, range(9, 1)).unwrap(); // 1 2 0 9
        let plan = send(&mut user, range(1, 3)).unwrap(); // 1 and 2 are there, 3 takes the place of 0
        assert_eq!(
            (plan.to_unpin, plan.to_pin),
            (Vec::from([Page(0)]), Vec::from([range(3, 1)]))
        );
        let plan = send(&mut user, range(0, 4)).unwrap(); // 0 takes the place of 9
        assert_eq!(
            (plan.to_unpin, plan.to_pin),
            (Vec::from([Page(9)]), Vec::from([range(0, 1)]))
        );
        let expected = Counters {
            check_misses: 6,
            pins: 6,
            unpins: 2,
            pinned_pages: 4,
            ..Counters::default()
        };
        assert_eq!(user.counters(), expected);
    }

    /// Carries out what is pinned ahead as well.
    fn send_with_prepinning(user: &mut UserTable, pages: PageRange) -> PinPlan {
        let plan = send(user, pages).unwrap();
        let ahead = plan.ahead.iter();
        ahead.for_each(|run| user.commit_pinned(*run).unwrap());
        plan
    }

    #[test]
    fn a_check_miss_pins_pages_ahead_and_counts_once() {
        let mut user = UserTable::with(PinRules::default().with_prepin_pages(4));
        let plan = send_with_prepinning(&mut user, range(10, 1));
        assert_eq!(
            (plan.to_pin, plan.ahead),
            (vec![range(10, 1)], vec![range(11, 3)])
        );
        // 13 is pinned; 14 misses and pins up to 17, 18 misses and pins up to 21.
        let plan = send_with_prepinning(&mut user, range(13, 6));
        assert_eq!(
            (plan.to_pin, plan.ahead),
            (vec![range(14, 5)], vec![range(19, 3)])
        );
        // 8 misses and covers 9, which misses no more; 22 misses.
        let plan = send_with_prepinning(&mut user, range(8, 15));
        assert_eq!(plan.to_pin, [range(8, 2), range(22, 1)]);
        assert_eq!(plan.ahead, [range(23, 3)]);
        let expected = Counters {
            check_misses: 5,
            pins: 18,
            pinned_pages: 18,
            ..Counters::default()
        };
        assert_eq!(user.counters(), expected);
        let top = range(PAGE_NUMBER_END - 2, 1);
        assert_eq!(
            send_with_prepinning(&mut user, top).ahead,
            [range(PAGE_NUMBER_END - 1, 1)]
        );
    }

    #[test]
    fn what_is_pinned_ahead_takes_the_place_of_others_but_keeps_to_the_limit() {
        let rules = PinRules::default()
            .with_limit(PinLimit::Pages(4))
            .with_prepin_pages(3);
        let mut user = UserTable::with(rules);
        send_with_prepinning(&mut user, range(0, 1)); // 0 1 2
        let plan = send_with_prepinning(&mut user, range(10, 1)); // 2 10 11 12
        assert_eq!(
            (plan.to_unpin.as_slice(), plan.ahead.as_slice()),
            (&[Page(0), Page(1)][..], &[range(11, 2)][..])
        );
        user.hold(range(10, 2)).unwrap();
        // 2 and 12 make room for 20 and 21; there is none for 22.
        let plan = send_with_prepinning(&mut user, range(20, 1));
        assert_eq!(
            (plan.to_unpin.as_slice(), plan.ahead.as_slice()),
            (&[Page(2), Page(12)][..], &[range(21, 1)][..])
        );
        user.hold(range(20, 1)).unwrap();
        let plan = send_with_prepinning(&mut user, range(30, 1));
        assert_eq!(
            (plan.to_unpin.as_slice(), plan.ahead.as_slice()),
            (&[Page(21)][..], &[][..])
        );
        user.hold(range(30, 1)).unwrap();
        let refused = user.prepare(range(40, 1), &mut PinPlan::new());
        assert!(
            matches!(refused, Err(PinError::LimitTooSmall { held_pages: 4, .. })),
            "{refused:?}"
        );
        assert_eq!(user.counters().pinned_pages, 4);
    }

    #[test]
    fn a_transfer_larger_than_the_limit_is_refused_with_the_numbers() {
        let mut user = UserTable::new(PinLimit::Pages(4));
        let refused = send(&mut user, range(0, 5));
        assert_eq!(
            refused,
            Err(PinError::LimitTooSmall {
                needed_pages: 5,
                limit_pages: 4,
                held_pages: 0
            })
        );
        assert_eq!(user.counters(), Counters::default());
        assert!(send(&mut user, range(0, PAGE_NUMBER_END)).is_err());
        send(&mut user, range(0, 4)).unwrap();
    }

    #[test]
    fn a_transfer_waits_for_others_that_hold_the_room() {
        let mut user = UserTable::new(PinLimit::Pages(4));
        let mut plan = PinPlan::new();
        send(&mut user, range(0, 4)).unwrap();
        user.hold(range(0, 3)).unwrap();
        let refused = user.prepare(range(2, 4), &mut plan);
        assert_eq!(
            refused,
            Err(PinError::LimitTooSmall {
                needed_pages: 4,
                limit_pages: 4,
                held_pages: 2
            })
        );
        assert_eq!(plan, PinPlan::new());
        user.release(range(0, 3)).unwrap();
        assert_eq!(
            send(&mut user, range(2, 4)).unwrap().to_unpin,
            [Page(0), Page(1)]
        );
    }

    #[test]
    fn pages_outside_the_address_space_are_refused() {
        for limit in [PinLimit::Unlimited, PinLimit::Pages(4)] {
            let mut user = UserTable::new(limit);
            let outside = range(PAGE_NUMBER_END - 1, 2);
            let error = RangeError::PagesOutside {
                first: PAGE_NUMBER_END - 1,
                count: 2,
            };
            assert_eq!(send(&mut user, outside), Err(error.into()));
            assert_eq!(user.commit_pinned(outside), Err(error.into()));
            assert_eq!(user.counters(), Counters::default());
        }
    }

    #[test]
    fn a_driver_that_fails_halfway_leaves_a_table_that_plans_the_rest() {
        let mut user = UserTable::new(PinLimit::Pages(4));
        let mut plan = PinPlan::new();
        send(&mut user, range(0, 4)).unwrap();
        user.prepare(range(8, 3), &mut plan).unwrap();
        assert_eq!(plan.to_unpin, [Page(0), Page(1), Page(2)]);
        // Two are unpinned, one page is pinned, then the system refuses.
        user.commit_unpinned(Page(0));
        user.commit_unpinned(Page(1));
        user.commit_pinned(range(8, 1)).unwrap();
        user.prepare(range(8, 3), &mut plan).unwrap();
        assert_eq!(
            (plan.to_unpin.as_slice(), plan.to_pin.as_slice()),
            (&[Page(2)][..], &[range(9, 2)][..])
        );
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn a_driver_that_may_fail_never_breaks_the_limit_or_a_hold(
            limit in 1u64..12,
            sends in prop::collection::vec((0u64..30, 1u64..7, 0usize..12, any::<bool>()), 0..120),
        ) {
            let mut user = UserTable::new(PinLimit::Pages(limit));
            let mut pinned = BTreeSet::new();
            let mut holds: Vec<PageRange> = Vec::new();
            let mut plan = PinPlan::new();
            let mut check_misses = 0;
            for (first, count, steps, finish) in sends {
                let pages = range(first, count);
                let held: BTreeSet<_> = holds.iter().flat_map(|held| held.iter()).collect();
                let elsewhere = held.iter().filter(|page| !pages.contains(**page)).count() as u64;
                match user.prepare(pages, &mut plan) {
                    Ok(Prepared::AllPinned) => {
                        prop_assert!(pages.iter().all(|page| pinned.contains(&page)));
                        user.hold(pages).unwrap();
                        holds.push(pages);
                    }
                    Ok(Prepared::MustPin) => {
                        check_misses += plan.pages_to_pin();
                        let missing: BTreeSet<_> = pages.iter().filter(|page| !pinned.contains(page)).collect();
                        let planned: BTreeSet<_> = plan.to_pin.iter().flat_map(|run| run.iter()).collect();
                        prop_assert_eq!(&planned, &missing);
                        let over = (pinned.len() + missing.len()).saturating_sub(limit as usize);
                        prop_assert_eq!(plan.to_unpin.len(), over);
                        let victims: BTreeSet<_> = plan.to_unpin.iter().copied().collect();
                        prop_assert_eq!(victims.len(), over);
                        prop_assert!(victims.is_subset(&pinned));
                        prop_assert!(victims.iter().all(|page| !held.contains(page) && !pages.contains(*page)));
                        // The driver gets so far, in order, before it fails.
                        for page in plan.to_unpin.iter().take(steps) {
                            user.commit_unpinned(*page);
                            pinned.remove(page);
                        }
                        let left = steps.saturating_sub(over);
                        for page in plan.to_pin.iter().flat_map(|run| run.iter()).take(left) {
                            user.commit_pinned(PageRange::single(page)).unwrap();
                            pinned.insert(page);
                        }
                        if left >= missing.len() {
                            user.hold(pages).unwrap();
                            holds.push(pages);
                        } else {
                            prop_assert!(user.hold(pages).is_err());
                        }
                    }
                    Err(error) => {
                        let expected =
                            PinError::LimitTooSmall { needed_pages: count, limit_pages: limit, held_pages: elsewhere };
                        prop_assert_eq!(error, expected);
                        prop_assert!(count + elsewhere > limit);
                        prop_assert_eq!(&plan, &PinPlan::new());
                    }
                }
                if finish && !holds.is_empty() {
                    user.release(holds.remove(0)).unwrap();
                }
                let counters = user.counters();
                prop_assert!(pinned.len() as u64 <= limit);
                prop_assert_eq!(counters.pinned_pages, pinned.len() as u64);
                prop_assert_eq!(counters.pins - counters.unpins, counters.pinned_pages);
                prop_assert_eq!(counters.check_misses, check_misses);
            }
        }
    }
}
