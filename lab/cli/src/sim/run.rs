//! `mapwire sim run`: one seed, shrunk if it fails.

use std::process::ExitCode;

use clap::Args;
use mapwire_sim::global::GlobalScenario;
use mapwire_sim::rpc::RpcScenario;
use mapwire_sim::shared::SharedScenario;
use mapwire_sim::shared::lazy::LazyScenario;
use mapwire_sim::shrink::{Shrunk, shrink};
use mapwire_sim::vopr::{Kind, Wants};
use mapwire_sim::workload::Made;
use mapwire_sim::{Delivery, Drawn, Outcome, Scenario, Wanted};
use mapwire_wire::Endpoint;
use serde_json::{Value, json};

use super::{DrawArgs, SimError, Workload, new_seed, repeats, seed};

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

pub(crate) fn command(args: &RunArgs) -> Result<ExitCode, SimError> {
    let workload = args.draw.workload.unwrap_or(Workload::Calls);
    let wants = args.draw.wanted(workload.kind())?;
    show(&wants, args.seed.unwrap_or_else(new_seed), &args.draw, args.json)
}

/// A kind of run, as it is shown: each gives what tells it from others.
pub(super) trait Shown: mapwire_sim::Workload {
    fn more(&self) -> Value;

    fn went(&self, outcome: &Outcome<Self::Seen>) -> Value;

    fn tell(&self, outcome: &Outcome<Self::Seen>) -> String;

    /// The calls of a run that was shrunk, for programs and for people.
    fn calls_of(&self, shrunk: &Shrunk<Self::Seen>) -> Vec<(Value, String)> {
        shrunk.calls.iter().map(|call| (json!(call), format!("call {call}"))).collect()
    }
}

/// Runs a seed, and says what was drawn and how it went.
pub(super) fn show((kind, wanted): &Wants, seed: u64, args: &DrawArgs, json: bool) -> Result<ExitCode, SimError> {
    let repeats = repeats(seed, *kind, args);
    match kind {
        Kind::Calls => show_one::<Scenario>(wanted, seed, &repeats, json),
        Kind::Shared | Kind::Litmus => show_one::<SharedScenario>(wanted, seed, &repeats, json),
        Kind::Hlrc => show_one::<LazyScenario>(wanted, seed, &repeats, json),
        Kind::Global => show_one::<GlobalScenario>(wanted, seed, &repeats, json),
        Kind::Rpc => show_one::<RpcScenario>(wanted, seed, &repeats, json),
    }
}

fn show_one<W: Shown>(wanted: &Wanted, seed: u64, repeats: &str, json: bool) -> Result<ExitCode, SimError> {
    let run = W::draw(seed, wanted)?;
    if json {
        println!("{}", with(run.more(), drawn(run.drawn())));
    } else {
        println!("{}", run.to_string().trim_end());
    }
    let outcome = run.run()?;
    let found = outcome.violation.as_ref();
    let shrunk = if found.is_some() { shrink(&run, SHRINK_RUNS)? } else { None };
    if json {
        let violation = found.map(|(at_ns, it)| json!({ "at_ns": at_ns, "check": it.check, "text": it.text }));
        let common = json!({ "kind": "outcome", "violation": violation, "packets": outcome.packets });
        let mut went = with(run.went(&outcome), common);
        if let Some(shrunk) = &shrunk {
            went["shrunk"] = shrunk_rows(&run, shrunk);
        }
        println!("{went}");
    } else {
        println!("{}", run.tell(&outcome));
        match found {
            None => println!("no violation"),
            Some((at_ns, violation)) => {
                println!("VIOLATION at {at_ns} ns ({}): {}", violation.check, violation.text);
                if let Some(shrunk) = &shrunk {
                    tell_shrunk(&run, shrunk);
                }
                println!("Repeat it: {repeats}");
            }
        }
    }
    Ok(if found.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The faults of a run that was shrunk.
fn faults_of<W: Shown>(run: &W, shrunk: &Shrunk<W::Seen>) -> Vec<String> {
    let faults = run.faults();
    shrunk.faults.iter().map(|number| format!("{:?}", faults[*number])).collect()
}

fn shrunk_rows<W: Shown>(run: &W, shrunk: &Shrunk<W::Seen>) -> Value {
    let calls = run.calls_of(shrunk).into_iter().map(|(call, _)| call);
    json!({
        "runs": shrunk.runs,
        "faults": faults_of(run, shrunk),
        "calls": calls.collect::<Vec<_>>(),
        "at_ns": shrunk.at_ns,
        "text": shrunk.violation.text,
    })
}

fn tell_shrunk<W: Shown>(run: &W, shrunk: &Shrunk<W::Seen>) {
    let Shrunk { faults, calls, runs, .. } = shrunk;
    let (few_faults, few_calls) = (faults.len(), calls.len());
    println!("The same check fails with {few_faults} faults and {few_calls} calls (found in {runs} runs):");
    for fault in faults_of(run, shrunk) {
        println!("  {fault}");
    }
    for (_, call) in run.calls_of(shrunk) {
        println!("  {call}");
    }
    println!("  {:>12} ns  {}", shrunk.at_ns, shrunk.violation.text);
}

/// An object with the members of another.
fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// What is drawn of all kinds of run.
fn drawn(drawn: &Drawn) -> Value {
    let Drawn { seed, cluster, rules, heal_ns, canary, .. } = drawn;
    let rules: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
    json!({
        "kind": "drawn",
        "seed": seed,
        "nodes": cluster.nodes,
        "latency_ns": cluster.link.latency_ns,
        "bits_per_second": cluster.link.bits_per_second,
        "queue_packets": cluster.link.queue_packets,
        "delivery": delivery(cluster.delivery),
        "rules": rules,
        "heal_ns": heal_ns,
        "bug": canary.map(|bug| format!("{bug:?}")),
    })
}

impl Shown for Scenario {
    fn more(&self) -> Value {
        let cluster = &self.drawn.cluster;
        json!({
            "processes": cluster.processes,
            "max_payload_bytes": cluster.max_payload_bytes,
            "translation": mapwire_settings::DesignText(cluster.design).to_string(),
            "pin_limit": cluster.pin_rules.limit.to_string(),
            "prepin_pages": cluster.pin_rules.prepin_pages,
            "words": cluster.words,
            "lane_bytes": self.workload.lane_bytes,
            "calls": self.calls.len(),
            "trace_records": self.replayed,
        })
    }

    fn went(&self, outcome: &Outcome<Vec<Made>>) -> Value {
        let Outcome { events, end_ns, seen, .. } = outcome;
        json!({ "events": events, "end_ns": end_ns, "calls": seen.len(), "shrunk": null })
    }

    fn tell(&self, outcome: &Outcome<Vec<Made>>) -> String {
        let Outcome { events, packets, end_ns, seen, .. } = outcome;
        format!("{} calls, {packets} packets, {events} events in {end_ns} ns of virtual time", seen.len())
    }

    fn calls_of(&self, shrunk: &Shrunk<Vec<Made>>) -> Vec<(Value, String)> {
        let made = |made: &Made| {
            let (Endpoint { node, process }, at_ns, call) = (made.by, made.at_ns, made.call);
            let row = json!({ "at_ns": at_ns, "node": node.0, "process": process.0, "call": call });
            (row, format!("{at_ns:>12} ns  {node}, {process}: {call}"))
        };
        shrunk.seen.iter().map(made).collect()
    }
}

fn delivery(delivery: Delivery) -> Value {
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
