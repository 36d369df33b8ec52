//! Traces as programs.

use mapwire_sim::{Canary, Random, Replay, Scenario, Wanted, Workload, parse_rules};
use mapwire_translation::PinLimit;
use mapwire_wire::{TraceOp, TraceRecord};

/// A trace of three nodes: sends of up to 40,000 bytes, and fetches.
fn replay(seed: u64, count: u64) -> Replay {
    let mut random = Random::new(seed);
    let mut replay = Replay::default();
    let mut time_ns = 1 << 50;
    for _ in 0..count {
        time_ns += random.spread(1, 100_000);
        let op = *random.pick(&[TraceOp::Send, TraceOp::Send, TraceOp::Fetch, TraceOp::Receive]);
        let record = TraceRecord {
            time_ns: time_ns.into(),
            address: random.next().into(),
            bytes: random.spread(1, 40_000).into(),
            node: (random.below(3) as u16).into(),
            process: (random.below(2) as u16).into(),
            op: op as u8,
            flags: 0,
            reserved: 0.into(),
        };
        replay.push(&record).unwrap();
    }
    replay
}

fn wanted(seed: u64, rules: &str, canary: Option<Canary>) -> Wanted {
    Wanted { rules: parse_rules(rules).unwrap(), replay: Some(replay(seed, 300)), canary, ..Wanted::default() }
}

#[test]
fn what_a_trace_sends_and_fetches_is_sent_and_fetched_and_nothing_is_violated() {
    let mut made = 0;
    for seed in 0..30 {
        let rules = ["none", "all"][seed as usize % 2];
        let wanted = wanted(seed, rules, None);
        let scenario = Scenario::draw(seed, &wanted).unwrap();
        let outcome = scenario.run().unwrap();
        assert!(outcome.violation.is_none(), "{scenario}{:?}", outcome.violation);
        if rules == "none" {
            let transfers = |made: &&mapwire_sim::workload::Made| ["long send", "fetch"].contains(&made.call);
            let done = outcome.seen.iter().filter(transfers).count();
            let due = wanted.replay.as_ref().map_or(0, Replay::calls);
            assert!(10 * done >= 9 * due, "seed {seed}: {done} of {due}");
            made += done;
        }
    }
    assert!(made > 3_000, "{made}");
}

#[test]
fn bugs_are_found_by_a_trace_as_well() {
    for canary in [Canary::LostCompletion, Canary::ChangedByte, Canary::EarlyRelease] {
        // What is released early is unpinned only to make room for others.
        let translation = (canary == Canary::EarlyRelease).then(|| ("dynamic-handle".into(), PinLimit::Pages(75)));
        let fails = |seed| {
            let mut wanted = wanted(seed, "all", Some(canary));
            wanted.translation = translation.clone();
            let scenario = Scenario::draw(seed, &wanted).unwrap();
            scenario.run().unwrap().violation.is_some()
        };
        assert!((0..60).any(fails), "{canary:?} is not found");
    }
}
