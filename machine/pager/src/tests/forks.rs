//! Forked children that inherit the memory.

use std::sync::atomic::{AtomicBool, Ordering};

use mapwire_testing::children::in_child;

use super::memory::{WORDS, close_page, fork_frozen, fork_of, join, load, store, words};
use super::*;

const PAGES: usize = 200;

/// Random loads and stores, some discards, and forks down to `depth`; both sides continue and must find their own contents.
fn walk(pager: &Pager, region: &Region, expected: &mut [u64], seed: u64, depth: u32, name: &str) {
    let mut random = Random(seed);
    let mut steps = |region: &Region, expected: &mut [u64]| {
        for _ in 0..600 {
            let page = random.below(PAGES);
            match random.below(40) {
                0 => {
                    region.discard(page * PAGE_BYTES, PAGE_BYTES).unwrap();
                    expected[page] = 0;
                }
                1..14 => {
                    expected[page] = random.below(5) as u64 * 1_000;
                    store(region, page * WORDS + 3, expected[page]);
                }
                _ => assert_eq!(load(region, page * WORDS + 3), expected[page], "{name} {page}"),
            }
        }
        for (page, expected) in expected.iter().enumerate() {
            assert_eq!(load(region, page * WORDS + 3), *expected, "{name} {page}");
        }
    };
    steps(region, expected);
    if depth == 0 {
        return;
    }
    for turn in 0..2 {
        let copy = expected.to_vec();
        let child = fork_frozen(pager, region, |pager, region| {
            let mut expected = copy;
            walk(pager, region, &mut expected, seed * 3 + turn, depth - 1, name);
            let statistics = pager.statistics();
            assert!(statistics.resident_pages <= 40, "{name}: {statistics:?}");
            assert_eq!(statistics.lost_pages, 0, "{name}: {statistics:?}");
        });
        steps(region, expected);
        join(child, name);
        steps(region, expected);
    }
}

#[test]
fn parent_and_child_go_on_and_each_finds_its_own() {
    in_child("oracle", || {
        each(|config, name| {
            for store in [
                Box::new(LocalMemoryStore::default()) as Box<dyn BackingStore>,
                Box::new(DiskStore::new("/tmp").unwrap()),
            ] {
                let pager = with_store(config.clone(), store);
                let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
                walk(&pager, &region, &mut [0; PAGES], 1, 2, name);
                let statistics = pager.statistics();
                assert!(statistics.resident_pages <= 40, "{name}: {statistics:?}");
                assert_eq!(statistics.lost_pages, 0, "{name}: {statistics:?}");
            }
        });
    });
}

#[test]
fn three_hundred_forks_in_a_row_and_a_chain_of_as_many_keep_the_memory() {
    in_child("many", || {
        let store_ = DiskStore::new("/tmp").unwrap();
        let pager = Pager::new(32, Box::new(store_)).unwrap();
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        let check_each = |region: &Region, round: usize, step: usize| {
            for page in (round % step..PAGES).step_by(step) {
                // Page n was written in the last round that is n modulo the pages.
                let last = (0..=round).rev().find(|it| it % PAGES == page);
                let expected = last.map_or(0, |it| it as u64 + 1);
                assert_eq!(load(region, page * WORDS), expected, "{round} {page}");
            }
        };
        // A child looks at some pages, others than the child before.
        let check = |region: &Region, round: usize| check_each(region, round, 7);
        for round in 0..300 {
            store(&region, round % PAGES * WORDS, round as u64 + 1);
            let child = fork_frozen(&pager, &region, |_, region| {
                store(region, round % PAGES * WORDS + 1, 9);
                check(region, round);
            });
            join(child, "in a row");
        }
        check_each(&region, 299, 1);
        assert!((0..PAGES).all(|page| load(&region, page * WORDS + 1) == 0));
        chain(&pager, &region, 300, 520, &check);
    });
}

/// Each child forks the next one.
fn chain(pager: &Pager, region: &Region, round: usize, end: usize, check: &impl Fn(&Region, usize)) {
    store(region, round % PAGES * WORDS, round as u64 + 1);
    if round == end {
        check(region, round);
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(open < 230, "{open}");
        return;
    }
    let child = fork_frozen(pager, region, |pager, region| {
        chain(pager, region, round + 1, end, check);
    });
    join(child, "in a chain");
    assert_eq!(load(region, round % PAGES * WORDS), round as u64 + 1);
}

#[test]
fn a_fork_while_other_threads_count_loses_nothing_and_is_one_moment() {
    in_child("count", || {
        each(|config, name| {
            let pager = local(config);
            let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
            let is_over = AtomicBool::new(false);
            // Each thread counts first here, then in the region, then there: at most one apart.
            let (before, after) = (words_of(PAGES), words_of(PAGES));
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (region, is_over, before, after) = (&region, &is_over, &before, &after);
                    scope.spawn(move || {
                        let mut random = Random(thread as u64 + 5);
                        while !is_over.load(Ordering::Relaxed) {
                            let page = random.below(PAGES / 3) * 3 + thread;
                            before[page].fetch_add(1, Ordering::SeqCst);
                            words(region)[page * WORDS].fetch_add(1, Ordering::SeqCst);
                            after[page].fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
                let (pager, region, before, after) = (&pager, &region, &before, &after);
                // Two threads fork at once.
                let forks: Vec<_> = (0..2)
                    .map(|_| {
                        scope.spawn(move || {
                            for _ in 0..10 {
                                let least: Vec<_> = numbers(after).collect();
                                let child = fork_frozen(pager, region, |_, region| {
                                    let most = numbers(before);
                                    for ((page, most), least) in most.enumerate().zip(&least) {
                                        let found = load(region, page * WORDS);
                                        assert!((*least..=most).contains(&found), "{page}");
                                        assert_eq!(load(region, page * WORDS), found);
                                        store(region, page * WORDS, 1 << 40);
                                    }
                                });
                                join(child, name);
                            }
                        })
                    })
                    .collect();
                forks.into_iter().for_each(|fork| fork.join().unwrap());
                is_over.store(true, Ordering::Relaxed);
            });
            for (page, count) in numbers(&after).enumerate() {
                assert_eq!(load(&region, page * WORDS), count, "{name} {page}");
            }
        });
    });
}

fn words_of(count: usize) -> Vec<std::sync::atomic::AtomicU64> {
    (0..count).map(|_| 0.into()).collect()
}

fn numbers(words: &[std::sync::atomic::AtomicU64]) -> impl Iterator<Item = u64> {
    words.iter().map(|word| word.load(Ordering::SeqCst))
}

#[test]
fn the_thread_that_froze_a_pager_may_use_the_memory_and_the_child_sees_what_was_there_before() {
    in_child("use", || {
        each(|config, name| {
            let pager = local(config);
            let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
            for page in 0..PAGES / 2 {
                store(&region, page * WORDS, 1);
            }
            let frozen = pager.freeze().unwrap();
            assert!(pager.freeze().is_err(), "{name}");
            for page in (0..PAGES).step_by(3) {
                assert_eq!(load(&region, page * WORDS), u64::from(page < PAGES / 2), "{name}");
                store(&region, page * WORDS, 2);
            }
            region.discard(0, PAGE_BYTES).unwrap();
            let child = fork_of(frozen, |_, region| {
                for page in 1..PAGES {
                    let expected = u64::from(page < PAGES / 2);
                    assert_eq!(load(region, page * WORDS), expected, "{name} {page}");
                }
            });
            join(child, name);
            for page in 1..PAGES {
                let expected = match page % 3 {
                    0 => 2,
                    _ => u64::from(page < PAGES / 2),
                };
                assert_eq!(load(&region, page * WORDS), expected, "{name} {page}");
            }
        });
    });
}

#[test]
fn a_child_has_closed_pages_and_what_is_in_them() {
    in_child("closed", || {
        each(|config, name| {
            let pager = local(config);
            let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
            for page in 0..10 {
                store(&region, page * WORDS, 7);
            }
            close_page(&region, 4, true);
            let child = fork_frozen(&pager, &region, |_, region| {
                let is_closed = |page| {
                    let address = region.range().start + page * PAGE_BYTES;
                    mapwire_host::memory::check_memory(address, PAGE_BYTES, false).is_err()
                };
                assert!(is_closed(4) && !is_closed(3) && !is_closed(5), "{name}");
                close_page(region, 4, false);
                assert_eq!(load(region, 4 * WORDS), 7, "{name}");
            });
            join(child, name);
            close_page(&region, 4, false);
            assert_eq!(load(&region, 4 * WORDS), 7, "{name}");
        });
    });
}
