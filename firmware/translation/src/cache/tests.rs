use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

#[test]
fn the_default_cache_takes_128_kibibytes() {
    let bytes = |config| SharedCache::new(config).unwrap().memory_bytes();
    let config = CacheConfig::default();
    assert_eq!(bytes(config), 128 * 1024);
    assert_eq!(bytes(config.with_ways(4)), 128 * 1024);
    // 8 bytes an entry and 16 for each of 128 lines.
    assert_eq!(bytes(config.with_line_entries(64)), 64 * 1024 + 2048);
}

#[test]
fn a_page_number_too_wide_never_aliases_another_process() {
    for ways in [1, 2] {
        let config = CacheConfig::default().with_ways(ways).with_offset_per_process(false);
        let mut cache = SharedCache::new(config).unwrap();
        cache.fill(Process(1), Page(7), Frame(70));
        let alias = Page(PAGE_NUMBER_END | 7);
        assert_eq!(cache.lookup(Process(0), alias), None);
        assert!(!cache.invalidate(Process(0), alias));
        cache.fill(Process(0), alias, Frame(66));
        assert_eq!(cache.lookup(Process(1), Page(7)), Some(Frame(70)));
        assert_eq!(cache.lookup(Process(u16::MAX), Page(u64::MAX)), None);
    }
}

#[test]
fn in_a_set_the_line_used_least_recently_makes_room() {
    let config = CacheConfig::default().with_entries(8).with_ways(2);
    let mut cache = SharedCache::new(config.with_offset_per_process(false)).unwrap();
    let process = Process(1);
    // Pages 0, 4, 8 share a set of two.
    cache.fill(process, Page(0), Frame(10));
    cache.fill(process, Page(4), Frame(14));
    assert_eq!(cache.lookup(process, Page(0)), Some(Frame(10)));
    let mut gone = Vec::new();
    cache.fill_evicting(process, Page(8), Frame(18), |process, page| {
        gone.push((process, page));
    });
    assert_eq!(gone, [(process, Page(4))]);
    assert_eq!(cache.peek(process, Page(0)), Some(Frame(10)));
    // Only a lookup is a use: the peek has not saved page 0.
    cache.fill(process, Page(12), Frame(22));
    assert_eq!(cache.lookup(process, Page(0)), None);
    assert_eq!(cache.lookup(process, Page(8)), Some(Frame(18)));
}

#[test]
fn a_line_comes_and_goes_as_one_without_pages_that_have_no_frame() {
    let config = CacheConfig::default().with_entries(8).with_line_entries(4);
    let mut cache = SharedCache::new(config.with_offset_per_process(false)).unwrap();
    let process = Process(0);
    let frame_of = |page: Page| match page.0 {
        1 => Frame::GARBAGE,
        n => Frame(n + 10),
    };
    cache.fill_line(process, Page(2), frame_of, |_, _| ());
    assert_eq!(cache.lookup(process, Page(0)), Some(Frame(10)));
    assert_eq!(cache.lookup(process, Page(1)), None);
    assert_eq!(cache.lookup(process, Page(3)), Some(Frame(13)));
    let mut gone = Vec::new();
    cache.fill_line(process, Page(9), frame_of, |_, page| gone.push(page.0));
    assert_eq!(gone, [0, 2, 3]);
    assert_eq!(cache.lookup(process, Page(3)), None);
    cache.fill_line(process, Page(5), |_| Frame::GARBAGE, |_, _| ());
    assert_eq!(cache.lookup(process, Page(5)), None);
}

/// Each set as a list of lines, most recently used first; each line as a map from page to frame.
struct Naive {
    config: CacheConfig,
    sets: BTreeMap<usize, Vec<Line>>,
}

type Line = (Process, u64, BTreeMap<Page, Frame>);

impl Naive {
    fn set(&mut self, process: Process, page: Page) -> (&mut Vec<Line>, u64) {
        let line = page.0 / self.config.line_entries as u64;
        let set = self.config.set_of(process, page);
        (self.sets.entry(set).or_default(), line)
    }

    fn lookup(&mut self, process: Process, page: Page) -> Option<Frame> {
        let (set, line) = self.set(process, page);
        let at = set.iter().position(|it| (it.0, it.1) == (process, line))?;
        let frame = *set[at].2.get(&page)?;
        let used = set.remove(at);
        set.insert(0, used);
        Some(frame)
    }

    /// Returns what was evicted.
    fn fill(&mut self, process: Process, pages: &[(Page, Frame)]) -> Vec<(Process, Page)> {
        let ways = self.config.ways;
        let (set, line) = self.set(process, pages[0].0);
        let at = set.iter().position(|it| (it.0, it.1) == (process, line));
        let mut taken = at.map_or((process, line, BTreeMap::new()), |at| set.remove(at));
        taken.2.extend(pages.iter().copied());
        set.insert(0, taken);
        if set.len() <= ways {
            return Vec::new();
        }
        let gone = set.pop().unwrap();
        gone.2.keys().map(|page| (gone.0, *page)).collect()
    }

    fn invalidate(&mut self, process: Process, page: Page) -> bool {
        let (set, line) = self.set(process, page);
        let there = set.iter_mut().find(|it| (it.0, it.1) == (process, line));
        let was_there = there.is_some_and(|it| it.2.remove(&page).is_some());
        set.retain(|it| !it.2.is_empty());
        was_there
    }
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn it_agrees_with_a_list_for_each_set(
        (shift, line_shift, way_shift) in (0u32..7).prop_flat_map(|shift| {
            (Just(shift), 0..=shift).prop_flat_map(|(shift, line)| (Just(shift), Just(line), 0..=shift - line))
        }),
        offset in any::<bool>(),
        ops in prop::collection::vec((0u8..12, 0u16..4, 0u64..80, 0u64..1000), 0..300),
    ) {
        let config = CacheConfig::default()
            .with_entries(1 << shift)
            .with_line_entries(1 << line_shift)
            .with_ways(1 << way_shift)
            .with_offset_per_process(offset);
        let mut cache = SharedCache::new(config).unwrap();
        let mut naive = Naive { config, sets: BTreeMap::new() };
        for (op, process, page, frame) in ops {
            let (process, page, frame) = (Process(process), Page(page), Frame(frame));
            match op {
                0..4 => prop_assert_eq!(cache.lookup(process, page), naive.lookup(process, page)),
                4..6 => {
                    cache.fill(process, page, frame);
                    naive.fill(process, &[(page, frame)]);
                }
                6..8 => {
                    let mut gone = Vec::new();
                    cache.fill_evicting(process, page, frame, |process, page| gone.push((process, page)));
                    prop_assert_eq!(gone, naive.fill(process, &[(page, frame)]));
                }
                8..10 => {
                    // Every third page of the line has no frame.
                    let frame_of = |page: Page| if page.0 % 3 == 1 { Frame::GARBAGE } else { Frame(page.0 ^ frame.0) };
                    let mut gone = Vec::new();
                    cache.fill_line(process, page, frame_of, |process, page| gone.push((process, page)));
                    let line = cache.line_of(page).iter().map(|page| (page, frame_of(page)));
                    let whole: Vec<_> = line.filter(|(_, frame)| !frame.is_garbage()).collect();
                    if whole.is_empty() {
                        prop_assert_eq!(gone, []);
                    } else {
                        // The former content of the line is gone.
                        cache.line_of(page).iter().for_each(|page| {
                            if let Some(line) = naive.set(process, page).0.iter_mut().find(|it| it.2.contains_key(&page) && it.0 == process) {
                                line.2.remove(&page);
                            }
                        });
                        prop_assert_eq!(gone, naive.fill(process, &whole));
                    }
                }
                10 => prop_assert_eq!(cache.invalidate(process, page), naive.invalidate(process, page)),
                _ => {
                    cache.invalidate_process(process);
                    naive.sets.values_mut().for_each(|set| set.retain(|line| line.0 != process));
                }
            }
        }
        let kept: usize = naive.sets.values().flatten().map(|line| line.2.len()).sum();
        let there = (0..4).flat_map(|n| (0..128).map(move |page| (Process(n), Page(page))));
        let there = there.filter(|(process, page)| cache.peek(*process, *page).is_some());
        prop_assert_eq!(there.count(), kept);
    }
}
