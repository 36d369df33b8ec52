//! `mapwire sim`: clusters in virtual time.
//!
//! | module | command |
//! |---|---|
//! | [`run`] | `mapwire sim run`: one seed, shrunk if it fails |
//! | [`services`] | the same of a shared memory, of global memory and of remote procedure calls |
//! | [`vopr`] | `mapwire sim vopr`: new seeds for a time, with the [`coverage`] of rules and checks |
//! | [`paper`] | `mapwire sim paper`: the machines that papers measured |
//! | [`replay`] | `mapwire sim replay`: a traced program of the shared memory on another machine |

mod coverage;
pub(crate) mod paper;
mod replay;
mod run;
mod services;
mod vopr;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use mapwire_sim::cluster::MOST_NODES;
use mapwire_sim::vopr::{Kind, Wants};
use mapwire_sim::{Canary, RULES, Replay, Rule, Wanted, parse_rules};
use mapwire_trace::TraceReader;

pub(crate) type SimError = Box<dyn std::error::Error>;

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run the cluster that a seed names, and check what mapwire promises
    ///
    /// Cluster, faults and programs are drawn from the seed, which repeats a run to the last event. Seed and all that was drawn are printed
    /// first. Of a run that fails, the fewest faults and calls are found that still fail. The exit code is 1 then.
    #[command(
        after_help = "Examples:\n  mapwire sim run --seed 7\n  mapwire sim run --nodes 16 --seed 0x2a --rules delay,crash\n  mapwire sim run --seed 7 --rules drop,restart --json\n  mapwire sim run --seed 7 --bug lost-signal --json\n  mapwire sim run --workload litmus --rules delay,drop\n  mapwire sim run --workload hlrc --rules delay,drop\n  mapwire sim run --workload global --rules crash,drop\n  mapwire sim run --workload rpc --rules drop,restart\n  mapwire sim run --trace job.mwt --seed 7"
    )]
    Run(run::RunArgs),
    /// Run new seeds for some minutes, up to the first that fails
    ///
    /// Without --workload all workloads are drawn in turn. With --bug, --trace, --calls or a number of nodes that not all of them take, all
    /// seeds make calls of exports and imports. At the end the faults of each rule are counted, and how often the condition of each check
    /// held; after 500 seeds what never happened is named.
    #[command(
        after_help = "Examples:\n  mapwire sim vopr --minutes 10\n  mapwire sim vopr --minutes 0.5 --nodes 16 --rules delay,pause --seed 1000\n  mapwire sim vopr --minutes 1 --workload shared"
    )]
    Vopr(vopr::VoprArgs),
    /// Run the machine that a paper measured, and put our tables and figures beside the published ones
    ///
    /// The machine runs the protocols and firmware of mapwire; processors, DMA and wires take the time that the paper states. Each constant is told with its
    /// source, and of each published figure whether it went into the machine (input), came out of it (predicted) or is
    /// another figure over again (repeated).
    #[command(
        after_help = "Examples:\n  mapwire sim paper gms-np\n  mapwire sim paper gms-np --row-size 8 --json\n  mapwire sim paper gms-np --plot figures.svg\n  mapwire sim paper vmmc --json\n  mapwire sim paper utlb\n  mapwire sim paper dynamic-handle --seed 7\n  mapwire sim paper today"
    )]
    Paper(paper::PaperArgs),
    /// Replay a traced program of the shared memory on another machine, and predict its time
    ///
    /// The trace says what each thread asked of the shared memory and how long it computed in between. The protocol runs anew, at the costs
    /// of the machine. What the program did in between takes as long as in the trace, times --speed. Beside the predicted times stand those
    /// of the traced run.
    #[command(
        after_help = "Examples:\n  mapwire run -n 8 --trace lu.mwt -- lu --size 1024 --no-check\n  mapwire sim replay lu.mwt --machine 1997\n  (mapwire bench fault --json; mapwire bench lock --json) > here.jsonl\n  mapwire sim replay lu.mwt --machine here --measured here.jsonl\n  mapwire sim replay lu.mwt --machine today --json"
    )]
    Replay(replay::ReplayArgs),
}

/// What both commands draw runs by.
#[derive(Debug, Args)]
pub(crate) struct DrawArgs {
    /// Nodes of the cluster, 1 to 4,096 (default: 2 to 16, drawn)
    #[arg(long, value_name = "N", value_parser = nodes, allow_negative_numbers = true)]
    nodes: Option<u16>,
    /// What goes wrong: all, none, or delay, partition, path, pause, slow, refuse-pins, forge, crash, drop, duplicate, reorder, corrupt, restart
    /// with commas between them; the last five need a lossy transport
    #[arg(long, value_name = "RULES", default_value = "all")]
    rules: String,
    /// Whether the transport may lose packets (default: drawn, or as the rules need it)
    #[arg(long)]
    delivery: Option<DeliveryArg>,
    /// What programs do (default: calls; of vopr: all in turn)
    #[arg(long, value_enum)]
    workload: Option<Workload>,
    /// Programs send and fetch what those of a trace (.mwt) did, when they did; to whom is drawn, as traces do not say
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// Calls of all programs together, up to 10,000,000; of a trace, those at its beginning (default: drawn; all of a trace)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    calls: Option<u32>,
    /// Put a bug in, to see that it is found
    #[arg(long, value_name = "BUG", value_parser = bug)]
    bug: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// All calls of exports and imports
    Calls,
    /// Loads, stores, locks and barriers of a shared memory; crashes and restarts, which end it, are left out
    Shared,
    /// Litmus tests of a shared memory, judged by the outcomes that sequential consistency allows
    Litmus,
    /// Litmus tests of a lazily consistent shared memory, judged by what its synchronisation allows
    Hlrc,
    /// Pages that are put into the idle memory of other nodes and fetched back, while nodes join, leave and die; restarts are left out
    Global,
    /// Remote procedure calls: each is carried out at most once, and ends with its own reply or an error
    Rpc,
}

impl Workload {
    const fn kind(self) -> Kind {
        match self {
            Self::Calls => Kind::Calls,
            Self::Shared => Kind::Shared,
            Self::Litmus => Kind::Litmus,
            Self::Hlrc => Kind::Hlrc,
            Self::Global => Kind::Global,
            Self::Rpc => Kind::Rpc,
        }
    }
}

/// What `--delivery` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeliveryArg {
    /// Each packet once and in order
    Lossless,
    /// Packets may be lost, repeated, reordered; the links recover
    Lossy,
}

impl DrawArgs {
    fn wanted(&self, kind: Kind) -> Result<Wants, SimError> {
        let rules = parse_rules(&self.rules)?;
        // All rules: those that the transport bears.
        let needs = rules.iter().find(|rule| rule.is_lossy).filter(|_| self.rules.trim() != "all");
        let lossy = match (self.delivery, needs) {
            (Some(DeliveryArg::Lossless), Some(rule)) => {
                return Err(format!(
                    "rule `{}` needs a transport that may lose packets: give --delivery lossy, or other rules",
                    rule.name
                )
                .into());
            }
            (None, None) => None,
            (delivery, needs) => Some(delivery == Some(DeliveryArg::Lossy) || needs.is_some()),
        };
        let wanted = Wanted {
            nodes: self.nodes,
            rules,
            lossy,
            calls: self.calls,
            litmus: kind == Kind::Litmus,
            replay: self.trace.as_ref().map(|_| self.replay()).transpose()?,
            canary: self.bug_of(kind)?,
            translation: None,
        };
        Ok((kind, wanted))
    }

    /// The bug, of those that the workload knows.
    fn bug_of(&self, kind: Kind) -> Result<Option<Canary>, SimError> {
        let Some(wanted) = &self.bug else { return Ok(None) };
        let found = kind.bugs().iter().find(|bug| bug.name() == wanted);
        found.map(|bug| Some(*bug)).ok_or_else(|| {
            let names: Vec<&str> = kind.bugs().iter().map(|bug| bug.name()).collect();
            let names = names.join(", ");
            format!("bug `{wanted}` is not one of this workload: expected one of {names}").into()
        })
    }

    fn replay(&self) -> Result<Replay, SimError> {
        let mut replay = Replay::default();
        let Some(path) = &self.trace else { return Ok(replay) };
        let most = self.calls.map_or(usize::MAX, |calls| calls as usize);
        for record in TraceReader::open(path)?.records() {
            if replay.calls() >= most {
                break;
            }
            let pushed = replay.push(&record?);
            pushed.map_err(|error| format!("cannot replay {}: {error}", path.display()))?;
        }
        Ok(replay)
    }
}

pub(crate) fn rule_names() -> Vec<&'static str> {
    let names = RULES.iter().map(|rule: &Rule| rule.name);
    ["all", "none"].into_iter().chain(names).collect()
}

pub(crate) fn bug_names() -> Vec<&'static str> {
    Canary::ALL.iter().map(|bug| bug.name()).collect()
}

fn nodes(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_NODES).contains(number));
    number.ok_or_else(|| format!("expected a number of nodes from 1 to {MOST_NODES}"))
}

fn seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a seed: a number below 2^64, decimal or behind 0x".to_owned())
}

fn bug(text: &str) -> Result<String, String> {
    if bug_names().contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("unknown bug: expected one of {}", bug_names().join(", ")))
    }
}

/// A seed that no run before had, in all likelihood.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |now| now.as_nanos() as u64);
    // Short enough to be typed.
    mapwire_sim::random::mix(nanoseconds) >> 32
}

/// The command that repeats a run.
fn repeats(seed: u64, kind: Kind, args: &DrawArgs) -> String {
    let mut command = format!("mapwire sim run --seed {seed} --rules {}", args.rules);
    if kind != Kind::Calls {
        command.push_str(&format!(" --workload {}", kind.name()));
    }
    if let Some(path) = &args.trace {
        command.push_str(&format!(" --trace {}", path.display()));
    }
    match args.delivery {
        None => {}
        Some(DeliveryArg::Lossless) => command.push_str(" --delivery lossless"),
        Some(DeliveryArg::Lossy) => command.push_str(" --delivery lossy"),
    }
    if let Some(nodes) = args.nodes {
        command.push_str(&format!(" --nodes {nodes}"));
    }
    if let Some(calls) = args.calls {
        command.push_str(&format!(" --calls {calls}"));
    }
    if let Some(bug) = &args.bug {
        command.push_str(&format!(" --bug {bug}"));
    }
    command
}

pub(crate) fn command(command: &SimCommand) -> ExitCode {
    let done = match command {
        SimCommand::Run(args) => run::command(args),
        SimCommand::Vopr(args) => vopr::command(args),
        SimCommand::Paper(args) => paper::command(args),
        SimCommand::Replay(args) => replay::command(args),
    };
    done.unwrap_or_else(|error| {
        let code = if error.is::<mapwire_sim::RuleError>() { 2 } else { 1 };
        crate::fail(error.as_ref(), code)
    })
}
