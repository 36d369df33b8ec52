//! The command `mapwire-bench`, by which `mapwire bench` works: every figure stands beside the raw limit measured in the same run.
//!
//! A bench is a row of [`BENCHES`]: a name, what it measures, and a function that hands its rows to
//! a [`Report`], one by one as they come. [`measure`] holds what benches share: baselines before and
//! after each point, points dropped when the machine changed meanwhile; [`job`] starts ranks and keeps them in step.
#![deny(unsafe_code)]

#[macro_use]
extern crate mapwire_console;

mod args;
mod directory;
mod far;
mod heap;
mod inbox;
mod job;
mod loops;
mod measure;
mod messages;
mod mutex;
mod passing;
mod peers;
mod placement;
mod programs;
#[allow(unsafe_code)]
mod raw;
mod row;
mod rpc;
mod sends;
mod shared;
mod traffic;
mod translation;
mod twins;
mod udp;
mod waiting;
mod wakes;
#[allow(unsafe_code)]
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mapwire::log;
use mapwire_console::{fail, stdio};

use args::{Cli, Command, Plan};
use mapwire_settings::Transport;
use row::Report;

/// An error for the user. The rows so far have been printed.
pub(crate) type BenchError = Box<dyn std::error::Error>;

/// One bench: its name, one line that says what is measured against what, and what runs it.
type Bench = (&'static str, &'static str, fn(&Plan, &mut Report) -> Result<(), BenchError>);

/// All benches, in the order of `--list`.
#[rustfmt::skip]
const BENCHES: &[Bench] = &[
    ("send-latency", "one way between two ranks, direct and ring path, beside a plain put through the same memory", sends::latency),
    ("send-bandwidth", "a stream of sends, direct and ring path, as a share of memcpy of that size", sends::bandwidth),
    ("fetch-latency", "a remote fetch, direct and ring path, beside its raw parts", sends::fetch),
    ("atomic-latency", "an atomic addition in another rank's memory, direct and ring path, beside its raw parts", sends::atomics),
    ("wake-latency", "a signal to a rank that sleeps until it comes, beside a plain put and a futex wake", wakes::wakes),
    ("notify-latency", "from a send to the receiver's handler, polling and sleeping, beside its raw parts", wakes::notify),
    ("lookup", "user-level check, NIC cache hit and miss, beside a dependent load (UTLB Tables 1 and 2)", translation::lookup),
    ("pin", "pinning and unpinning 1 to 32 pages, both pinners, beside the bare system calls (UTLB Table 1)", translation::pin),
    ("diff", "a twin of a page and the bytes that differ from it, beside memcpy and memcmp", twins::diff),
    ("fault", "read and write faults on minipages, beside their raw parts", shared::fault),
    ("lock", "the shared memory's lock, uncontended and contended, beside a flag round trip", shared::lock),
    ("mutex", "a mutex in shared memory, alone and with 4 ranks, beside a process-shared pthread mutex", mutex::mutex),
    ("barrier", "an empty barrier of 2 and 4 ranks, beside a flag round trip", shared::barrier),
    ("passing", "1 GB that one rank writes and another reads, beside memcpy by two mappings, or beside datagrams", passing::passing),
    ("heap", "allocations in memory that ranks share: long, many, freed at once, passed to another process; beside mimalloc", heap::heap),
    ("waiting", "idle ranks, wake-ups, hops, barriers and locks beside futexes; 4 ranks that share processors", waiting::waiting),
    ("traffic", "datagrams among 16 ranks of as many hosts, all to all and all to one, beside bare sockets; and how fairly it is shared", traffic::traffic),
    ("far-scan", "walks over memory four times as large as its share of RAM, beside the kernel's bare copies and drops of pages", far::scan),
    ("far-fault", "a fault on a page of such memory that is away, beside a bare userfaultfd fault", far::fault),
    ("directory", "lookups and getpages with the page directory on the host and on the NIC, beside a raw message there and back (GMS-NP Tables 1, 2, 4, 5)", directory::directory),
    ("programs", "whole parallel programs as 2 and 4 ranks of this host, beside as many threads", programs::programs),
    ("rpc", "remote procedure calls that poll, sleep, carry 1 MB or go over UDP, beside the raw way of the same bytes; 64 callers", rpc::rpc),
];

/// Benches that `bench/peers/run.sh` starts. `--list` does not show them.
const PEERS: &[Bench] = &[
    ("peers-latency", "", |plan, report| peers::measure(plan, report, false)),
    ("peers-bandwidth", "", |plan, report| peers::measure(plan, report, true)),
];

/// The words that an argument takes where only the code lists them.
fn values_of(argument: &str) -> Option<Vec<&'static str>> {
    (argument == "name").then(|| BENCHES.iter().map(|(name, ..)| *name).collect())
}

fn main() -> ExitCode {
    log::start(log::Look::default());
    let code = match Cli::try_parse() {
        Ok(cli) => match cli.command {
            Command::Bench(args) => command(&args),
            Command::Asked(asked) => asked.answer(Cli::command(), values_of),
        },
        Err(error) => mapwire_console::show(&error),
    };
    stdio::finish(code)
}

/// `mapwire bench`.
fn command(plan: &Plan) -> ExitCode {
    if plan.list {
        list(plan.json);
        return ExitCode::SUCCESS;
    }
    let name = plan.name.as_deref().unwrap_or_default();
    let Some(&(name, _, run)) = BENCHES.iter().chain(PEERS).find(|bench| bench.0 == name) else {
        eprintln!("mapwire: `{name}` is not a bench; `mapwire bench --list` prints those there are");
        return ExitCode::from(2);
    };
    let mut report = Report::new(name, plan.json);
    if name != "directory" && (plan.placement.is_some() || plan.seconds.or(plan.rate).is_some()) {
        eprintln!("mapwire: --placement, --seconds and --rate are for `bench directory`; leave them out for `{name}`");
        return ExitCode::from(2);
    }
    let run = match (plan.transport(), name) {
        (Transport::Shm, _) => run,
        (Transport::Udp, "far-fault") => far::remote_fault,
        (Transport::Udp | Transport::Ofi, "send-latency" | "send-bandwidth") => run,
        (Transport::Udp, "fault" | "traffic" | "rpc" | "passing") => run,
        (Transport::Udp | Transport::Ofi, _) => {
            eprintln!(
                "mapwire: bench `{name}` does not run over {}; send-latency, send-bandwidth, fault, passing, traffic, far-fault and rpc run over udp, the first two over ofi",
                plan.transport_text
            );
            return ExitCode::from(2);
        }
    };
    let outcome = run(plan, &mut report);
    report.finish();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error.as_ref(), 1),
    }
}

fn list(json: bool) {
    let width = BENCHES.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    for &(name, summary, _) in BENCHES {
        if json {
            println!("{}", serde_json::json!({"kind": "bench", "bench": name, "summary": summary}));
        } else {
            let summary = stdio::wrapped(summary, width + 2, stdio::columns());
            println!("{name:<width$}  {summary}");
        }
    }
}
