//! Runs of a shared memory.

use std::process::ExitCode;

use mapwire_sim::shared::{SharedScenario, SharedWanted};
use serde_json::json;

use super::SimError;
use super::run::{delivery, tell_end, violation};

/// Runs a seed, and says what was drawn and how it went.
pub(super) fn show(wanted: &SharedWanted, seed: u64, repeats: &str, json: bool) -> Result<ExitCode, SimError> {
    let scenario = SharedScenario::draw(seed, wanted);
    match json {
        true => println!("{}", drawn(&scenario)),
        false => println!("{}", scenario.to_string().trim_end()),
    }
    let outcome = scenario.run()?;
    let (packets, tests) = (outcome.packets, outcome.seen.len());
    let found = outcome.violation.as_ref();
    if json {
        let went =
            json!({ "kind": "outcome", "violation": violation(found), "packets": packets, "litmus_tests": tests });
        println!("{went}");
    } else {
        match scenario.litmus {
            true => println!("{tests} litmus tests, {packets} packets"),
            false => println!("{packets} packets"),
        }
        tell_end(found, repeats);
    }
    Ok(match found {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// What was drawn, for programs.
fn drawn(scenario: &SharedScenario) -> serde_json::Value {
    let (shape, cluster) = (scenario.shape, &scenario.cluster);
    let rules: Vec<&str> = scenario.rules.iter().map(|rule| rule.name).collect();
    json!({
        "kind": "drawn",
        "seed": scenario.seed,
        "nodes": cluster.nodes,
        "processes": cluster.processes,
        "threads": shape.threads,
        "latency_ns": cluster.link.latency_ns,
        "bits_per_second": cluster.link.bits_per_second,
        "queue_packets": cluster.link.queue_packets,
        "delivery": delivery(cluster.delivery),
        "litmus": scenario.litmus,
        "allocations": shape.allocations,
        "locks": shape.locks,
        "barriers": shape.phases,
        "steps": shape.steps,
        "hold_ns": shape.hold_ns,
        "rules": rules,
        "heal_ns": scenario.heal_ns,
        "bug": scenario.canary.map(|bug| format!("{bug:?}")),
    })
}
