//! Runs of whole clusters.

use mapwire_sim::{Scenario, Wanted, Workload, parse_rules};
use mapwire_translation::PinLimit;

fn run_seeds(first: u64, count: u64, rules: &str) {
    let wanted = Wanted { rules: parse_rules(rules).unwrap(), ..Wanted::default() };
    for seed in first..first + count {
        let scenario = Scenario::draw(seed, &wanted).unwrap();
        let outcome = scenario.run().unwrap();
        assert!(outcome.violation.is_none(), "{scenario}{:?}", outcome.violation);
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

/// SIM_SEED names others, such as those of a commit: hexadecimal digits. SIM_SEEDS says how many.
#[test]
fn with_all_faults_nothing_is_violated_at_seeds_of_the_environment() {
    let read = |name| std::env::var(name).ok();
    let digits = read("SIM_SEED").unwrap_or_default();
    let digits: String = digits.chars().take(12).collect();
    let first = u64::from_str_radix(&digits, 16).unwrap_or(1_000_000);
    let count = read("SIM_SEEDS").and_then(|text| text.parse().ok());
    run_seeds(first, count.unwrap_or(200), "all");
}

/// Answers to fetches wait for their turn with frames that a limit on pinned pages must not take from them, where the design pins
/// exports on a miss.
#[test]
fn answers_to_fetches_read_pinned_pages_under_a_limit() {
    let wanted = Wanted {
        rules: parse_rules("all").unwrap(),
        translation: Some(("dynamic-handle".into(), PinLimit::Pages(75))),
        ..Wanted::default()
    };
    for seed in 0..300 {
        let scenario = Scenario::draw(seed, &wanted).unwrap();
        let outcome = scenario.run().unwrap();
        assert!(outcome.violation.is_none(), "{scenario}{:?}", outcome.violation);
    }
}

#[test]
fn a_cluster_of_no_nodes_or_too_many_is_an_error() {
    for nodes in [0, 5_000] {
        let wanted = Wanted { nodes: Some(nodes), ..Wanted::default() };
        let error = Scenario::draw(1, &wanted).unwrap().run().unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("invalid number of nodes `{nodes}`")), "{text}");
    }
}

#[test]
fn a_seed_repeats_its_run_to_the_last_event() {
    let wanted = Wanted { rules: parse_rules("all").unwrap(), ..Wanted::default() };
    let run = |seed| {
        let outcome = Scenario::draw(seed, &wanted).unwrap().run().unwrap();
        (outcome.events, outcome.packets, outcome.end_ns, outcome.seen)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
