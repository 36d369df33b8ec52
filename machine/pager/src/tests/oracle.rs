//! Random and regular walks over regions larger than the limit.

use std::sync::atomic::Ordering;

use super::memory::{WORDS, load, store, words};
use super::*;

const PAGES: usize = 256;

/// Random loads and stores of words, each owned by one thread; and pages in order, back and forth.
fn walk(region: &Region, thread: usize, threads: usize, steps: usize, name: &str) {
    let mut random = Random(thread as u64 + 1);
    let mut expected = vec![0_u64; PAGES];
    // One word a page for each thread.
    let word = |page: usize| page * WORDS + thread * (WORDS / threads) + 3;
    for step in 0..steps {
        let page = match step / 500 % 4 {
            0 => random.below(PAGES),
            1 => step % PAGES,
            2 => PAGES - 1 - step % PAGES,
            _ => step * 3 % PAGES,
        };
        if random.below(3) == 0 {
            expected[page] += 1;
            store(region, word(page), expected[page]);
        } else {
            let found = load(region, word(page));
            assert_eq!(found, expected[page], "{name}: thread {thread}, step {step}, page {page}");
        }
    }
    for (page, expected) in expected.iter().enumerate() {
        assert_eq!(load(region, word(page)), *expected, "{name}, page {page}");
    }
}

#[test]
fn one_thread_finds_what_it_stored() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        walk(&region, 0, 1, 20_000, name);
        let statistics = pager.statistics();
        assert!(statistics.fetched_pages > 100, "{name}: {statistics:?}");
        assert!(statistics.clean_evictions > 10, "{name}: {statistics:?}");
        assert!(statistics.dirty_evictions > 10, "{name}: {statistics:?}");
        assert!(statistics.resident_pages <= 32, "{name}: {statistics:?}");
        assert_eq!(statistics.store_failures, 0);
    });
}

#[test]
fn several_threads_find_what_each_stored() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let region = &region;
                scope.spawn(move || walk(region, thread, 4, 5_000, name));
            }
        });
        let resident = pager.statistics().resident_pages;
        assert!(resident <= 64, "{name}: {resident}");
    });
}

#[test]
fn no_increment_is_lost_while_pages_are_evicted() {
    each(|config, name| {
        let pager = local(config);
        let region = pager.map(PAGES * PAGE_BYTES, None).unwrap();
        let count: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let region = &region;
                    scope.spawn(move || {
                        let mut random = Random(thread + 77);
                        let mut counts = vec![0; PAGES];
                        for _ in 0..1000 {
                            let page = random.below(PAGES);
                            for _ in 0..random.below(50) + 1 {
                                words(region)[page * WORDS].fetch_add(1, Ordering::Relaxed);
                                counts[page] += 1;
                            }
                        }
                        counts
                    })
                })
                .collect();
            let mut sums = vec![0; PAGES];
            for thread in threads {
                for (sum, count) in sums.iter_mut().zip(thread.join().unwrap()) {
                    *sum += count;
                }
            }
            sums
        });
        for (page, count) in count.iter().enumerate() {
            assert_eq!(load(&region, page * WORDS), *count, "{name}, page {page}");
        }
        assert!(pager.statistics().fetched_pages > 0, "{name}");
    });
}

#[test]
fn several_regions_share_the_limit_and_go_one_by_one() {
    each(|config, name| {
        let pager = local(config);
        let regions: Vec<_> = (0..3).map(|_| pager.map(100 * PAGE_BYTES, None).unwrap()).collect();
        for round in 0..3 {
            for page in 0..100 {
                for (index, region) in regions.iter().enumerate() {
                    let word = page * WORDS;
                    let expected = if round == 0 { 0 } else { round * 1000 + index as u64 };
                    assert_eq!(load(region, word), expected, "{name} {page} {index}");
                    store(region, word, (round + 1) * 1000 + index as u64);
                }
            }
        }
        assert!(pager.statistics().resident_pages <= 32, "{name}");
        for region in regions {
            assert_eq!(load(&region, 0) / 1000, 3);
            drop(region);
        }
        let statistics = pager.statistics();
        assert_eq!(statistics.mapped_pages, 0, "{name}");
        assert_eq!(statistics.stored_pages, 0, "{name}");
        assert!(pager.statistics().resident_pages <= 32, "{name}");
        let again = pager.map(100 * PAGE_BYTES, None).unwrap();
        assert!((0..100).all(|page| load(&again, page * WORDS) == 0));
    });
}
