//! Global memory in simulated clusters.

use mapwire_sim::global::{GlobalScenario, Seen};
use mapwire_sim::{Canary, Condition, Coverage, Outcome, Wanted, Workload, parse_rules};

fn run(seed: u64, rules: &str, canary: Option<Canary>) -> Outcome<Seen> {
    let wanted = Wanted { rules: parse_rules(rules).unwrap(), canary, ..Wanted::default() };
    GlobalScenario::draw(seed, &wanted).unwrap().run().unwrap()
}

/// SIM_GLOBAL_SEED is the first of other seeds, SIM_SEEDS says how many.
#[test]
fn every_page_read_is_the_page_last_written_and_the_directory_names_what_is_stored() {
    let read = |name| std::env::var(name).ok()?.parse().ok();
    let first = read("SIM_GLOBAL_SEED").unwrap_or(0);
    let count = read("SIM_SEEDS").unwrap_or(60);
    let (mut sum, mut coverage) = (Seen::default(), Coverage::default());
    for rules in ["none", "delay,partition,path,pause,slow,refuse-pins,crash", "all"] {
        for seed in first..first + count {
            let outcome = run(seed, rules, None);
            assert!(outcome.violation.is_none(), "seed {seed}, rules {rules}: {outcome:?}");
            sum.add(&outcome.seen);
            coverage.add(&outcome.coverage);
        }
    }
    assert!(sum.counts().iter().all(|&(_, count)| count > 0), "{sum:?}");
    for condition in Condition::ALL.iter().filter(|condition| condition.about().0 == "donors") {
        assert!(coverage.of(*condition) > 0, "{condition:?} never holds");
    }
}

#[test]
fn every_bug_that_is_put_into_global_memory_is_found() {
    for &canary in Canary::GLOBAL {
        let name = canary.name();
        // Some show only as a packet is sent again after its page's frame has been filled anew, or as a map changes under a getpage.
        let rules = match canary {
            Canary::EarlyLanded => "drop",
            bug if bug.is_of_client() => "all",
            _ => "delay,partition,slow",
        };
        let fails = |seed| run(seed, rules, Some(canary)).violation.is_some();
        let found = (0..200).find(|&seed| fails(seed));
        println!("{name}: found at seed {found:?}");
        assert!(found.is_some(), "{name} is not found");
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let run = |seed| {
        let outcome = run(seed, "all", None);
        (outcome.events, outcome.packets, outcome.seen)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_global_memory_of_too_few_or_too_many_nodes_is_an_error() {
    for nodes in [0, 1, 300] {
        let wanted = Wanted { nodes: Some(nodes), ..Wanted::default() };
        let error = GlobalScenario::draw(1, &wanted).unwrap().run().unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("invalid number of nodes `{nodes}`: expected 2 to 256")), "{text}");
    }
}
