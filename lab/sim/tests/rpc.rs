//! Remote procedure calls in simulated clusters.

use mapwire_sim::rpc::{RpcScenario, RpcSeen};
use mapwire_sim::{Canary, Outcome, Wanted, Workload, parse_rules};

fn run(seed: u64, rules: &str, canary: Option<Canary>) -> Outcome<RpcSeen> {
    let wanted = Wanted { rules: parse_rules(rules).unwrap(), canary, ..Wanted::default() };
    RpcScenario::draw(seed, &wanted).unwrap().run().unwrap()
}

/// SIM_RPC_SEED is the first of other seeds, SIM_SEEDS says how many.
#[test]
fn every_call_is_carried_out_at_most_once_and_ends_with_its_own_reply_or_an_error_with_a_cause() {
    let read = |name| std::env::var(name).ok()?.parse().ok();
    let first = read("SIM_RPC_SEED").unwrap_or(0);
    let count = read("SIM_SEEDS").unwrap_or(60);
    let mut sum = RpcSeen::default();
    for rules in ["none", "delay,partition,path,pause,slow,crash", "all"] {
        for seed in first..first + count {
            let outcome = run(seed, rules, None);
            assert!(outcome.violation.is_none(), "seed {seed}, rules {rules}: {outcome:?}");
            sum.add(&outcome.seen);
        }
    }
    assert!(sum.counts().iter().all(|&(_, count)| count > 0), "{sum:?}");
}

#[test]
fn every_bug_that_is_put_below_calls_is_found() {
    for &canary in Canary::RPC {
        let name = canary.name();
        let fails = |seed| run(seed, "delay", Some(canary)).violation.is_some();
        let found = (0..50).find(|&seed| fails(seed));
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
