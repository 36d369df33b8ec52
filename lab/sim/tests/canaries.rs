//! Bugs that are put in on purpose are found, each within the first seeds.

use mapwire_sim::global::GlobalScenario;
use mapwire_sim::rpc::RpcScenario;
use mapwire_sim::shared::SharedScenario;
use mapwire_sim::shrink::shrink;
use mapwire_sim::{Canary, Scenario, Wanted, Workload, parse_rules};

/// Seeds within which each is found.
const SEEDS: u64 = 150;

#[test]
fn every_bug_that_is_put_in_is_found_within_150_seeds() {
    let mut missed = Vec::new();
    for &canary in Canary::CALLS {
        let name = canary.name();
        let wanted = Wanted { rules: parse_rules("all").unwrap(), canary: Some(canary), ..Wanted::default() };
        let found = (0..SEEDS).find_map(|seed| {
            let scenario = Scenario::draw(seed, &wanted).unwrap();
            let (_, violation) = scenario.run().unwrap().violation?;
            Some((seed, violation.check))
        });
        match found {
            Some((seed, check)) => println!("{name}: found at seed {seed} ({check})"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}

#[test]
fn a_failing_run_shrinks_to_a_few_calls_and_still_fails() {
    let wanted = Wanted {
        nodes: Some(4),
        rules: parse_rules("all").unwrap(),
        canary: Some(Canary::AtomicTwice),
        ..Wanted::default()
    };
    let failing = (0..).map(|seed| Scenario::draw(seed, &wanted).unwrap());
    let mut failing = failing.filter(|scenario| scenario.run().unwrap().violation.is_some());
    let scenario = failing.next().unwrap();
    let shrunk = shrink(&scenario, 2_000).unwrap().unwrap();
    assert_eq!(shrunk.violation.check, "atomics");
    assert!(shrunk.faults.is_empty(), "{shrunk:?}");
    // An export, an import and its additions, of which the bug hits the fourth; and what only moves them in time.
    assert!((6..=20).contains(&shrunk.calls.len()), "{shrunk:?}");
    assert!(10 * shrunk.calls.len() <= scenario.calls.len(), "{shrunk:?}");
    let again = scenario.run_part(|_| false, |call| shrunk.calls.contains(&call)).unwrap();
    assert_eq!(again.violation, Some((shrunk.at_ns, shrunk.violation)));
}

/// Shrinks the first seed that fails.
fn shrinks<W: Workload>(wanted: &Wanted) {
    let mut failing = (0..100).map(|seed| W::draw(seed, wanted).unwrap());
    let run = failing.find(|run| run.run().unwrap().violation.is_some()).unwrap();
    let shrunk = shrink(&run, 200).unwrap().unwrap();
    assert!(2 * shrunk.calls.len() < run.calls(), "{:?} of {} calls", shrunk.calls, run.calls());
    let again = run.run_part(|fault| shrunk.faults.contains(&fault), |call| shrunk.calls.contains(&call)).unwrap();
    assert_eq!(again.violation, Some((shrunk.at_ns, shrunk.violation)));
}

#[test]
fn failing_runs_of_services_shrink_too() {
    let wanted =
        |canary, rules| Wanted { rules: parse_rules(rules).unwrap(), canary: Some(canary), ..Wanted::default() };
    shrinks::<SharedScenario>(&wanted(Canary::LostStore, "delay,pause"));
    shrinks::<SharedScenario>(&Wanted { litmus: true, ..wanted(Canary::LostStore, "delay,pause") });
    shrinks::<GlobalScenario>(&wanted(Canary::LostStore, "delay,partition,slow"));
    shrinks::<RpcScenario>(&wanted(Canary::ChangedByte, "delay"));
}
