//! Fast engines against the firmware's code, on random traces; and golden counts.

use mapwire_settings::parse_design;
use mapwire_translation::{
    CacheConfig, DesignConfig, DynamicHandleConfig, HierarchicalConfig, IndexedConfig, InterruptConfig,
    PerProcessConfig, PinLimit, PinRules, Policy,
};
use mapwire_wire::TraceOp;
use proptest::prelude::*;

use super::*;
use crate::choosers::{Chooser, Learner, UnpinPolicy};
use crate::counts::{Cause, PathMisses};
use crate::testing::{Record, blocks};

fn study(
    records: &[Record],
    configurations: &[Configuration],
    causes: bool,
    mut allowed: Allowed,
) -> Result<Findings, StudyError> {
    let request = Request { configurations: configurations.to_vec(), selection: Selection::ALL, causes, threads: 2 };
    loop {
        let mut study = Study::new(request.clone(), allowed)?;
        let taken = blocks(records, |block| study.take(block).and_then(|()| study.run_chunk()));
        match taken.and_then(|()| study.finish()) {
            Err(StudyError::Again(less)) => {
                assert_ne!(less, allowed);
                allowed = less;
            }
            other => return other,
        }
    }
}

/// Why the first configuration that fails cannot do what the trace does.
fn failure(records: &[Record], configurations: &[Configuration], allowed: Allowed) -> String {
    let found = study(records, configurations, false, allowed).unwrap();
    found.failures[0].1.clone()
}

fn configurations() -> impl Strategy<Value = Vec<Configuration>> {
    let cache = (0_u32..6, 0_u32..4, 0_u32..4, any::<bool>()).prop_map(|(sets, ways, line, offset)| {
        CacheConfig::default()
            .with_entries(1 << (sets + ways + line))
            .with_ways(1 << ways)
            .with_line_entries(1 << line)
            .with_offset_per_process(offset)
    });
    let limit = prop_oneof![2 => Just(PinLimit::Unlimited), 1 => (11_u64..60).prop_map(PinLimit::Pages)];
    let ahead = prop_oneof![3 => Just(1_u32), 1 => 2_u32..9];
    let design = (0_u8..8, cache, ahead).prop_map(|(kind, cache, ahead)| match kind {
        0 => DesignConfig::SharedCache(IndexedConfig::from(cache).with_prefetch(ahead)),
        1 => DesignConfig::PerProcess(PerProcessConfig::default().with_entries(20 + cache.entries)),
        2 => DesignConfig::Interrupt(
            InterruptConfig::default().with_cache(cache.with_line_entries(1)).with_fill_pages(ahead),
        ),
        3 => DesignConfig::DynamicHandle(
            DynamicHandleConfig::default().with_cache(cache).with_handles(1 << (ahead % 4), 1 << (ahead % 3)),
        ),
        _ => DesignConfig::Hierarchical(HierarchicalConfig::from(cache).with_prefetch(ahead)),
    });
    let configuration =
        (design, limit, prop_oneof![4 => Just(1_u64), 1 => 2_u64..5]).prop_map(|(design, limit, prepin)| {
            Configuration::new(design).with_rules(PinRules::default().with_limit(limit).with_prepin_pages(prepin))
        });
    prop::collection::vec(configuration.prop_filter("can be built", |it| it.design.checked().is_ok()), 1..12)
}

/// Operations; some traces have exports, each of which ends at some time.
fn records() -> impl Strategy<Value = Vec<Record>> {
    let count = prop_oneof![4 => Just(1_u64), 1 => 2_u64..12];
    let op = prop_oneof![5 => Just(TraceOp::Send), 2 => Just(TraceOp::Fetch), 2 => Just(TraceOp::Receive)];
    let records = prop::collection::vec((0_u16..2, 0_u16..3, op, 0_u64..70, count), 0..250);
    let exports = prop_oneof![3 => Just(0_usize), 1 => 1_usize..4];
    (records, exports, any::<prop::sample::Index>()).prop_map(|(mut records, exports, at)| {
        for number in 0..exports.min(records.len()) {
            let place = at.index(records.len());
            let export = (0, number as u16 % 3, TraceOp::Export, 100 + number as u64 * 4, 6);
            records.insert(place, export);
            records.push((0, export.1, TraceOp::Unexport, export.3, export.4));
            records.push((0, export.1, TraceOp::Receive, export.3 + 2, 2));
        }
        records
    })
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn fast_engines_count_what_the_firmware_counts(
        records in records(),
        configurations in configurations(),
        causes in any::<bool>(),
    ) {
        let slow = study(&records, &configurations, causes, Allowed::NONE).unwrap();
        let fast = study(&records, &configurations, causes, Allowed::ALL).unwrap();
        prop_assert_eq!(&fast.nodes, &slow.nodes);
        for (at, configuration) in configurations.iter().enumerate() {
            // A limit may be too small for what exports leave.
            prop_assert_eq!(fast.failure(at).is_some(), slow.failure(at).is_some(), "{}", configuration);
            if fast.failure(at).is_none() {
                prop_assert_eq!(&fast.outcomes[at], &slow.outcomes[at], "{}", configuration);
            }
        }
        let lookups = records.iter().filter(|it| !matches!(it.2, TraceOp::Export | TraceOp::Unexport)).map(|it| it.4).sum::<u64>();
        let done = |(at, outcome)| fast.failure(at).is_none().then_some(outcome);
        for outcome in fast.outcomes.iter().enumerate().filter_map(done) {
            prop_assert_eq!(outcome.counts.lookups, lookups);
            prop_assert_eq!(outcome.counts.misses.sum(), outcome.counts.nic_misses);
            if let Some(causes) = outcome.causes {
                prop_assert_eq!(causes.compulsory + causes.capacity + causes.conflict, outcome.counts.nic_misses);
            }
        }
    }
}

fn hierarchical(cache: CacheConfig) -> Configuration {
    Configuration::new(DesignConfig::Hierarchical(cache.into()))
}

fn four_entries() -> CacheConfig {
    CacheConfig::default().with_entries(4).with_offset_per_process(false)
}

#[test]
fn a_trace_computed_by_hand_gives_its_golden_counts() {
    use TraceOp::{Fetch, Receive, Send};
    let records = [
        (0, 0, Send, 0, 1),    // compulsory
        (0, 0, Send, 1, 1),    // compulsory
        (0, 0, Send, 0, 1),    // hit
        (0, 0, Fetch, 4, 1),   // compulsory; page 0 shares its set, and leaves if there is one way
        (0, 0, Send, 0, 1),    // conflict: there is room elsewhere
        (0, 0, Receive, 1, 1), // hit
        (0, 1, Send, 1, 2),    // compulsory twice: another process
        (0, 0, Receive, 1, 1), // direct-mapped: process 1 took the place; not with two ways
        (1, 0, Send, 1, 1),    // another node
    ];
    let cache = four_entries();
    let limited = PinRules::default().with_limit(PinLimit::Pages(2));
    let rows = [hierarchical(cache), hierarchical(cache.with_ways(2)), hierarchical(cache).with_rules(limited)];
    for allowed in [Allowed::ALL, Allowed::NONE] {
        let found = study(&records, &rows, true, allowed).unwrap();
        let misses =
            |send_other, receive_other| PathMisses { send_cold: 6, send_other, receive_cold: 0, receive_other };
        let counts = Counts {
            lookups: 10,
            receive_lookups: 2,
            check_misses: 6,
            pins: 6,
            nic_misses: 8,
            misses: misses(1, 1),
            ..Counts::default()
        };
        assert_eq!(found.outcomes[0].counts, counts);
        // Of four entries without sets, all but page 1 of process 0 are there when it is received.
        let causes = found.outcomes[0].causes.unwrap();
        assert_eq!((causes.compulsory, causes.capacity, causes.conflict), (6, 0, 2));
        let two_ways = Counts { nic_misses: 6, misses: misses(0, 0), ..counts };
        assert_eq!(found.outcomes[1].counts, two_ways);
        // Process 0 may have two pages: 4 takes the place of 1, then 1 that of 4.
        let under_limit = Counts { check_misses: 7, pins: 7, unpins: 2, nic_misses: 9, misses: misses(1, 2), ..counts };
        assert_eq!(found.outcomes[2].counts, under_limit);
    }
}

#[test]
fn a_limit_below_one_operation_is_an_error_that_names_it() {
    let records = [(3, 0, TraceOp::Send, 0, 5)];
    let rules = PinRules::default().with_limit(PinLimit::Pages(4));
    let rows = [hierarchical(four_entries()).with_rules(rules)];
    let fast = failure(&records, &rows, Allowed::ALL);
    assert!(fast.contains("limit=4") && fast.contains("node 3") && fast.contains("5 pages"), "{fast}");
    let slow = failure(&records, &rows, Allowed::NONE);
    assert!(slow.contains("limit=4") && slow.contains("5 pages"), "{slow}");
    for text in [fast, slow] {
        let advice = "5 pages are needed at once, but a process may have only 4 pinned; choose a larger --limit";
        assert!(text.ends_with(advice), "{text}");
    }
}

#[test]
fn a_limit_below_the_exports_tells_how_to_leave_them_out() {
    let records = [(3, 0, TraceOp::Export, 0, 3), (3, 0, TraceOp::Export, 9, 2), (3, 0, TraceOp::Send, 20, 1)];
    let rules = PinRules::default().with_limit(PinLimit::Pages(4));
    let rows = [hierarchical(four_entries()).with_rules(rules)];
    let error = failure(&records, &rows, Allowed::NONE);
    for text in ["2 pages", "only 4 pinned, 3 of them", "--ops send,fetch"] {
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_table_below_one_operation_is_told_as_such() {
    let records = [(3, 0, TraceOp::Send, 0, 5)];
    let table = DesignConfig::PerProcess(PerProcessConfig::default().with_entries(4));
    for allowed in [Allowed::ALL, Allowed::NONE] {
        let rows = [Configuration::new(table)];
        let error = failure(&records, &rows, allowed);
        for text in ["5 pages", "table has 4 entries", "larger --entries"] {
            assert!(error.contains(text), "{error}");
        }
    }
}

#[test]
fn policies_and_limits_that_no_fast_engine_knows_are_replayed() {
    let records: Vec<Record> = (0..300).map(|n| (0, 0, TraceOp::Send, n * n % 31, 1)).collect();
    let rules = PinRules::default().with_limit(PinLimit::Pages(8));
    let rows: Vec<_> =
        Policy::PREDEFINED.map(|policy| hierarchical(four_entries()).with_rules(rules.with_policy(policy))).into();
    let found = study(&records, &rows, false, Allowed::ALL).unwrap();
    for outcome in &found.outcomes {
        let counts = outcome.counts;
        assert_eq!(counts.pins - counts.unpins, 8);
        assert_eq!(counts.check_misses, counts.pins);
    }
    let checks: std::collections::HashSet<_> = found.outcomes.iter().map(|it| it.counts.check_misses).collect();
    assert!(checks.len() > 1, "{checks:?}");
}

#[test]
fn a_design_that_cannot_be_built_is_named_before_anything_is_read() {
    let rows = vec![hierarchical(CacheConfig::default().with_ways(3))];
    let request = Request { configurations: rows, selection: Selection::ALL, causes: true, threads: 1 };
    let error = Study::new(request, Allowed::ALL).unwrap_err().to_string();
    assert!(error.contains("3 ways"), "{error}");
}

#[test]
fn what_a_configuration_cannot_do_is_told_and_the_others_go_on() {
    let records = [(0, 0, TraceOp::Send, 0, 5)];
    let limit = |pages, policy| {
        let rules = PinRules::default().with_limit(PinLimit::Pages(pages));
        hierarchical(four_entries()).with_rules(rules.with_policy(policy))
    };
    let (lru, mru) = (Policy::Lru, Policy::Mru);
    let rows = [limit(4, lru), limit(5, lru), limit(4, mru), limit(5, mru)];
    let found = study(&records, &rows, false, Allowed::ALL).unwrap();
    let failed: Vec<_> = (0..4).map(|at| found.failure(at).is_some()).collect();
    assert_eq!(failed, [true, false, true, false]);
    assert!(found.failures.iter().all(|it| it.1.contains("5 pages")));
    let pins = |at: usize| found.outcomes[at].counts.pins;
    assert_eq!((pins(1), pins(3)), (5, 5));
}

fn sends() -> impl Strategy<Value = Vec<Record>> {
    let record = (0_u16..2, 0_u16..3, 0_u64..60, 1_u64..4);
    let records = prop::collection::vec(record, 1..200);
    records.prop_map(|records| crate::testing::sends(&records))
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn endless_nic_memory_is_what_a_huge_cache_or_table_is(records in sends()) {
        for design in DesignConfig::all() {
            let sized = |size: &str| {
                let line = if design.name() == "dynamic-handle" { ",line=1" } else { "" };
                let text = format!("{}{size}{line}", design.name());
                Configuration::new(parse_design(&text).unwrap())
            };
            let table = design.name() == "per-process";
            let rows = [sized(",entries=8"), sized(if table { ",entries=64K" } else { ",entries=64K,ways=8" })];
            let found = study(&records, &rows, false, Allowed::ALL).unwrap();
            let endless = rows[0].with_endless_memory(&found.outcomes[0].counts, found.totals().known_pages);
            let cost = |counts: &Counts| rows[0].equation().cost(&crate::cost::CostProfile::papers(), counts);
            prop_assert_eq!(endless.as_ref().map(cost), Some(cost(&found.outcomes[1].counts)), "{}", design.name());
        }
    }

    #[test]
    fn no_policy_pins_less_than_the_optimum(
        records in prop::collection::vec((0_u16..2, 0_u16..2, 0_u64..30, 1_u64..5, 0_u8..8), 1..200),
        limit in 8_u64..20,
    ) {
        // Some transfers begin before their lookups, and go on while another is done.
        let records: Vec<Record> = records.iter().flat_map(|(node, process, page, count, kind)| {
            let ops: &[(TraceOp, u64)] = match kind {
                0 => &[(TraceOp::Hold, 0), (TraceOp::Send, 9), (TraceOp::Send, 0), (TraceOp::Release, 0)],
                _ => &[(TraceOp::Send, 0)],
            };
            ops.iter().map(move |(op, further)| (*node, *process, *op, page + further, *count))
        }).collect();
        let rules = PinRules::default().with_limit(PinLimit::Pages(limit));
        let library = Policy::PREDEFINED.map(UnpinPolicy::Library);
        let policies = library.into_iter().chain(Chooser::ALL.map(UnpinPolicy::Application));
        let rows: Vec<_> = policies.map(|policy| hierarchical(four_entries()).with_rules(rules).with_policy(policy)).collect();
        let request = Request { configurations: rows.clone(), selection: Selection::SEND_SIDE, causes: false, threads: 2 };
        let mut learner = Learner::new(Selection::SEND_SIDE, true);
        blocks(&records, |block| learner.take(block)).unwrap();
        let mut study = Study::new(request, Allowed::NONE).unwrap().knowing(learner.finish().into());
        blocks(&records, |block| study.take(block).and_then(|()| study.run_chunk())).unwrap();
        let outcomes = study.finish().unwrap().outcomes;
        let optimum = outcomes[7].counts;
        for (row, outcome) in rows.iter().zip(&outcomes) {
            let counts = outcome.counts;
            prop_assert!(counts.pins >= optimum.pins && counts.unpins >= optimum.unpins, "{}", row);
            prop_assert_eq!(counts.lookups, optimum.lookups);
        }
    }
}

/// Misses by cause as DineroIV counts them (`-ccc`, LRU, one access a page): a block that the fully associative cache holds is a
/// conflict; else one that was never seen is compulsory; else it is capacity.
fn dinero(pages: &[u64], cache: CacheConfig) -> Causes {
    let mut sets = vec![Vec::new(); cache.sets()];
    let (mut all, mut seen) = (Vec::new(), std::collections::HashSet::new());
    let mut causes = Causes::default();
    let lines = cache.entries / cache.line_entries;
    let use_line = |list: &mut Vec<u64>, line: u64, ways: usize| {
        let found = list.iter().position(|it| *it == line);
        found.map(|at| list.remove(at));
        list.insert(0, line);
        list.truncate(ways);
        found.is_some()
    };
    for page in pages {
        let line = page / cache.line_entries as u64;
        let set = line as usize % cache.sets();
        let hit = use_line(&mut sets[set], line, cache.ways);
        let full_hit = use_line(&mut all, line, lines);
        causes.associative += u64::from(!full_hit);
        if !hit {
            causes.count(match (full_hit, seen.insert(line)) {
                (true, _) => Cause::Conflict,
                (false, true) => Cause::Compulsory,
                (false, false) => Cause::Capacity,
            });
        }
    }
    causes
}

proptest! {
    #![proptest_config(crate::testing::seeded())]
    #[test]
    fn causes_are_those_of_dinero(
        pages in prop::collection::vec(0_u64..90, 0..400),
        shapes in prop::collection::vec((0_u32..5, 0_u32..3, 0_u32..3), 1..9),
    ) {
        let records: Vec<Record> =
            pages.iter().map(|page| (0, 0, TraceOp::Send, *page, 1)).collect();
        let caches: Vec<_> = shapes
            .into_iter()
            .map(|(sets, ways, line)| {
                CacheConfig::default()
                    .with_entries(1 << (sets + ways + line))
                    .with_ways(1 << ways)
                    .with_line_entries(1 << line)
                    .with_offset_per_process(false)
            })
            .collect();
        // A miss fills a line whole, as a block of DineroIV; UTLB's cache does so where a line has one page.
        let design = |cache: &CacheConfig| match cache.line_entries {
            1 => hierarchical(*cache),
            _ => Configuration::new(DesignConfig::DynamicHandle(
                DynamicHandleConfig::default().with_cache(*cache),
            )),
        };
        let rows: Vec<_> = caches.iter().map(design).collect();
        for allowed in [Allowed::ALL, Allowed::NONE] {
            let found = study(&records, &rows, true, allowed).unwrap();
            for (cache, outcome) in caches.iter().zip(found.outcomes) {
                prop_assert_eq!(outcome.causes, Some(dinero(&pages, *cache)), "{:?} {:?}", cache, allowed);
            }
        }
    }
}

#[test]
fn pages_looked_up_once_miss_by_compulsion_however_long_the_lines() {
    let records: Vec<Record> = (0..2000).map(|page| (0, 0, TraceOp::Send, page, 1)).collect();
    let cache = CacheConfig::default().with_entries(1024);
    for allowed in [Allowed::ALL, Allowed::NONE] {
        let rows = [1, 2, 8, 16].map(|line| hierarchical(cache.with_line_entries(line)));
        let found = study(&records, &rows, true, allowed).unwrap();
        for outcome in found.outcomes {
            let causes = outcome.causes.unwrap();
            assert_eq!(outcome.counts.nic_misses, 2000);
            assert_eq!((causes.compulsory, causes.capacity, causes.conflict), (2000, 0, 0));
            assert_eq!(causes.hill_conflict(), 0);
        }
    }
}

#[test]
fn a_cache_that_keeps_what_one_without_sets_would_lose_has_no_negative_conflicts() {
    // Three pages in turn in two entries: LRU without sets always misses, two sets keep page 1.
    let records: Vec<Record> = (0..30).map(|n| (0, 0, TraceOp::Send, n % 3, 1)).collect();
    let cache = CacheConfig::default().with_entries(2).with_offset_per_process(false);
    for allowed in [Allowed::ALL, Allowed::NONE] {
        let found = study(&records, &[hierarchical(cache)], true, allowed).unwrap();
        let causes = found.outcomes[0].causes.unwrap();
        let expected = Causes { compulsory: 3, capacity: 18, conflict: 0, associative: 30 };
        assert_eq!(causes, expected);
        assert_eq!(causes.hill_conflict(), -9);
    }
}

#[test]
fn each_policy_unpins_other_pages_of_a_full_table_without_a_limit() {
    let records: Vec<Record> = (0..400).map(|n| (0, 0, TraceOp::Send, n * n % 31, 1)).collect();
    let sweep = crate::sweep::Sweep {
        designs: crate::sweep::parse_designs("per-process,entries=8").unwrap(),
        policies: Policy::PREDEFINED.map(UnpinPolicy::Library).into(),
        ..crate::sweep::Sweep::default()
    };
    let rows = sweep.configurations(0).unwrap();
    assert_eq!(rows.len(), Policy::PREDEFINED.len());
    let found = study(&records, &rows, false, Allowed::ALL).unwrap();
    let checks: std::collections::HashSet<_> = found.outcomes.iter().map(|it| it.counts.check_misses).collect();
    assert!(checks.len() > 2, "{checks:?}");
}

#[test]
fn caches_of_handles_are_replayed_in_every_size() {
    use TraceOp::{Export, Receive, Send};
    // Eight exports of two processes, received in turn, three times.
    let mut records: Vec<Record> = (0..8).map(|n| (0, n % 2, Export, 100 * u64::from(n), 4)).collect();
    for _ in 0..3 {
        records.extend((0..8).map(|n| (0, n % 2, Receive, 100 * u64::from(n) + 1, 2)));
        records.push((0, 0, Send, 0, 1));
    }
    let of = |handles: &str| Configuration::new(parse_design(&format!("dynamic-handle,line=8{handles}")).unwrap());
    let rows = [of(""), of(",cbh=4"), of(",pch=1"), of(",cbh=4,pch=1")];
    for allowed in [Allowed::ALL, Allowed::NONE] {
        let found = study(&records, &rows, false, allowed).unwrap();
        let counts: Vec<_> =
            found.outcomes.iter().map(|it| (it.counts.buffer_misses, it.counts.process_misses)).collect();
        // Each once, or all of them each time: four places see eight buffers in turn, one place two processes.
        assert_eq!(counts, [(8, 2), (24, 2), (8, 24), (24, 24)]);
        for outcome in found.outcomes {
            let counts = outcome.counts;
            let asked = counts.nic_misses + counts.buffer_misses + counts.process_misses;
            assert_eq!(counts.interrupts, asked);
        }
    }
}

#[test]
fn an_export_that_ended_gives_its_number_to_another_buffer() {
    use TraceOp::{Export, Receive, Unexport};
    let records = [
        (0, 0, Export, 10, 2),
        (0, 0, Receive, 10, 1),
        (0, 0, Unexport, 10, 2),
        (0, 0, Export, 30, 2),
        (0, 0, Receive, 31, 1),
        // Of no export: one buffer for all such memory.
        (0, 0, Receive, 70, 1),
        (0, 0, Receive, 80, 1),
    ];
    let rows = [Configuration::new(parse_design("dynamic-handle").unwrap())];
    for allowed in [Allowed::ALL, Allowed::NONE] {
        let found = study(&records, &rows, false, allowed).unwrap();
        assert_eq!(found.outcomes[0].counts.buffer_misses, 3);
    }
}
