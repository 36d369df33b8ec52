//! Runs of whole clusters.

use mapwire_sim::scenario::Wanted;
use mapwire_sim::{Scenario, parse_rules};

fn run_seeds(first: u64, count: u64, rules: &str) {
    let wanted = Wanted {
        rules: parse_rules(rules).unwrap(),
        ..Wanted::default()
    };
    for seed in first..first + count {
        let scenario = Scenario::draw(seed, &wanted).unwrap();
        let outcome = scenario.run().unwrap();
        assert!(outcome.violation.is_none(), "{scenario}{outcome:?}");
    }
}

#[test]
fn without_faults_nothing_is_violated() {
    run_seeds(0, 50, "none");
}

#[test]
fn with_all_faults_nothing_is_violated() {
    run_seeds(1_000, 100, "all");
}

#[test]
fn a_seed_repeats_its_run_to_the_last_event() {
    let wanted = Wanted {
        rules: parse_rules("all").unwrap(),
        ..Wanted::default()
    };
    let run = |seed| {
        let outcome = Scenario::draw(seed, &wanted).unwrap().run().unwrap();
        (
            outcome.events,
            outcome.packets,
            outcome.end_ns,
            outcome.history,
        )
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
