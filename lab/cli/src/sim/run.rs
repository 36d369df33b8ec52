//! `mapwire sim run`: one seed, shrunk if it fails.

use std::process::ExitCode;

use clap::Args;
use mapwire_sim::shrink::{Shrunk, shrink};
use mapwire_sim::vopr::Wants;
use mapwire_sim::{Delivery, Outcome, Scenario, Violation};
use serde_json::json;

use super::{DrawArgs, SimError, Workload, global, new_seed, repeats, rpc, seed, shared};

/// Runs that shrinking takes at most.
const SHRINK_RUNS: u32 = 5_000;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The seed that names the run (default: a new one)
    #[arg(long, value_name = "S", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    #[command(flatten)]
    draw: DrawArgs,
    /// Two JSON objects, one a line: what was drawn, and how it went
    #[arg(long)]
    json: bool,
}

/// `mapwire sim run`.
pub(crate) fn command(args: &RunArgs) -> Result<ExitCode, SimError> {
    let workload = args.draw.workload.unwrap_or(Workload::Calls);
    let wants = args.draw.wanted(workload)?;
    show(&wants, args.seed.unwrap_or_else(new_seed), &args.draw, args.json)
}

/// Runs a seed, and says what was drawn and how it went.
pub(super) fn show(wants: &Wants, seed: u64, args: &DrawArgs, json: bool) -> Result<ExitCode, SimError> {
    let repeats = repeats(seed, wants, args);
    let wanted = match wants {
        Wants::Calls(wanted) => wanted,
        Wants::Shared(wanted) => return shared::show(wanted, seed, &repeats, json),
        Wants::Global(wanted) => return global::show(wanted, seed, &repeats, json),
        Wants::Rpc(wanted) => return rpc::show(wanted, seed, &repeats, json),
    };
    let scenario = Scenario::draw(seed, wanted)?;
    match json {
        true => println!("{}", drawn(&scenario)),
        false => println!("{}", scenario.to_string().trim_end()),
    }
    let outcome = scenario.run()?;
    let shrunk = match outcome.violation {
        Some(_) => shrink(&scenario, SHRINK_RUNS)?,
        None => None,
    };
    match json {
        true => println!("{}", went(&scenario, &outcome, shrunk.as_ref())),
        false => tell(&scenario, &outcome, shrunk.as_ref(), &repeats),
    }
    Ok(match outcome.violation {
        Some(_) => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

/// What was drawn, for programs.
fn drawn(scenario: &Scenario) -> serde_json::Value {
    let cluster = &scenario.cluster;
    let rules: Vec<&str> = scenario.rules.iter().map(|rule| rule.name).collect();
    json!({
        "kind": "drawn",
        "seed": scenario.seed,
        "nodes": cluster.nodes,
        "processes": cluster.processes,
        "latency_ns": cluster.link.latency_ns,
        "bits_per_second": cluster.link.bits_per_second,
        "queue_packets": cluster.link.queue_packets,
        "delivery": delivery(cluster.delivery),
        "max_payload_bytes": cluster.max_payload_bytes,
        "translation": mapwire_settings::DesignText(cluster.design).to_string(),
        "pin_limit": cluster.pin_rules.limit.to_string(),
        "prepin_pages": cluster.pin_rules.prepin_pages,
        "words": cluster.words,
        "lane_bytes": scenario.workload.lane_bytes,
        "calls": scenario.calls.len(),
        "trace_records": scenario.replayed,
        "rules": rules,
        "heal_ns": scenario.heal_ns,
        "bug": scenario.canary.map(|bug| format!("{bug:?}")),
    })
}

/// What the transport does, for programs.
pub(super) fn delivery(delivery: Delivery) -> serde_json::Value {
    match delivery {
        Delivery::Lossless => json!("lossless"),
        Delivery::Lossy { paths, dead_after_ns, tells_of_crashes, early_packets, is_sealed } => json!({
            "paths": paths,
            "dead_after_ns": dead_after_ns,
            "tells_of_crashes": tells_of_crashes,
            "early_packets": early_packets,
            "is_sealed": is_sealed,
        }),
    }
}

/// A violation, for programs.
pub(super) fn violation(found: Option<&(u64, Violation)>) -> serde_json::Value {
    let violation =
        found.map(|(at_ns, violation)| json!({ "at_ns": at_ns, "check": violation.check, "text": violation.text }));
    json!(violation)
}

/// How a run that cannot be shrunk ended, for people.
pub(super) fn tell_end(found: Option<&(u64, Violation)>, repeats: &str) {
    match found {
        None => println!("no violation"),
        Some((at_ns, violation)) => {
            println!("VIOLATION at {at_ns} ns ({}): {}\nRepeat it: {repeats}", violation.check, violation.text)
        }
    }
}

/// How it went, for programs.
fn went(scenario: &Scenario, outcome: &Outcome, shrunk: Option<&Shrunk>) -> serde_json::Value {
    let violation = violation(outcome.violation.as_ref());
    let faults = scenario.faults();
    let shrunk = shrunk.map(|shrunk| {
        let calls = shrunk.history.iter().map(|made| {
            let (node, process) = (made.by.node.0, made.by.process.0);
            json!({ "at_ns": made.at_ns, "node": node, "process": process, "call": made.call })
        });
        let kept = shrunk.faults.iter().map(|number| format!("{:?}", faults[*number]));
        json!({
            "runs": shrunk.runs,
            "faults": kept.collect::<Vec<_>>(),
            "calls": calls.collect::<Vec<_>>(),
            "at_ns": shrunk.at_ns,
            "text": shrunk.violation.text,
        })
    });
    json!({
        "kind": "outcome",
        "violation": violation,
        "events": outcome.events,
        "packets": outcome.packets,
        "end_ns": outcome.end_ns,
        "calls": outcome.history.len(),
        "shrunk": shrunk,
    })
}

/// How it went, for people.
fn tell(scenario: &Scenario, outcome: &Outcome, shrunk: Option<&Shrunk>, repeats: &str) {
    println!(
        "{} calls, {} packets, {} events in {} ns of virtual time",
        outcome.history.len(),
        outcome.packets,
        outcome.events,
        outcome.end_ns
    );
    let Some((at_ns, violation)) = &outcome.violation else {
        println!("no violation");
        return;
    };
    println!("VIOLATION at {at_ns} ns ({}): {}", violation.check, violation.text);
    if let Some(shrunk) = shrunk {
        println!(
            "The same check fails with {} faults and {} calls (found in {} runs):",
            shrunk.faults.len(),
            shrunk.calls.len(),
            shrunk.runs
        );
        let faults = scenario.faults();
        for number in &shrunk.faults {
            println!("  {:?}", faults[*number]);
        }
        for made in &shrunk.history {
            let (node, process) = (made.by.node, made.by.process);
            println!("  {:>12} ns  {node}, {process}: {}", made.at_ns, made.call);
        }
        println!("  {:>12} ns  {}", shrunk.at_ns, shrunk.violation.text);
    }
    println!("Repeat it: {repeats}");
}
