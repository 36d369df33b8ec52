//! `mapwire sim replay`: a traced program of the shared memory on another machine.

mod measured;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mapwire_sim::hardware::Ps;
use mapwire_sim::hosts::{self, Captured, Live, Machine, Notice, Outcome, Program, Scale};
use mapwire_trace::TraceReader;
use serde_json::json;

use super::SimError;
use crate::lab::output::print;

/// How many times longer the Pentium II of 1997 computes than the computers that traces are taken on, if nothing else is said.
const SPEED_1997: f64 = 20.0;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace (.mwt) of a program that uses the shared memory; or several of the same program: of each thread, the least computing
    /// between two barriers counts
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// The machine
    #[arg(long, value_enum)]
    machine: MachineArg,
    /// For `here`: what `mapwire bench fault --json` and `mapwire bench lock --json` printed on this computer
    #[arg(long, value_name = "FILE", required_if_eq("machine", "here"))]
    measured: Option<PathBuf>,
    /// Computing takes so many times as long as in the trace, 0.001 to 1000 (default: 20 for the machines of 1997, 1 for others)
    #[arg(long, value_name = "TIMES", value_parser = speed)]
    speed: Option<f64>,
    /// Hosts, on which the ranks of the trace are spread evenly (default: one for each rank; for `here`, one for all)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    nodes: Option<u16>,
    /// Processors of a host (default: 1 for the machines of 1997, 2 for `today`, those of this computer for `here`)
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processors: Option<u16>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MachineArg {
    /// Millipage's cluster: 300-MHz Pentium II, Windows NT, Myrinet; messages interrupt
    #[value(name = "1997")]
    Interrupts,
    /// The same, where threads poll for messages
    #[value(name = "1997-polling")]
    Polling,
    /// Servers with remote DMA
    Today,
    /// This computer
    Here,
}

fn speed(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|times| (0.001..=1000.0).contains(times));
    number.ok_or_else(|| "expected a number from 0.001 to 1000".to_owned())
}

/// How many of the ranks each of so many hosts has.
fn spread(ranks: u16, nodes: u16) -> Result<u16, String> {
    if ranks.is_multiple_of(nodes) {
        return Ok(ranks / nodes);
    }
    let even = (1..=ranks).filter(|nodes| ranks.is_multiple_of(*nodes));
    let even: Vec<String> = even.map(|nodes| nodes.to_string()).collect();
    Err(format!("{ranks} ranks cannot be spread evenly over {nodes} hosts: give --nodes {}", even.join(", ")))
}

impl ReplayArgs {
    fn machine(&self, ranks: u16) -> Result<Machine, SimError> {
        let mut machine = match self.machine {
            MachineArg::Interrupts => hosts::millipage(Notice::Interrupts),
            MachineArg::Polling => hosts::millipage(Notice::Polling),
            MachineArg::Today => hosts::today(),
            MachineArg::Here => {
                let path = self.measured.as_ref().ok_or("give --measured FILE")?;
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                let processors = u16::try_from(processors).unwrap_or(u16::MAX);
                hosts::here(&measured::read(path)?, processors)
            }
        };
        if let Some(processors) = self.processors {
            machine.processors = processors;
        }
        if let Some(nodes) = self.nodes {
            machine.ranks_per_host = spread(ranks, nodes)?;
        }
        Ok(machine)
    }

    fn speed(&self) -> f64 {
        self.speed.unwrap_or(match self.machine {
            MachineArg::Interrupts | MachineArg::Polling => SPEED_1997,
            MachineArg::Today | MachineArg::Here => 1.0,
        })
    }
}

pub(super) fn command(args: &ReplayArgs) -> Result<ExitCode, SimError> {
    if args.measured.is_some() && args.machine != MachineArg::Here {
        return Err("--measured is for --machine here: leave it out for other machines".into());
    }
    let scale = Scale { speed_milli: (args.speed() * 1000.0).round() as u64, ..Scale::default() };
    let mut programs = Vec::new();
    let mut first_live = None;
    for path in &args.traces {
        let (program, live) = read(path, &scale)?;
        programs.push(program);
        first_live.get_or_insert(live);
    }
    let program = Program::least(&programs).ok_or(
        "the traces have other threads or barriers each: give traces of one program with the same ranks, or one trace alone if it shares out its work while it runs",
    )?;
    let live = first_live.unwrap_or_default();
    let named = |error: &dyn std::fmt::Display| format!("cannot replay the trace: {error}");
    let machine = args.machine(program.ranks)?;
    let outcome = hosts::run(&machine, &program, &[]).map_err(|error| named(&error))?;
    print(&if args.json {
        in_json(args, &machine, &program, &live, &outcome)
    } else {
        text(args, &machine, &program, &live, &outcome)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The program of a trace, and what the traced run took.
fn read(path: &Path, scale: &Scale) -> Result<(Program, Live), SimError> {
    let named = |error: &dyn std::fmt::Display| format!("cannot replay {}: {error}", path.display());
    let mut captured = Captured::default();
    for record in TraceReader::open(path)?.records() {
        let record =
            record.map_err(|error| format!("{error}; a replay needs the whole trace: trace the program again"))?;
        captured.push(&record).map_err(|error| named(&error))?;
    }
    Ok(captured.finish(scale).map_err(|error| named(&error))?)
}

fn seconds(ps: Ps) -> f64 {
    ps as f64 / 1e12
}

fn ns_to_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// By how many percent `ours` is more than `theirs`.
fn difference(ours: f64, theirs: f64) -> Option<f64> {
    (theirs > 0.0).then(|| (ours / theirs - 1.0) * 100.0)
}

/// What the program would take on one processor of the machine, if it computed as much: what speed-ups are measured by.
fn alone(program: &Program) -> f64 {
    seconds(program.work_computing_ps())
}

fn in_json(args: &ReplayArgs, machine: &Machine, program: &Program, live: &Live, outcome: &Outcome) -> String {
    let work = outcome.work_ps.map(seconds);
    let ranks = outcome.ranks.iter().map(|rank| {
        json!({
            "finished_s": seconds(rank.finished_ps),
            "computing_s": seconds(rank.spent.computing_ps),
            "faults_s": seconds(rank.spent.faults_ps),
            "locks_s": seconds(rank.spent.locks_ps),
            "barriers_s": seconds(rank.spent.barriers_ps),
            "faults": rank.faults,
        })
    });
    let object = json!({
        "kind": "replay",
        "machine": machine.profile.name,
        "notice": machine.notice.name(),
        "ranks": program.ranks,
        "ranks_per_host": machine.ranks_per_host,
        "processors": machine.processors,
        "speed": args.speed(),
        "total_s": seconds(outcome.total_ps),
        "work_s": work,
        "speedup": work.map(|work| alone(program) / work),
        "messages": outcome.messages,
        "bytes": outcome.bytes,
        "faults": outcome.ranks.iter().map(|rank| rank.faults).sum::<u64>(),
        "live_total_s": ns_to_seconds(live.total_ns),
        "live_work_s": live.work_ns.map(ns_to_seconds),
        "live_computed_s": ns_to_seconds(live.computed_ns),
        "live_faults": live.faults,
        "per_rank": ranks.collect::<Vec<_>>(),
    });
    format!("{object}\n")
}

fn counted(number: u16, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

fn text(args: &ReplayArgs, machine: &Machine, program: &Program, live: &Live, outcome: &Outcome) -> String {
    let hosts = program.ranks.div_ceil(match machine.ranks_per_host {
        0 => program.ranks,
        some => some,
    });
    let speed = match args.speed() {
        1.0 => "as long".to_owned(),
        times => format!("{times} times as long"),
    };
    let mut text = format!(
        "{}; messages found by {}\n{} on {} of {}; computing takes {speed} as in the trace\n\n",
        machine.profile.name,
        machine.notice.name(),
        counted(program.ranks, "rank"),
        counted(hosts, "host"),
        counted(machine.processors, "processor"),
    );
    let mut line = |name: &str, ours: Option<f64>, theirs: Option<f64>| {
        let Some(ours) = ours else { return };
        text.push_str(&format!("{name:<34}{ours:>12.6} s"));
        // Another machine's time is nothing to compare with.
        if let (MachineArg::Here, Some(theirs)) = (args.machine, theirs) {
            text.push_str(&format!("   traced run {theirs:>12.6} s"));
            if let Some(difference) = difference(ours, theirs) {
                text.push_str(&format!("   {difference:+.1} %"));
            }
        }
        text.push('\n');
    };
    line("from first to last barrier", outcome.work_ps.map(seconds), live.work_ns.map(ns_to_seconds));
    line("from start to end", Some(seconds(outcome.total_ps)), Some(ns_to_seconds(live.total_ns)));
    let ranks = outcome.ranks.len().max(1) as f64;
    let mean = |of: fn(&hosts::RankOutcome) -> Ps| {
        let sum: f64 = outcome.ranks.iter().map(|rank| seconds(of(rank))).sum();
        Some(sum / ranks)
    };
    line("  computing, mean of ranks", mean(|rank| rank.spent.computing_ps), None);
    line("  page faults", mean(|rank| rank.spent.faults_ps), None);
    line("  locks", mean(|rank| rank.spent.locks_ps), None);
    line("  barriers and broadcasts", mean(|rank| rank.spent.barriers_ps), None);
    if let Some(work) = outcome.work_ps.map(seconds) {
        text.push_str(&format!("{:<34}{:>12.2}\n", "speed-up", alone(program) / work));
    }
    let faults: u64 = outcome.ranks.iter().map(|rank| rank.faults).sum();
    text.push_str(&format!(
        "{:<34}{faults:>12}   traced run {:>12}\n{:<34}{:>12}\n{:<34}{:>12}\n",
        "page faults", live.faults, "messages", outcome.messages, "bytes", outcome.bytes,
    ));
    text
}
