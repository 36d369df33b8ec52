//! Hand-computed counts for every design.

use crate::limit::{PinLimit, PinRules};
use crate::page::{Page, PageRange, Process};
use crate::policy::Policy;
use crate::{AnyDesign, Counters, HandleCounters, Hosts, SimulatedPinner, TranslationDesign};
use std::format;
use std::vec::Vec;

/// A send from pages, or an arrival for an export, each `process:first` or `process:first+count`.
enum Step {
    Send(Process, PageRange),
    Receive(Process, PageRange),
    Export(Process, PageRange),
    Unexport(Process, PageRange),
    Reclaim,
}

/// `0:5` sends from page 5 of process 0, `0:5+3` from three pages; `r`, `e` and `u` before it receive, export and end the export;
/// `reclaim`.
fn steps(trace: &str) -> Vec<Step> {
    let step = |word: &str| {
        if word == "reclaim" {
            return Step::Reclaim;
        }
        let (process, pages) = word.split_once(':').unwrap();
        let (first, count) = pages.split_once('+').unwrap_or((pages, "1"));
        let pages = PageRange { first: Page(first.parse().unwrap()), count: count.parse().unwrap() };
        let number = Process(process.trim_start_matches(['r', 'e', 'u']).parse().unwrap());
        match &process[..1] {
            "r" => Step::Receive(number, pages),
            "e" => Step::Export(number, pages),
            "u" => Step::Unexport(number, pages),
            _ => Step::Send(number, pages),
        }
    };
    trace.split_whitespace().map(step).collect()
}

fn run(design: &str, rules: PinRules, trace: &str) -> Counters {
    let mut nic = AnyDesign::new(&crate::words::parse_design(design).unwrap()).unwrap();
    let (mut hosts, mut pinner) = (Hosts::new(), SimulatedPinner::default());
    for process in [Process(0), Process(1)] {
        hosts.open(&mut nic, process, rules).unwrap();
    }
    for step in steps(trace) {
        match step {
            Step::Send(process, range) => {
                let side = hosts.side_mut(process).unwrap();
                side.prepare(&mut nic, &mut pinner, range).unwrap();
                side.hold(range).unwrap();
                for page in range {
                    let frame = hosts.translate(&mut nic, &mut pinner, process, page);
                    assert!(!frame.unwrap().is_garbage(), "{page} in {trace}");
                }
                hosts.side_mut(process).unwrap().release(range).unwrap();
            }
            Step::Receive(process, range) => {
                for page in range {
                    let frame = hosts.translate_receive(&mut nic, &mut pinner, process, page);
                    assert!(!frame.unwrap().is_garbage(), "{page} in {trace}");
                }
            }
            Step::Export(process, range) => {
                let side = hosts.side_mut(process).unwrap();
                side.prepare_receive(&mut nic, &mut pinner, range).unwrap();
                side.hold_receive(range).unwrap();
            }
            Step::Unexport(process, range) => {
                hosts.side_mut(process).unwrap().release_receive(range).unwrap();
            }
            Step::Reclaim => hosts.reclaim(&mut nic, &mut pinner).unwrap(),
        }
    }
    let counters = nic.counters() + hosts.counters();
    assert_eq!(counters.pinned_pages, pinner.pinned_pages, "{trace}");
    counters
}

/// Lookups, check misses, NIC misses, interrupts, pins, unpins.
fn assert_counts(design: &str, rules: PinRules, trace: &str, expected: [u64; 6]) {
    let counted = run(design, rules, trace);
    let expected = Counters {
        lookups: expected[0],
        check_misses: expected[1],
        nic_misses: expected[2],
        interrupts: expected[3],
        pins: expected[4],
        unpins: expected[5],
        pinned_pages: expected[4] - expected[5],
        handles: counted.handles,
    };
    assert_eq!(counted, expected, "{design}, {rules:?}: {trace}");
}

/// Four slots, page n in slot n % 4.
const FOUR: &str = "entries=4,offset=off";

#[test]
fn without_a_limit() {
    let rules = PinRules::default();
    // Page 4 replaces page 0 and vice versa; process 1's page 1 replaces process 0's, which misses once more.
    let trace = "0:0 0:1 0:0 0:4 0:0 0:1 1:1 0:1 1:3 1:3";
    let of = |design: &str| format!("{design},{FOUR}");
    assert_counts(&of("hierarchical"), rules, trace, [10, 5, 7, 0, 5, 0]);
    // Each miss interrupts; evicted pages are unpinned: 0, 4, then page 1 of either process.
    assert_counts(&of("interrupt"), rules, trace, [10, 0, 7, 7, 7, 4]);
    // Two sets of two: 0 and 4 fit in one; 1 and process 1's 1 and 3 compete for the other: 1, 1', 3'.
    let two_way = "hierarchical,entries=4,ways=2,offset=off";
    assert_counts(two_way, rules, trace, [10, 5, 5, 0, 5, 0]);
    // Indexes by order of pinning: 0 → 0, 1 → 1, 4 → 2 in process 0; 1 → 0, 3 → 1 in process 1. In places 0 to 2: 0, 1, hit 0, 4,
    // hit 0, hit 1, 1' takes place 0, hit 1, 3' takes place 1, hit.
    assert_counts(&of("shared-cache"), rules, trace, [10, 5, 5, 0, 5, 0]);
    assert_counts("per-process,entries=4", rules, trace, [10, 5, 0, 0, 5, 0]);
    // Two lines of two, direct-mapped: (0 1), hit, hit, (4 5) instead, (0 1), hit, process 1's (0 1) instead, (0 1), (2 3)', hit.
    let handles = "dynamic-handle,entries=4,ways=1,line=2";
    assert_counts(handles, rules, trace, [10, 0, 6, 6, 8, 0]);
    let expected = HandleCounters { send_cold_misses: 4, send_other_misses: 2, ..HandleCounters::default() };
    assert_eq!(run(handles, rules, trace).handles, expected);
}

#[test]
fn under_a_limit() {
    let rules = PinRules::default().with_limit(PinLimit::Pages(2));
    let trace = "0:0 0:1 0:0 0:2 0:1 0:2 0:0";
    // LRU: 0 1, touch 0, 2 for 1, 1 for 0, touch 2, 0 for 1. Each renewed pin is a NIC miss too: an unpin invalidates.
    assert_counts("hierarchical", rules, trace, [7, 5, 5, 0, 5, 3]);
    assert_counts("shared-cache", rules, trace, [7, 5, 5, 0, 5, 3]);
    assert_counts("per-process", rules, trace, [7, 5, 0, 0, 5, 3]);
    assert_counts("per-process,entries=2", PinRules::default(), trace, [7, 5, 0, 0, 5, 3]);
    // The host sees misses only: 0 1, 2 for 0, the next three hit, 0 for 1.
    assert_counts("interrupt", rules, "0:0 0:1 0:0 0:2 0:1 0:2 0:1 0:0", [8, 0, 4, 4, 4, 2]);
    // Pages that must leave the cache anyway are unpinned first: 4 replaces 0, not 1, and then the other way round.
    let interrupt = format!("interrupt,{FOUR}");
    assert_counts(&interrupt, rules, "0:0 0:1 0:4 0:1 0:0 0:1", [6, 0, 4, 4, 4, 2]);
    // A line of four exceeds the limit: only as many of its pages as fit, the wanted one among them.
    assert_counts("dynamic-handle,line=4", rules, "0:0 0:1 0:3", [3, 0, 2, 2, 3, 1]);
}

#[test]
fn by_each_policy() {
    // Before page 3 is needed, 0, 1 and 2 have been used 3, 1 and 2 times, in the order 1 0 2.
    let trace = "0:0 0:1 0:0 0:2 0:0 0:2 0:3 0:0 0:1 0:2";
    for (policy, pins) in [
        (Policy::Lru, 6), // 3 for 1, 0 stays, 1 for 2, 2 for 3
        (Policy::Mru, 5), // 3 for 2, 0 and 1 stay, 2 for 1
        (Policy::Lfu, 5), // 3 for 1, 0 stays, 1 for 3, 2 stays
        (Policy::Mfu, 6), // 3 for 0, 0 for 2, 1 stays, 2 for 1
    ] {
        let limit = PinLimit::Pages(3);
        let rules = PinRules::default().with_limit(limit).with_policy(policy);
        let counts = [10, pins, pins, 0, pins, pins - 3];
        assert_counts("hierarchical", rules, trace, counts);
        let counts = [10, pins, 0, 0, pins, pins - 3];
        assert_counts("per-process", rules, trace, counts);
    }
}

#[test]
fn with_pages_ahead() {
    let rules = PinRules::default().with_prepin_pages(4);
    // 0 pins up to 3, 4 up to 7; the transfer of 9 to 14 finds 9 and 13 missing.
    let trace = "0:0 0:1 0:2 0:3 0:4 0:2+3 0:9+6";
    assert_counts("hierarchical", rules, trace, [14, 4, 11, 0, 16, 0]);
    // With what follows fetched on a miss: 0 to 3, 4 to 7, 9 to 12, 13 to 16.
    assert_counts("hierarchical,prefetch=4", rules, trace, [14, 4, 4, 0, 16, 0]);
    assert_counts("shared-cache,prefetch=4", rules, trace, [14, 4, 4, 0, 16, 0]);
    // With lines: 0 to 3, 4 to 7, (8) 9 to 11, 12 to 15.
    assert_counts("hierarchical,line=4", rules, trace, [14, 4, 4, 0, 16, 0]);
    // There is room for only one page besides each pair: 0 1; 2 for 0 and 3 for 1; 0 and 1 for those.
    let two = rules.with_limit(PinLimit::Pages(2));
    assert_counts("hierarchical", two, "0:0 0:2 0:3 0:0", [4, 3, 4, 0, 6, 4]);
}

#[test]
fn with_many_pages_an_interrupt() {
    let rules = PinRules::default();
    // 0 to 3; hits; 4 to 7; 2 and 3 of process 1, which has a cache of its own.
    let trace = "0:0 0:1 0:3 0:5+2 1:2 1:5 0:3";
    let vmmc = "interrupt,variant=vmmc,fill=4";
    assert_counts(vmmc, rules, trace, [8, 0, 3, 3, 12, 0]);
    // Four entries, two sets of two: 0 to 3; 5 to 8 evict all of them. Then 3 and 4 evict 7 and 8; 5 and 6 are there.
    let small = "interrupt,variant=vmmc,fill=4,entries=4";
    assert_counts(small, rules, trace, [8, 0, 4, 4, 14, 6]);
}

#[test]
fn of_receives() {
    let rules = PinRules::default();
    // Pages 4 to 7 are exported, and received; page 5 is also sent from; page 9 replaces it.
    let trace = "e0:4+4 r0:4+4 r0:4 0:5 0:9 u0:4+4 reclaim";
    assert_counts(&std::format!("hierarchical,{FOUR}"), rules, trace, [7, 5, 5, 0, 5, 0]);
    assert_counts("per-process", rules, trace, [7, 5, 0, 0, 5, 0]);
    // Receives need no cache. 5 is sent from: a miss. 9 evicts it, but it stays pinned until the export ends, as do the others.
    assert_counts(&std::format!("interrupt,{FOUR}"), rules, trace, [7, 0, 2, 2, 5, 4]);
    // Nothing is pinned for an export. Lines 4–5, 6–7, 4–5 again is there, 8–9 replaces 4–5.
    let handles = "dynamic-handle,entries=4,ways=1,line=2";
    assert_counts(handles, rules, trace, [7, 0, 3, 3, 6, 0]);
    let expected = HandleCounters { send_cold_misses: 1, receive_cold_misses: 2, ..HandleCounters::default() };
    assert_eq!(run(handles, rules, trace).handles, expected);
}

#[test]
fn above_the_high_water_mark() {
    // A cache of two lines of two, a mark of four pages: lines 0, 2, 4 (for 0), 6 (for 2) and 4 again. Of eight pages, four are in
    // the cache and stay; the others have left it.
    let design = "dynamic-handle,entries=4,ways=1,line=2,high-water=16KiB";
    let trace = "0:0 0:2 0:4 0:6 0:4";
    assert_counts(design, PinRules::default(), trace, [5, 0, 4, 4, 8, 0]);
    let reclaimed = format!("{trace} reclaim 0:6 0:2 reclaim");
    // 2 and 3 are pinned again and replace 6 and 7 in the cache, which are then above the mark.
    assert_counts(design, PinRules::default(), &reclaimed, [7, 0, 5, 5, 10, 6]);
}

#[test]
fn with_tables_that_are_paged_out() {
    // One of the two second-level tables is in memory, and the cache has one slot: each lookup but the repeated ones needs the absent
    // table.
    let trace = "0:0 0:1024 0:0 0:0 0:1025 0:1024 0:1";
    let design = "hierarchical,entries=1,tables=1";
    // Pinning pages in the host's own tables brings them in without an interrupt: at 0, 1024, 1025 and 1.
    assert_counts(design, PinRules::default(), trace, [7, 4, 6, 1, 4, 0]);
}

#[test]
fn every_structure_in_nic_memory_is_listed_with_its_bytes() {
    for (design, expected) in [
        (
            "hierarchical",
            &[
                ("shared translation cache", 131_072),
                ("translation directories", 2048),
                ("translation process list", 64),
            ][..],
        ),
        ("hierarchical,line=64", &[("shared translation cache", 65_536 + 128 * 16)]),
        ("shared-cache,entries=1K,ways=8", &[("shared translation cache", 16_384)]),
        ("per-process,entries=3000", &[("translation tables", 2 * 24_000)]),
        ("interrupt,entries=1K", &[("translation cache", 16_384), ("translations of exports", 2048)]),
        ("interrupt,variant=vmmc", &[("translation cache", 2 * 32_768)]),
        ("dynamic-handle", &[("VMH cache", 131_072 + 256 * 16), ("CBH cache", 1024 * 56), ("PCH cache", 64 * 64)]),
    ] {
        let mut nic = AnyDesign::new(&crate::words::parse_design(design).unwrap()).unwrap();
        nic.open(Process(0)).unwrap();
        nic.open(Process(1)).unwrap();
        let listed: Vec<_> = nic.nic_memory().collect();
        for row in expected {
            assert!(listed.contains(row), "{design}: no {row:?} in {listed:?}");
        }
    }
}
