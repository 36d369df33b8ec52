//! Engines against plain lists, on random operations.

use std::collections::{HashMap, HashSet};

use mapwire_translation::{CacheConfig, PinError, Process};
use mapwire_wire::TraceOp;
use proptest::prelude::*;

use super::pins::{NO_PAGE, Step};
use super::*;
use crate::counts::PathMisses;
use crate::decode::{Decoder, RECEIVE, Selection};

/// (process, operation, first page, pages)
type Op = (u16, bool, u64, u64);

fn ops(pages: u64) -> impl Strategy<Value = Vec<Op>> {
    let count = prop_oneof![5 => Just(1_u64), 1 => 2_u64..6];
    prop::collection::vec((0_u16..3, prop::bool::weighted(0.2), 0..pages, count), 0..300)
}

fn decoded(ops: &[Op]) -> Decoder {
    let mut decoder = Decoder::new(Selection::ALL);
    decode(&mut decoder, ops);
    decoder
}

fn decode(decoder: &mut Decoder, ops: &[Op]) {
    decoder.clear();
    for (process, receive, first, count) in ops {
        let op = if *receive { TraceOp::Receive } else { TraceOp::Send };
        decoder.operation(0, Process(*process), op, false, first << 12, count << 12).unwrap();
    }
}

/// Misses of one shape, by lists; pages of a line that are not pinned yet when it is filled are missing from it.
fn misses_of_lists(ops: &[Op], shape: Shape, line: u64, offset: bool, whole_lines: bool) -> (PathMisses, u64) {
    let config = CacheConfig::default()
        .with_entries(shape.sets * shape.ways * line as usize)
        .with_ways(shape.ways)
        .with_line_entries(line as usize)
        .with_offset_per_process(offset);
    let mut sets: HashMap<usize, Vec<(u16, u64)>> = HashMap::new();
    let mut valid: HashMap<(u16, u64), HashSet<u64>> = HashMap::new();
    let mut pinned: HashSet<(u16, u64)> = HashSet::new();
    let mut misses = PathMisses::default();
    for (process, receive, first, count) in ops {
        pinned.extend((*first..first + count).map(|page| (*process, page)));
        for page in *first..first + count {
            let tag = (*process, page / line);
            let set = sets.entry(config.set_of(Process(*process), mapwire_translation::Page(page))).or_default();
            let there = set.iter().position(|it| *it == tag);
            there.map(|at| set.remove(at));
            set.insert(0, tag);
            set.truncate(shape.ways);
            let hit = there.is_some() && (whole_lines || valid[&tag].contains(&page));
            if !hit {
                misses.count(*receive, false);
                let pages =
                    (page / line * line..page / line * line + line).filter(|page| pinned.contains(&(*process, *page)));
                valid.insert(tag, pages.collect());
            }
        }
    }
    (misses, sets.values().map(|set| set.len() as u64).sum())
}

fn shapes() -> Vec<Shape> {
    let of = |sets, ways| Shape { sets, ways };
    vec![of(1, 8), of(2, 4), of(4, 1), of(4, 2), of(4, 4), of(8, 2), of(16, 1), of(16, 8), of(32, 4), of(64, 1)]
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn a_pass_over_many_shapes_agrees_with_a_list_for_each_set(
        ops in ops(70),
        line_shift in 0_u32..4,
        offset in any::<bool>(),
        whole_lines in any::<bool>(),
        pieces in 1_usize..40,
        shapes in prop::sample::subsequence(shapes(), 1..10),
    ) {
        let line = 1 << line_shift;
        let mut decoder = Decoder::new(Selection::ALL);
        let mut keys = Keys::new(line as usize, offset, 1);
        let mut levels = Levels::new(&shapes, !whole_lines);
        let mut stream = KeyStream::default();
        let mut cold = PathMisses::default();
        for piece in ops.chunks(ops.len() / pieces + 1) {
            decode(&mut decoder, piece);
            for node in decoder.nodes() {
                prop_assert!(keys.extend(&node.pages));
                keys.stream(&node.chunk, &mut stream);
                levels.run(&stream, keys.most_slot());
                cold += stream.cold;
            }
        }
        for shape in shapes {
            let (misses, resident) = misses_of_lists(&ops, shape, line, offset, whole_lines);
            prop_assert_eq!(levels.misses(shape), Some(misses), "{:?}", shape);
            prop_assert_eq!(levels.resident(shape), Some(resident), "{:?}", shape);
        }
        let lines: HashSet<_> =
            ops.iter().flat_map(|(process, _, first, count)| (*first..first + count).map(move |page| (*process, page / line))).collect();
        prop_assert_eq!(cold.sum(), lines.len() as u64);
        prop_assert_eq!(levels.misses(Shape { sets: 3, ways: 1 }), None);
    }

    #[test]
    fn pinning_under_a_limit_agrees_with_a_list_of_pages_by_last_use(
        ops in ops(40),
        limit in 5_u64..30,
        pieces in 1_usize..4,
    ) {
        let mut decoder = Decoder::new(Selection::ALL);
        let mut keys = Keys::new(1, false, 1);
        let mut pins = Pins::new(limit);
        let mut all = Vec::new();
        for piece in ops.chunks(ops.len() / pieces + 1) {
            decode(&mut decoder, piece);
            for node in decoder.nodes() {
                keys.extend(&node.pages);
                pins.run(&node.chunk, &node.pages, &keys, |steps| all.extend_from_slice(steps)).unwrap();
            }
        }
        let (mut expected, mut counts) = (Vec::new(), PinCounts::default());
        // Pages of each process, the one used last first.
        let mut pinned: HashMap<u16, Vec<u64>> = HashMap::new();
        let key = |process: u16, page: u64| {
            keys.key(decoder.nodes()[0].pages.find(Process(process), mapwire_translation::Page(page)).unwrap())
        };
        let mut last = 0;
        for (process, receive, first, count) in &ops {
            let list = pinned.entry(*process).or_default();
            let (old, new): (Vec<u64>, Vec<u64>) = (*first..first + count).partition(|page| list.contains(page));
            for page in old {
                list.retain(|it| *it != page);
                list.insert(0, page);
            }
            let mut unpinned = Vec::new();
            while list.len() as u64 + new.len() as u64 > limit {
                counts.unpins += 1;
                unpinned.push(key(*process, list.pop().unwrap()));
            }
            counts.check_misses += new.len() as u64;
            for page in new {
                list.insert(0, page);
            }
            let flag = if *receive { RECEIVE } else { 0 };
            // In any order; but the page looked up before leaves last.
            if let Some(at) = unpinned.iter().position(|it| *it == last) {
                let end = unpinned.len() - 1;
                unpinned.swap(at, end);
            }
            let mut unpinned_last = unpinned.pop().unwrap_or(NO_PAGE);
            expected.extend(unpinned.into_iter().map(|unpinned| Step { unpinned, looked_up: last }));
            for page in *first..first + count {
                last = key(*process, page);
                expected.push(Step { unpinned: unpinned_last, looked_up: last | flag });
                unpinned_last = NO_PAGE;
            }
        }
        prop_assert_eq!(all, expected);
        prop_assert_eq!(pins.counts(), counts);
    }
}

/// Misses of one shape under a limit with LRU, by lists: one for each process and one for each set.
fn misses_of_limited_lists(ops: &[Op], limit: u64, shape: Shape) -> PathMisses {
    let config = CacheConfig::default().with_entries(shape.sets * shape.ways).with_ways(shape.ways);
    let mut sets: HashMap<usize, Vec<(u16, u64)>> = HashMap::new();
    let mut pinned: HashMap<u16, Vec<u64>> = HashMap::new();
    let mut misses = PathMisses::default();
    for (process, receive, first, count) in ops {
        let pages = *first..first + count;
        let list = pinned.entry(*process).or_default();
        let (old, new): (Vec<u64>, Vec<u64>) = pages.clone().partition(|page| list.contains(page));
        list.retain(|page| !old.contains(page));
        old.iter().for_each(|page| list.insert(0, *page));
        while (list.len() + new.len()) as u64 > limit {
            let gone = (*process, list.pop().unwrap());
            sets.values_mut().for_each(|set| set.retain(|it| *it != gone));
        }
        new.iter().for_each(|page| list.insert(0, *page));
        for page in pages {
            let at = config.set_of(Process(*process), mapwire_translation::Page(page));
            let set = sets.entry(at).or_default();
            match set.iter().position(|it| *it == (*process, page)) {
                Some(there) => drop(set.remove(there)),
                None => misses.count(*receive, false),
            }
            set.insert(0, (*process, page));
            set.truncate(shape.ways);
        }
    }
    misses
}

/// Those of `Limited`, which takes the operations in so many pieces.
fn misses_of_limited(ops: &[Op], limit: u64, shape: Shape, pieces: usize) -> PathMisses {
    let mut decoder = Decoder::new(Selection::ALL);
    let mut keys = Keys::new(1, true, 1);
    let mut pins = Pins::new(limit);
    let mut cache = Limited::new(shape);
    for piece in ops.chunks(ops.len() / pieces + 1) {
        decode(&mut decoder, piece);
        for node in decoder.nodes() {
            keys.extend(&node.pages);
            let take = |steps: &[Step]| cache.run(steps, keys.most_slot());
            pins.run(&node.chunk, &node.pages, &keys, take).unwrap();
        }
    }
    cache.misses()
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn caches_under_a_limit_miss_as_often_as_lists(
        ops in ops(24),
        limit in 1_u64..9,
        sets in 0_u32..5,
        ways in 0_u32..4,
        pieces in 1_usize..4,
    ) {
        let ops: Vec<Op> = ops.into_iter().map(|(a, b, c, count)| (a, b, c, count.min(limit))).collect();
        let shape = Shape { sets: 1 << sets, ways: 1 << ways };
        prop_assert_eq!(misses_of_limited(&ops, limit, shape, pieces), misses_of_limited_lists(&ops, limit, shape));
    }
}

#[test]
fn long_traces_under_a_limit_fill_blocks_and_queues() {
    let mut state = 7_u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for limit in [1, 2, 5, 60, 200] {
        let mut op = |_| {
            let count = if below(4) == 0 { 1 + below(limit.min(7)) } else { 1 };
            let span = if below(2) == 0 { 90 } else { 400 };
            (below(3) as u16, below(5) == 0, below(span), count)
        };
        let ops: Vec<Op> = (0..20_000).map(&mut op).collect();
        for (sets, ways) in [(1, 8), (16, 1), (8, 2)] {
            let shape = Shape { sets, ways };
            let expected = misses_of_limited_lists(&ops, limit, shape);
            assert_eq!(misses_of_limited(&ops, limit, shape, 3), expected, "{limit} {shape:?}");
        }
    }
}

#[test]
fn the_page_looked_up_last_may_leave_before_others() {
    // Of the second operation, page 1 was pinned already: page 0 is then the one used last, and page 1 the one looked up last.
    let ops = [(0, false, 1, 1), (0, false, 0, 2), (0, false, 10, 4)];
    for (sets, ways) in [(1, 8), (16, 1), (4, 4)] {
        let misses = misses_of_limited(&ops, 4, Shape { sets, ways }, 1);
        assert_eq!(misses.sum(), 6);
    }
}

#[test]
fn an_operation_that_no_limit_allows_is_an_error() {
    let decoder = decoded(&[(0, false, 0, 2), (0, false, 0, 4)]);
    let node = &decoder.nodes()[0];
    let mut keys = Keys::new(1, true, 1);
    keys.extend(&node.pages);
    let error = Pins::new(3).run(&node.chunk, &node.pages, &keys, |_| ()).unwrap_err();
    assert_eq!(error, PinError::LimitTooSmall { needed_pages: 4, limit_pages: 3, held_pages: 0 });
}

#[test]
fn queues_that_fill_up_are_moved_together() {
    let ops: Vec<Op> = (0..100_000_u64).map(|n| (0, false, n * n % 7919 % 90, 1)).collect();
    let decoder = decoded(&ops);
    let node = &decoder.nodes()[0];
    let mut pins = Pins::new(60);
    let mut out = Vec::new();
    let mut keys = Keys::new(1, true, 1);
    keys.extend(&node.pages);
    pins.run(&node.chunk, &node.pages, &keys, |steps| out.extend_from_slice(steps)).unwrap();
    let mut list: Vec<u32> = Vec::new();
    let unpinned = out.iter().map(|step| step.unpinned);
    let mut unpins = unpinned.filter(|key| *key != NO_PAGE);
    for (_, _, page, _) in &ops {
        let page = mapwire_translation::Page(*page);
        let id = keys.key(node.pages.find(Process(0), page).unwrap());
        match list.iter().position(|it| *it == id) {
            Some(at) => drop(list.remove(at)),
            None if list.len() == 60 => assert_eq!(unpins.next(), list.pop()),
            None => {}
        }
        list.insert(0, id);
    }
    assert_eq!(unpins.next(), None);
}

#[test]
fn lines_beyond_what_keys_can_tell_apart_are_noticed() {
    let count = (1 << super::keys::SLOT_BITS) - 1;
    let ops: Vec<Op> = (0..count).map(|n| (0, false, n * 4, 1)).collect();
    let decoder = decoded(&ops);
    let mut keys = Keys::new(1, false, 4);
    assert!(keys.extend(&decoder.nodes()[0].pages));
    let mut more = ops;
    more.push((0, false, count * 4, 1));
    assert!(!keys.extend(&decoded(&more).nodes()[0].pages));
}

#[test]
fn eight_ways_hold_more_lines_of_a_set_than_bytes_can_number() {
    let ops: Vec<Op> = (0..5_000_u64).map(|n| (0, n % 3 == 0, n * n % (40 + n / 8), 1)).collect();
    let shape = Shape { sets: 1, ways: 8 };
    let (expected, _) = misses_of_lists(&ops, shape, 1, false, true);
    let mut decoder = Decoder::new(Selection::ALL);
    let mut keys = Keys::new(1, false, 1);
    let mut pins = Pins::new(1000);
    let mut cache = Limited::new(shape);
    let mut largest = Vec::new();
    for piece in ops.chunks(1000) {
        decode(&mut decoder, piece);
        let node = &decoder.nodes()[0];
        assert!(keys.extend(&node.pages));
        largest.push(keys.most_slot());
        pins.run(&node.chunk, &node.pages, &keys, |steps| cache.run(steps, keys.most_slot())).unwrap();
    }
    assert!(largest[0] < 256 && largest[4] > 256, "{largest:?}");
    assert_eq!(cache.misses(), expected);
}
