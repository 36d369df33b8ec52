//! Runs of global memory.

use std::process::ExitCode;

use mapwire_sim::global::{GlobalScenario, GlobalWanted, Seen};
use serde_json::json;

use super::SimError;
use super::run::{delivery, tell_end, violation};

/// Runs a seed, and says what was drawn and how it went.
pub(super) fn show(wanted: &GlobalWanted, seed: u64, repeats: &str, json: bool) -> Result<ExitCode, SimError> {
    let scenario = GlobalScenario::draw(seed, wanted);
    match json {
        true => println!("{}", drawn(&scenario)),
        false => println!("{}", scenario.to_string().trim_end()),
    }
    let outcome = scenario.run()?;
    let Seen { pages, here, absent, stored, refused, joined, left, crashed, .. } = outcome.seen;
    let (packets, fetched) = (outcome.packets, pages + here);
    let found = outcome.violation.as_ref();
    if json {
        let went = json!({
            "kind": "outcome",
            "violation": violation(found),
            "events": outcome.events,
            "packets": packets,
            "fetched": fetched,
            "absent": absent,
            "stored": stored,
            "refused": refused,
            "joined": joined,
            "left": left,
            "crashed": crashed,
        });
        println!("{went}");
    } else {
        println!("{fetched} pages fetched, {absent} absent, {stored} stored, {refused} refused");
        println!("{joined} nodes joined, {left} left, {crashed} died; {packets} packets");
        tell_end(found, repeats);
    }
    Ok(match found {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// What was drawn, for programs.
fn drawn(scenario: &GlobalScenario) -> serde_json::Value {
    let (shape, cluster) = (scenario.shape, &scenario.cluster);
    let rules: Vec<&str> = scenario.rules.iter().map(|rule| rule.name).collect();
    json!({
        "kind": "drawn",
        "seed": scenario.seed,
        "nodes": shape.nodes,
        "members": shape.members,
        "latency_ns": cluster.link.latency_ns,
        "bits_per_second": cluster.link.bits_per_second,
        "queue_packets": cluster.link.queue_packets,
        "delivery": delivery(cluster.delivery),
        "max_payload_bytes": cluster.max_payload_bytes,
        "stores_by_nic": scenario.stores_by_nic,
        "pool_frames": shape.pool_frames,
        "pages": shape.pages,
        "shared_pages": shape.shared_pages,
        "requests": shape.requests,
        "directory_bytes": shape.directory_bytes,
        "on_disk_percent": shape.on_disk_percent,
        "moves_percent": shape.moves_percent,
        "epoch_ms": shape.epoch_ms,
        "calls": scenario.calls,
        "rules": rules,
        "heal_ns": scenario.heal_ns,
        "bug": scenario.canary.map(|bug| format!("{bug:?}")),
    })
}
