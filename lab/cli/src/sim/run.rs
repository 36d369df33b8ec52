//! `mapwire sim run`: one seed, shrunk if it fails.

use std::process::ExitCode;

use clap::Args;
use mapwire_sim::global::GlobalScenario;
use mapwire_sim::rpc::RpcScenario;
use mapwire_sim::shared::SharedScenario;
use mapwire_sim::shrink::{Shrunk, shrink};
use mapwire_sim::vopr::Wants;
use mapwire_sim::workload::Made;
use mapwire_sim::{ClusterConfig, Delivery, Outcome, Rule, RunError, Scenario};
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
    let wants = args.draw.wanted(workload)?;
    show(&wants, args.seed.unwrap_or_else(new_seed), &args.draw, args.json)
}

/// A kind of run, as it is shown: each gives what tells it from others.
pub(super) trait Shown: mapwire_sim::Workload {
    fn drawn(&self) -> Value;

    fn went(&self, outcome: &Outcome<Self::Seen>, shrunk: Option<&Shrunk>) -> Value;

    fn tell(&self, outcome: &Outcome<Self::Seen>) -> String;

    /// The fewest faults and calls with which it fails, where that can be found.
    fn shrunk(&self) -> Result<Option<Shrunk>, RunError> {
        Ok(None)
    }

    fn tell_shrunk(&self, _shrunk: &Shrunk) {}
}

/// Runs a seed, and says what was drawn and how it went.
pub(super) fn show(wants: &Wants, seed: u64, args: &DrawArgs, json: bool) -> Result<ExitCode, SimError> {
    let repeats = repeats(seed, wants, args);
    match wants {
        Wants::Calls(wanted) => show_one::<Scenario>(wanted, seed, &repeats, json),
        Wants::Shared(wanted) => show_one::<SharedScenario>(wanted, seed, &repeats, json),
        Wants::Global(wanted) => show_one::<GlobalScenario>(wanted, seed, &repeats, json),
        Wants::Rpc(wanted) => show_one::<RpcScenario>(wanted, seed, &repeats, json),
    }
}

fn show_one<W: Shown>(wanted: &W::Wanted, seed: u64, repeats: &str, json: bool) -> Result<ExitCode, SimError> {
    let run = W::draw(seed, wanted)?;
    if json {
        println!("{}", run.drawn());
    } else {
        println!("{}", run.to_string().trim_end());
    }
    let outcome = run.run()?;
    let shrunk = if outcome.violation.is_some() { run.shrunk()? } else { None };
    let found = outcome.violation.as_ref();
    if json {
        let violation = found.map(|(at_ns, it)| json!({ "at_ns": at_ns, "check": it.check, "text": it.text }));
        let common = json!({ "kind": "outcome", "violation": violation, "packets": outcome.packets });
        println!("{}", with(run.went(&outcome, shrunk.as_ref()), common));
    } else {
        println!("{}", run.tell(&outcome));
        match found {
            None => println!("no violation"),
            Some((at_ns, violation)) => {
                println!("VIOLATION at {at_ns} ns ({}): {}", violation.check, violation.text);
                if let Some(shrunk) = &shrunk {
                    run.tell_shrunk(shrunk);
                }
                println!("Repeat it: {repeats}");
            }
        }
    }
    Ok(if found.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// What is drawn of all kinds of run, besides `more`.
pub(super) fn drawn(
    seed: u64,
    cluster: &ClusterConfig,
    (rules, heal_ns): (&[Rule], u64),
    bug: Option<impl std::fmt::Debug>,
    more: Value,
) -> Value {
    let rules: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
    let common = json!({
        "kind": "drawn",
        "seed": seed,
        "nodes": cluster.nodes,
        "latency_ns": cluster.link.latency_ns,
        "bits_per_second": cluster.link.bits_per_second,
        "queue_packets": cluster.link.queue_packets,
        "delivery": delivery(cluster.delivery),
        "rules": rules,
        "heal_ns": heal_ns,
        "bug": bug.map(|bug| format!("{bug:?}")),
    });
    with(more, common)
}

impl Shown for Scenario {
    fn drawn(&self) -> Value {
        let cluster = &self.cluster;
        let more = json!({
            "processes": cluster.processes,
            "max_payload_bytes": cluster.max_payload_bytes,
            "translation": mapwire_settings::DesignText(cluster.design).to_string(),
            "pin_limit": cluster.pin_rules.limit.to_string(),
            "prepin_pages": cluster.pin_rules.prepin_pages,
            "words": cluster.words,
            "lane_bytes": self.workload.lane_bytes,
            "calls": self.calls.len(),
            "trace_records": self.replayed,
        });
        drawn(self.seed, cluster, (&self.rules, self.heal_ns), self.canary, more)
    }

    fn went(&self, outcome: &Outcome<Vec<Made>>, shrunk: Option<&Shrunk>) -> Value {
        let faults = self.faults();
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
        let Outcome { events, end_ns, seen, .. } = outcome;
        json!({ "events": events, "end_ns": end_ns, "calls": seen.len(), "shrunk": shrunk })
    }

    fn tell(&self, outcome: &Outcome<Vec<Made>>) -> String {
        let Outcome { events, packets, end_ns, seen, .. } = outcome;
        format!("{} calls, {packets} packets, {events} events in {end_ns} ns of virtual time", seen.len())
    }

    fn shrunk(&self) -> Result<Option<Shrunk>, RunError> {
        shrink(self, SHRINK_RUNS)
    }

    fn tell_shrunk(&self, shrunk: &Shrunk) {
        let Shrunk { faults, calls, runs, .. } = shrunk;
        let (few_faults, few_calls) = (faults.len(), calls.len());
        println!("The same check fails with {few_faults} faults and {few_calls} calls (found in {runs} runs):");
        let drawn = self.faults();
        for number in faults {
            println!("  {:?}", drawn[*number]);
        }
        for made in &shrunk.history {
            let (node, process) = (made.by.node, made.by.process);
            println!("  {:>12} ns  {node}, {process}: {}", made.at_ns, made.call);
        }
        println!("  {:>12} ns  {}", shrunk.at_ns, shrunk.violation.text);
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
