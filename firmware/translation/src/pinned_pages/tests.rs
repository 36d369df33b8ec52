use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn range(first: u64, count: u64) -> PageRange {
    PageRange { first: Page(first), count }
}

fn victims(pinned: &mut PinnedPages, count: u64, keep: PageRange) -> Vec<u64> {
    let mut out = Vec::new();
    pinned.victims(count, keep, &mut out);
    out.iter().map(|page| page.0).collect()
}

#[test]
fn a_node_takes_sixteen_bytes() {
    assert_eq!(size_of::<Node>(), 16);
}

#[test]
fn the_least_recently_used_page_goes_first() {
    let mut pinned = PinnedPages::new(10);
    pinned.insert(range(0, 4)).unwrap();
    pinned.touch(range(1, 1));
    pinned.touch(range(0, 1));
    assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [2, 3, 1, 0]);
}

#[test]
fn a_plan_for_victims_changes_nothing_until_they_are_removed() {
    let mut pinned = PinnedPages::new(10);
    pinned.insert(range(0, 4)).unwrap();
    assert_eq!(victims(&mut pinned, 2, PageRange::EMPTY), [0, 1]);
    assert_eq!(victims(&mut pinned, 2, PageRange::EMPTY), [0, 1]);
    assert!(pinned.remove(Page(0)));
    assert!(!pinned.remove(Page(0)));
    assert_eq!(victims(&mut pinned, 2, PageRange::EMPTY), [1, 2]);
    assert_eq!(pinned.pinned_pages(), 3);
}

#[test]
fn a_page_held_twice_needs_two_releases() {
    let mut pinned = PinnedPages::new(10);
    pinned.insert(range(7, 1)).unwrap();
    pinned.hold(range(7, 1)).unwrap();
    pinned.hold(range(7, 1)).unwrap();
    assert_eq!(pinned.held_pages(), 1);
    pinned.release(range(7, 1)).unwrap();
    assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), []);
    pinned.release(range(7, 1)).unwrap();
    assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), [7]);
    assert_eq!(pinned.release(range(7, 1)), Err(PinError::NotHeld { page: Page(7) }));
}

#[test]
fn a_hold_that_meets_an_unpinned_page_holds_nothing() {
    let mut pinned = PinnedPages::new(10);
    pinned.insert(range(254, 3)).unwrap();
    for (first, count, absent) in [(254, 4, 257), (253, 2, 253), (256, 600, 257), (5000, 1, 5000)] {
        let refused = pinned.hold(range(first, count));
        assert_eq!(refused, Err(PinError::NotPinned { page: Page(absent) }));
        assert_eq!(pinned.held_pages(), 0);
    }
    assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [254, 255, 256]);
}

#[test]
fn a_page_that_was_passed_while_held_is_the_newest_after_its_release() {
    let mut pinned = PinnedPages::new(10);
    pinned.insert(range(0, 3)).unwrap();
    pinned.hold(range(0, 1)).unwrap();
    assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), [1]);
    pinned.release(range(0, 1)).unwrap();
    assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [1, 2, 0]);
}

#[test]
fn holds_outlive_an_unpinning_that_was_forced() {
    let mut pinned = PinnedPages::new(10);
    pinned.insert(range(3, 1)).unwrap();
    pinned.hold(range(3, 1)).unwrap();
    assert!(pinned.remove(Page(3)));
    assert!(pinned.is_held(Page(3)));
    pinned.insert(range(3, 1)).unwrap();
    assert_eq!(victims(&mut pinned, 1, PageRange::EMPTY), []);
    pinned.release(range(3, 1)).unwrap();
    assert!(pinned.remove(Page(3)));
    assert_eq!((pinned.held_pages(), pinned.nodes.leaf_count()), (0, 0));
}

#[test]
fn each_policy_gives_up_what_its_name_says() {
    for (policy, expected) in [
        (Policy::Lru, [1, 2, 0, 3]),
        (Policy::Mru, [3, 0, 2, 1]),
        (Policy::Lfu, [1, 3, 2, 0]),
        (Policy::Mfu, [2, 0, 1, 3]),
    ] {
        let mut pinned = PinnedPages::with(10, policy);
        pinned.insert(range(0, 4)).unwrap();
        for page in [2, 0, 3, 3, 3, 2, 0] {
            pinned.touch(range(page, 1));
        }
        // Pages 2 and 0 have been used three times, page 1 once, and page 3 once since it was pinned again.
        pinned.remove(Page(3));
        pinned.insert(range(3, 1)).unwrap();
        let order = victims(&mut pinned, 9, PageRange::EMPTY);
        assert_eq!(order, expected, "{policy}");
    }
}

#[test]
fn by_number_of_uses_a_page_pinned_ahead_has_none() {
    let mut pinned = PinnedPages::with(10, Policy::Lfu);
    pinned.insert(range(0, 2)).unwrap();
    pinned.insert_ahead(range(1, 3)).unwrap();
    pinned.touch(range(2, 1));
    assert_eq!(victims(&mut pinned, 9, PageRange::EMPTY), [3, 0, 1, 2]);
}

#[test]
fn lots_fall_on_every_page_alike_and_the_same_again_for_the_same_seed() {
    let draws = |seed| {
        let mut pinned = PinnedPages::with(100, Policy::Random { seed });
        pinned.insert(range(0, 16)).unwrap();
        let mut drawn = Vec::new();
        for _ in 0..4000 {
            drawn.extend(victims(&mut pinned, 3, range(0, 4)));
        }
        drawn
    };
    let drawn = draws(1);
    assert_eq!(drawn, draws(1));
    assert_ne!(drawn, draws(2));
    for page in 0..16 {
        let times = drawn.iter().filter(|it| **it == page).count();
        // 1000 times each on average; the standard deviation of a fair draw is 27.
        let expected = if page < 4 { 0..1 } else { 860..1140 };
        assert!(expected.contains(&times), "page {page}: {times} times");
    }
}

/// The pages as a plain list, oldest first, with the number of uses of each.
struct Naive {
    policy: Policy,
    order: Vec<u64>,
    uses: BTreeMap<u64, u64>,
    parked: BTreeSet<u64>,
    holds: BTreeMap<u64, u32>,
}

impl Naive {
    fn new(policy: Policy) -> Self {
        Naive { policy, order: Vec::new(), uses: BTreeMap::new(), parked: BTreeSet::new(), holds: BTreeMap::new() }
    }

    fn pinned(&self, page: u64) -> bool {
        self.uses.contains_key(&page)
    }

    fn forget(&mut self, page: u64) {
        self.order.retain(|other| *other != page);
        self.parked.remove(&page);
        self.uses.remove(&page);
    }

    fn make_newest(&mut self, page: u64) {
        self.order.retain(|other| *other != page);
        self.parked.remove(&page);
        self.order.push(page);
    }

    fn use_now(&mut self, page: u64) {
        *self.uses.entry(page).or_default() += 1;
        self.make_newest(page);
    }

    fn ranked(&self) -> Vec<u64> {
        let mut ranked = self.order.clone();
        match self.policy {
            Policy::Mru => ranked.reverse(),
            Policy::Lfu => ranked.sort_by_key(|page| self.uses[page]),
            Policy::Mfu => ranked.sort_by_key(|page| core::cmp::Reverse(self.uses[page])),
            _ => {}
        }
        ranked
    }

    fn victims(&mut self, count: usize, keep: PageRange) -> Vec<u64> {
        let mut found = Vec::new();
        for page in self.ranked() {
            if found.len() == count {
                break;
            }
            if self.holds.contains_key(&page) {
                self.order.retain(|other| *other != page);
                self.parked.insert(page);
            } else if !keep.contains(Page(page)) {
                found.push(page);
            }
        }
        found
    }

    fn release(&mut self, page: u64) -> bool {
        match self.holds.get_mut(&page) {
            None => return false,
            Some(1) => {
                self.holds.remove(&page);
                if self.parked.contains(&page) {
                    self.make_newest(page);
                }
            }
            Some(count) => *count -= 1,
        }
        true
    }

    fn may_go(&self, page: u64, keep: PageRange) -> bool {
        self.pinned(page) && !self.holds.contains_key(&page) && !keep.contains(Page(page))
    }
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(&Policy::PREDEFINED[..])
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn each_policy_agrees_with_a_plain_list(
        policy in policy(),
        ops in prop::collection::vec((0u8..12, 0u64..24, 0u64..6, 0u64..5), 0..200)
    ) {
        let mut pinned = PinnedPages::with(1000, policy);
        let mut naive = Naive::new(policy);
        for (op, first, count, many) in ops {
            // Around the boundary of two leaves, and far away.
            let first = if first < 20 { 246 + first } else { 1 << 30 | first };
            let pages = range(first, count);
            match op {
                0..2 => {
                    pinned.insert(pages).unwrap();
                    pages.iter().for_each(|page| naive.use_now(page.0));
                }
                2 => {
                    pinned.insert_ahead(pages).unwrap();
                    for page in pages {
                        if !naive.pinned(page.0) {
                            naive.uses.insert(page.0, 0);
                            naive.make_newest(page.0);
                        }
                    }
                }
                3..6 => {
                    pinned.touch(pages);
                    for page in pages {
                        if naive.pinned(page.0) {
                            naive.use_now(page.0);
                        }
                    }
                }
                6 => {
                    prop_assert_eq!(pinned.remove(Page(first)), naive.pinned(first));
                    naive.forget(first);
                }
                7..9 => {
                    let all = pages.iter().all(|page| naive.pinned(page.0));
                    prop_assert_eq!(pinned.hold(pages).is_ok(), all);
                    for page in pages {
                        if all {
                            *naive.holds.entry(page.0).or_default() += 1;
                        } else if !naive.pinned(page.0) {
                            break;
                        } else {
                            // Held, then released when the hold failed.
                            *naive.holds.entry(page.0).or_default() += 1;
                            naive.release(page.0);
                        }
                    }
                }
                9 => {
                    let done = pages.iter().all(|page| naive.release(page.0));
                    prop_assert_eq!(pinned.release(pages).is_ok(), done);
                }
                _ if policy == (Policy::Random { seed: 0 }) => {
                    let drawn = victims(&mut pinned, many, pages);
                    let idle: BTreeSet<_> = naive.uses.keys().copied().filter(|page| naive.may_go(*page, pages)).collect();
                    let distinct: BTreeSet<_> = drawn.iter().copied().collect();
                    prop_assert!(distinct.is_subset(&idle), "{:?} of {:?}", drawn, idle);
                    prop_assert_eq!(distinct.len(), drawn.len());
                    prop_assert_eq!(drawn.len(), idle.len().min(many as usize));
                }
                _ => prop_assert_eq!(victims(&mut pinned, many, pages), naive.victims(many as usize, pages)),
            }
            prop_assert_eq!(pinned.pinned_pages(), naive.uses.len() as u64);
            prop_assert_eq!(pinned.held_pages(), naive.holds.len() as u64);
        }
        let everything = naive.victims(usize::MAX, PageRange::EMPTY);
        let found = victims(&mut pinned, u64::MAX, PageRange::EMPTY);
        if policy == (Policy::Random { seed: 0 }) {
            prop_assert_eq!(found.len(), everything.len());
        } else {
            prop_assert_eq!(found, everything);
        }
    }
}
