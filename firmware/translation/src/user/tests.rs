use super::*;
use crate::page::RangeError;
use crate::policy::Policy;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::{format, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Mutex;

fn range(first: u64, count: u64) -> PageRange {
    PageRange { first: Page(first), count }
}

/// Carries out the plan, as a driver that never fails.
fn carry_out(user: &mut UserTable, plan: &PinPlan) {
    plan.to_unpin.iter().for_each(|page| user.commit_unpinned(*page));
    plan.to_pin.iter().for_each(|run| user.commit_pinned(*run).unwrap());
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
    assert_eq!(send(&mut user, range(3, 7)).unwrap().to_pin, [range(3, 2), range(8, 2)]);
    assert_eq!(send(&mut user, range(3, 7)).unwrap(), PinPlan::new());
    assert_eq!(user.counters(), Counters { check_misses: 7, pins: 7, pinned_pages: 7, ..Counters::default() });
}

#[test]
fn a_hand_computed_trace_under_a_limit_gives_its_golden_counts() {
    let mut user = UserTable::new(PinLimit::Pages(4));
    send(&mut user, range(0, 3)).unwrap(); // 0 1 2, oldest first
    send(&mut user, range(0, 1)).unwrap(); // 1 2 0
    send(&mut user, range(9, 1)).unwrap(); // 1 2 0 9
    let plan = send(&mut user, range(1, 3)).unwrap(); // 1 and 2 are there, 3 takes the place of 0
    assert_eq!((plan.to_unpin, plan.to_pin), (Vec::from([Page(0)]), Vec::from([range(3, 1)])));
    let plan = send(&mut user, range(0, 4)).unwrap(); // 0 takes the place of 9
    assert_eq!((plan.to_unpin, plan.to_pin), (Vec::from([Page(9)]), Vec::from([range(0, 1)])));
    let expected = Counters { check_misses: 6, pins: 6, unpins: 2, pinned_pages: 4, ..Counters::default() };
    assert_eq!(user.counters(), expected);
}

/// Carries out pinning ahead as well.
fn send_with_prepinning(user: &mut UserTable, pages: PageRange) -> PinPlan {
    let plan = send(user, pages).unwrap();
    let ahead = plan.ahead.iter();
    ahead.for_each(|run| user.commit_ahead(*run).unwrap());
    plan
}

#[test]
fn a_check_miss_pins_pages_ahead_and_counts_once() {
    let mut user = UserTable::with(PinRules::default().with_prepin_pages(4));
    let plan = send_with_prepinning(&mut user, range(10, 1));
    assert_eq!((plan.to_pin, plan.ahead), (vec![range(10, 1)], vec![range(11, 3)]));
    // 13 is pinned; 14 misses and pins up to 17, 18 misses and pins up to 21.
    let plan = send_with_prepinning(&mut user, range(13, 6));
    assert_eq!((plan.to_pin, plan.ahead), (vec![range(14, 5)], vec![range(19, 3)]));
    // 8 misses and covers 9, which then hits; 22 misses.
    let plan = send_with_prepinning(&mut user, range(8, 15));
    assert_eq!(plan.to_pin, [range(8, 2), range(22, 1)]);
    assert_eq!(plan.ahead, [range(23, 3)]);
    let expected = Counters { check_misses: 5, pins: 18, pinned_pages: 18, ..Counters::default() };
    assert_eq!(user.counters(), expected);
    let top = range(PAGE_NUMBER_END - 2, 1);
    assert_eq!(send_with_prepinning(&mut user, top).ahead, [range(PAGE_NUMBER_END - 1, 1)]);
}

#[test]
fn what_is_pinned_ahead_takes_the_place_of_others_but_keeps_to_the_limit() {
    let rules = PinRules::default().with_limit(PinLimit::Pages(4)).with_prepin_pages(3);
    let mut user = UserTable::with(rules);
    send_with_prepinning(&mut user, range(0, 1)); // 0 1 2
    let plan = send_with_prepinning(&mut user, range(10, 1)); // 2 10 11 12
    assert_eq!((plan.to_unpin.as_slice(), plan.ahead.as_slice()), (&[Page(0), Page(1)][..], &[range(11, 2)][..]));
    user.hold(range(10, 2)).unwrap();
    // 2 and 12 make room for 20 and 21; there is none for 22.
    let plan = send_with_prepinning(&mut user, range(20, 1));
    assert_eq!((plan.to_unpin.as_slice(), plan.ahead.as_slice()), (&[Page(2), Page(12)][..], &[range(21, 1)][..]));
    user.hold(range(20, 1)).unwrap();
    let plan = send_with_prepinning(&mut user, range(30, 1));
    assert_eq!((plan.to_unpin.as_slice(), plan.ahead.as_slice()), (&[Page(21)][..], &[][..]));
    user.hold(range(30, 1)).unwrap();
    let refused = user.prepare(range(40, 1), &mut PinPlan::new());
    assert!(matches!(refused, Err(PinError::LimitTooSmall { held_pages: 4, .. })), "{refused:?}");
    assert_eq!(user.counters().pinned_pages, 4);
}

/// Chooses pages 7, 8 and 9, some of them twice, and one that is not pinned; records its notifications.
#[derive(Debug, Default)]
struct Sevens {
    told: Arc<Mutex<Vec<String>>>,
}

impl ChooseVictims for Sevens {
    fn used(&mut self, pages: PageRange) {
        self.told.lock().unwrap().push(format!("used {pages}"));
    }

    fn pinned(&mut self, pages: PageRange) {
        self.told.lock().unwrap().push(format!("pinned {pages}"));
    }

    fn unpinned(&mut self, page: Page) {
        self.told.lock().unwrap().push(format!("unpinned {page}"));
    }

    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        let all = candidates.oldest_first().collect::<Vec<_>>();
        assert!(all.iter().all(|page| candidates.contains(*page)));
        let told = format!("wants {count} of {}", all.len());
        self.told.lock().unwrap().push(told);
        victims.extend([7, 99, 7, 8, 8, 9].map(Page));
    }
}

#[test]
fn an_application_chooses_victims_but_never_wrong_ones() {
    let chooser = Sevens::default();
    let told = chooser.told.clone();
    let mut user = UserTable::new(PinLimit::Pages(6)).choosing(Box::new(chooser));
    send(&mut user, range(5, 5)).unwrap(); // 5 6 7 8 9
    user.hold(range(8, 1)).unwrap();
    told.lock().unwrap().clear();
    // 7 is chosen; 8 is held, 9 is needed; so the others are the least recently used.
    let plan = send(&mut user, range(9, 4)).unwrap();
    assert_eq!(plan.to_unpin, [Page(7), Page(5)]);
    let expected = [
        "used 4 pages from page 0x9",
        "wants 2 of 3",
        "unpinned page 0x7",
        "unpinned page 0x5",
        "pinned 3 pages from page 0xa",
    ];
    assert_eq!(*told.lock().unwrap(), expected);
    assert_eq!(send(&mut user, range(9, 4)).unwrap(), PinPlan::new());
    assert_eq!(told.lock().unwrap().len(), 6);
}

#[test]
fn without_a_limit_an_application_is_not_asked() {
    let chooser = Sevens::default();
    let told = chooser.told.clone();
    let mut user = UserTable::new(PinLimit::Unlimited).choosing(Box::new(chooser));
    send(&mut user, range(5, 5)).unwrap();
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn a_table_that_tracks_keeps_holds_without_a_limit() {
    let mut user = UserTable::tracking(PinRules::default());
    send(&mut user, range(5, 5)).unwrap();
    user.hold(range(6, 2)).unwrap();
    assert!(user.is_held(Page(6)) && !user.is_held(Page(5)));
    assert_eq!(user.limit(), PinLimit::Unlimited);
}

#[test]
fn a_transfer_larger_than_the_limit_is_refused_with_the_numbers() {
    let mut user = UserTable::new(PinLimit::Pages(4));
    let refused = send(&mut user, range(0, 5));
    assert_eq!(refused, Err(PinError::LimitTooSmall { needed_pages: 5, limit_pages: 4, held_pages: 0 }));
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
    assert_eq!(refused, Err(PinError::LimitTooSmall { needed_pages: 4, limit_pages: 4, held_pages: 2 }));
    assert_eq!(plan, PinPlan::new());
    user.release(range(0, 3)).unwrap();
    assert_eq!(send(&mut user, range(2, 4)).unwrap().to_unpin, [Page(0), Page(1)]);
}

#[test]
fn pages_outside_the_address_space_are_refused() {
    for limit in [PinLimit::Unlimited, PinLimit::Pages(4)] {
        let mut user = UserTable::new(limit);
        let outside = range(PAGE_NUMBER_END - 1, 2);
        let error = RangeError::PagesOutside { first: PAGE_NUMBER_END - 1, count: 2 };
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
    assert_eq!((plan.to_unpin.as_slice(), plan.to_pin.as_slice()), (&[Page(2)][..], &[range(9, 2)][..]));
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn pages_ahead_are_those_that_going_page_by_page_would_pin(
        prepin in 1u64..33, sends in prop::collection::vec((0u64..200, 1u64..40), 0..40),
    ) {
        let mut user = UserTable::with(PinRules::default().with_prepin_pages(prepin));
        let (mut pinned, mut misses) = (BTreeSet::new(), 0);
        for (first, count) in sends {
            for page in first..first + count {
                if !pinned.contains(&page) {
                    misses += 1;
                    pinned.extend(page..page + prepin);
                }
            }
            send_with_prepinning(&mut user, range(first, count));
            let counters = user.counters();
            prop_assert_eq!((counters.check_misses, counters.pins), (misses, pinned.len() as u64));
            prop_assert!((0..300).all(|page| user.map().contains(Page(page)) == pinned.contains(&page)));
        }
    }

    #[test]
    fn a_driver_that_may_fail_never_breaks_the_limit_or_a_hold(
        limit in 1u64..12,
        policy in prop::sample::select(&Policy::PREDEFINED[..]),
        sends in prop::collection::vec((0u64..30, 1u64..7, 0usize..12, any::<bool>()), 0..120),
    ) {
        let rules = PinRules::default().with_limit(PinLimit::Pages(limit)).with_policy(policy);
        let mut user = UserTable::with(rules);
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
                    // The driver does this much, in order, before it fails.
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
