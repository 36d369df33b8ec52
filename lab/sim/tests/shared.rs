//! The shared memory in simulated clusters.

use mapwire_sim::shared::{LITMUS, Seen, SharedScenario, Variant};
use mapwire_sim::{Canary, Outcome, Wanted, Workload, parse_rules};
use std::collections::{BTreeMap, BTreeSet};

fn run(seed: u64, rules: &str, litmus: bool, canary: Option<Canary>) -> Outcome<Vec<Seen>> {
    let wanted = Wanted { rules: parse_rules(rules).unwrap(), litmus, canary, ..Wanted::default() };
    SharedScenario::draw(seed, &wanted).unwrap().run().unwrap()
}

#[test]
fn loads_see_the_last_store_locks_exclude_and_barriers_hold_under_faults() {
    let mut packets = 0;
    for rules in
        ["none", "delay,partition,path,pause,slow", "delay,partition,path,pause,slow,drop,duplicate,reorder,corrupt"]
    {
        for seed in 0..150 {
            let outcome = run(seed, rules, false, None);
            assert!(outcome.violation.is_none(), "seed {seed}: {outcome:?}");
            packets += outcome.packets;
        }
    }
    assert!(packets > 50_000, "the programs hardly use the memory: {packets} packets");
}

#[test]
fn litmus_tests_show_what_sequential_consistency_allows_and_no_more() {
    let mut seen: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for seed in 0..200 {
        let rules = ["none", "delay,partition,path,pause,slow,drop,duplicate,reorder"];
        let outcome = run(seed, rules[seed as usize % 2], true, None);
        assert!(outcome.violation.is_none(), "seed {seed}: {outcome:?}");
        for (test, variant, loaded) in outcome.seen {
            seen.entry((test, variant)).or_default().insert(loaded);
        }
    }
    // The programs race: much of what is allowed is seen.
    for test in &LITMUS {
        for variant in Variant::ALL {
            let allowed = mapwire_sim::shared::allowed(&test.threads(variant)).len();
            let found = seen.get(&(test.name, variant)).map_or(0, BTreeSet::len);
            assert!(3 * found >= allowed, "{} {variant}: {found} of {allowed}", test.name);
        }
    }
}

#[test]
fn every_bug_that_is_put_into_the_shared_memory_is_found_within_20_seeds() {
    for &canary in Canary::SHARED {
        let name = canary.name();
        for litmus in [false, true] {
            let found = (0..20).find_map(|seed| {
                let (_, violation) = run(seed, "delay,pause", litmus, Some(canary)).violation?;
                Some((seed, violation.check))
            });
            let (seed, check) = found.unwrap_or_else(|| panic!("{name} is not found, litmus tests: {litmus}"));
            println!("{name}, litmus tests {litmus}: found at seed {seed} ({check})");
        }
    }
}

#[test]
fn a_shared_memory_of_too_few_or_too_many_ranks_is_an_error() {
    for nodes in [0, 1, 2_000] {
        let wanted = Wanted { nodes: Some(nodes), ..Wanted::default() };
        // Of one process a node.
        let mut scenarios = (0..).map(|seed| SharedScenario::draw(seed, &wanted).unwrap());
        let single = scenarios.find(|scenario| scenario.shape.processes == 1);
        let error = single.unwrap().run().unwrap_err().to_string();
        assert!(error.starts_with(&format!("invalid number of ranks `{nodes}`: expected 2 to 1024")), "{error}");
    }
}
