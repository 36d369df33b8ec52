//! The shared memory in simulated clusters.

use mapwire_sim::canary::SharedCanary;
use mapwire_sim::parse_rules;
use mapwire_sim::shared::run;

#[test]
fn loads_see_the_last_store_locks_exclude_and_barriers_hold_under_faults() {
    let mut packets = 0;
    for rules in [
        "none",
        "delay,partition,path,pause,slow",
        "delay,partition,path,pause,slow,drop,duplicate,reorder,corrupt",
    ] {
        let rules = parse_rules(rules).unwrap();
        for seed in 0..150 {
            let outcome = run(seed, &rules, None).unwrap();
            assert!(outcome.violation.is_none(), "seed {seed}: {outcome:?}");
            packets += outcome.packets;
        }
    }
    assert!(
        packets > 50_000,
        "the programs hardly use the memory: {packets} packets"
    );
}

#[test]
fn every_bug_that_is_put_into_the_shared_memory_is_found_within_20_seeds() {
    let rules = parse_rules("delay,pause").unwrap();
    for (name, canary) in SharedCanary::ALL {
        let fails = |seed| run(seed, &rules, Some(canary)).unwrap().violation.is_some();
        assert!((0..20).any(fails), "{name} is not found");
    }
}
