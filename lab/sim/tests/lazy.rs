//! The lazily consistent shared memory in simulated clusters.

use mapwire_dsm::Counters;
use mapwire_sim::shared::lazy::{LazyScenario, LazySeen};
use mapwire_sim::shrink::shrink;
use mapwire_sim::{Canary, Outcome, Wanted, Workload, parse_rules};

fn scenario(seed: u64, rules: &str, canary: Option<Canary>) -> LazyScenario {
    let wanted = Wanted { rules: parse_rules(rules).unwrap(), canary, ..Wanted::default() };
    LazyScenario::draw(seed, &wanted).unwrap()
}

fn run(seed: u64, rules: &str, canary: Option<Canary>) -> Outcome<LazySeen> {
    scenario(seed, rules, canary).run().unwrap()
}

#[test]
fn each_load_gives_the_last_store_before_it_or_one_that_is_not_ordered_with_it_under_faults() {
    let (mut loads, mut sum) = (0, Counters::default());
    for rules in
        ["none", "delay,partition,path,pause,slow", "delay,partition,path,pause,slow,drop,duplicate,reorder,corrupt"]
    {
        for seed in 0..25 {
            let outcome = run(seed, rules, None);
            assert!(outcome.violation.is_none(), "seed {seed}, rules {rules}: {outcome:?}");
            loads += outcome.seen.loads;
            sum = sum + outcome.seen.counters;
        }
    }
    assert!(loads > 4_000, "{loads} loads");
    assert!(sum.diffs > 400 && sum.pages_fetched > 400 && sum.home_moves > 40, "{sum:?}");
}

#[test]
fn every_bug_that_is_put_into_the_lazy_memory_is_found_within_40_seeds() {
    let mut missed = Vec::new();
    for &canary in Canary::HLRC {
        let found = (0..40).find_map(|seed| {
            run(seed, "delay,pause,partition,path,slow", Some(canary)).violation.map(|bad| (seed, bad.1))
        });
        match found {
            Some((seed, violation)) => println!("{}: seed {seed}, {}", canary.name(), violation.check),
            None => missed.push(canary.name()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_failing_run_shrinks_to_a_few_rounds() {
    let mut failing = (0..20).map(|seed| scenario(seed, "delay,pause", Some(Canary::LostStore)));
    let run = failing.find(|run| run.run().unwrap().violation.is_some()).unwrap();
    let shrunk = shrink(&run, 200).unwrap().unwrap();
    assert!(2 * shrunk.calls.len() < run.calls(), "{:?} of {} rounds", shrunk.calls, run.calls());
}
