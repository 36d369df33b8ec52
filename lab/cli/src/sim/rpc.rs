//! Runs of remote procedure calls.

use std::process::ExitCode;

use mapwire_sim::rpc::{RpcScenario, RpcSeen, RpcWanted};
use serde_json::json;

use super::SimError;
use super::run::{delivery, tell_end, violation};

/// Runs a seed, and says what was drawn and how it went.
pub(super) fn show(wanted: &RpcWanted, seed: u64, repeats: &str, json: bool) -> Result<ExitCode, SimError> {
    let scenario = RpcScenario::draw(seed, wanted);
    match json {
        true => println!("{}", drawn(&scenario)),
        false => println!("{}", scenario.to_string().trim_end()),
    }
    let outcome = scenario.run()?;
    let RpcSeen { answered, timed_out, late, ended, repeated, replied_again, stray, one_way, crashed } = outcome.seen;
    let (packets, found) = (outcome.packets, outcome.violation.as_ref());
    if json {
        let went = json!({
            "kind": "outcome",
            "violation": violation(found),
            "events": outcome.events,
            "packets": packets,
            "answered": answered,
            "timed_out": timed_out,
            "late": late,
            "ended": ended,
            "repeated": repeated,
            "replied_again": replied_again,
            "stray": stray,
            "one_way": one_way,
            "crashed": crashed,
        });
        println!("{went}");
    } else {
        println!(
            "{answered} calls answered, {timed_out} timed out, {ended} ended with their connection, {one_way} without an answer"
        );
        println!("{repeated} asked again, {late} late replies; {crashed} nodes died or began anew; {packets} packets");
        tell_end(found, repeats);
    }
    Ok(match found {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// What was drawn, for programs.
fn drawn(scenario: &RpcScenario) -> serde_json::Value {
    let (config, cluster) = (scenario.config, &scenario.cluster);
    let rules: Vec<&str> = scenario.rules.iter().map(|rule| rule.name).collect();
    json!({
        "kind": "drawn",
        "seed": scenario.seed,
        "nodes": cluster.nodes,
        "latency_ns": cluster.link.latency_ns,
        "bits_per_second": cluster.link.bits_per_second,
        "queue_packets": cluster.link.queue_packets,
        "delivery": delivery(cluster.delivery),
        "max_payload_bytes": cluster.max_payload_bytes,
        "window": config.window,
        "max_in_progress": config.max_in_progress,
        "cache_bytes": config.cache_bytes,
        "one_way_percent": scenario.one_way_percent,
        "close_percent": scenario.close_percent,
        "timeout_ns": scenario.timeout_ns,
        "calls": scenario.calls,
        "rules": rules,
        "heal_ns": scenario.heal_ns,
        "bug": scenario.canary.map(|bug| format!("{bug:?}")),
    })
}
