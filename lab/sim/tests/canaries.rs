//! Bugs that are put in on purpose are found, each within the first seeds.

use mapwire_sim::scenario::Wanted;
use mapwire_sim::{Canary, Scenario, Workload, parse_rules};

/// Seeds within which each is found.
const SEEDS: u64 = 150;

#[test]
fn every_bug_that_is_put_in_is_found_within_150_seeds() {
    let mut missed = Vec::new();
    for (name, canary) in Canary::ALL {
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
    let shrunk = mapwire_sim::shrink::shrink(&scenario, 2_000).unwrap().unwrap();
    assert_eq!(shrunk.violation.check, "atomics");
    assert!(shrunk.faults.is_empty(), "{shrunk:?}");
    // An export, an import and its additions, of which the bug hits the fourth; and what only moves them in time.
    assert!((6..=20).contains(&shrunk.calls.len()), "{shrunk:?}");
    assert!(10 * shrunk.calls.len() <= scenario.calls.len(), "{shrunk:?}");
    let again = scenario.run_part(|_| false, |call| shrunk.calls.contains(&call)).unwrap();
    assert_eq!(again.violation, Some((shrunk.at_ns, shrunk.violation)));
}
