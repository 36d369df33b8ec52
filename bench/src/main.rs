//! The command `mapwire-bench`, by which `mapwire bench` works: every figure stands beside the raw limit measured in the same run.
//!
//! A bench is a row of [`BENCHES`]: a name, what it measures, and a function that hands its rows to
//! a [`Report`], one by one as they come. [`measure`] holds what benches share: baselines before and
//! after each point, points dropped when the machine changed meanwhile; [`pair`] runs the other
//! half of a measurement in a process of its own.
#![deny(unsafe_code)]

#[macro_use]
extern crate mapwire_console;

mod args;
mod datagrams;
mod directory;
mod exports;
mod far;
mod flags;
pub(crate) mod job;
pub(crate) mod measure;

mod messages;
mod notify;
mod placement;
#[allow(unsafe_code)]
mod raw;
pub(crate) mod row;
mod rpc;
mod sends;
mod shared;
mod sim;
mod study;
mod traffic;
mod translation;
#[allow(unsafe_code)]
mod views;
mod waiting;
mod wakes;
#[allow(unsafe_code)]
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mapwire::global::DirectoryPlacement;
use mapwire::log;
use mapwire_console::{fail, stdio};

use args::{BenchArgs, Cli, Command};
use row::Report;

/// How the ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// By shared memory.
    Shm,
    /// As if each were on a host of its own.
    Udp,
    /// The same, by libfabric.
    Ofi,
}

impl Transport {
    /// What a text means that was checked.
    fn of(text: &str) -> Self {
        match text {
            "udp" => Self::Udp,
            text if text.starts_with("ofi") => Self::Ofi,
            _ => Self::Shm,
        }
    }
}

/// How a bench is to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Few and short runs: to show that the bench works, not to be quoted.
    pub(crate) quick: bool,
    /// How the ranks reach each other.
    pub(crate) transport: Transport,
    /// The same as it was written.
    pub(crate) transport_text: &'static str,
    /// Datagrams are not sealed.
    pub(crate) insecure: bool,
    /// Of `directory`: which placement, for how many seconds, at which rate.
    pub(crate) placement: Option<DirectoryPlacement>,
    pub(crate) seconds: Option<u64>,
    pub(crate) rate: Option<u64>,
}

/// What went wrong, for the user. The rows so far have been printed.
pub(crate) type BenchError = Box<dyn std::error::Error>;

/// One bench.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// One line: what is measured, against what.
    pub(crate) summary: &'static str,
    pub(crate) run: fn(Plan, &mut Report) -> Result<(), BenchError>,
}

/// All benches, in the order of `--list`.
const BENCHES: &[Bench] = &[
    Bench {
        name: "send-latency",
        summary: "one way between two ranks, direct and ring path, beside a plain put through the same memory",
        run: sends::latency,
    },
    Bench {
        name: "send-bandwidth",
        summary: "a stream of sends, direct and ring path, as a share of memcpy of that size",
        run: sends::bandwidth,
    },
    Bench {
        name: "fetch-latency",
        summary: "a remote fetch, direct and ring path, beside its raw parts",
        run: sends::fetch,
    },
    Bench {
        name: "atomic-latency",
        summary: "an atomic addition in another rank's memory, direct and ring path, beside its raw parts",
        run: sends::atomics,
    },
    Bench {
        name: "export",
        summary: "heap memory exported and taken back, beside the bare system calls and the copy",
        run: exports::export,
    },
    Bench {
        name: "wake-latency",
        summary: "a signal to a rank that sleeps until it comes, beside a plain put and a futex wake",
        run: wakes::wakes,
    },
    Bench {
        name: "notify-latency",
        summary: "from a send to the receiver's handler, polling and sleeping, beside its raw parts",
        run: notify::notify,
    },
    Bench {
        name: "lookup",
        summary: "user-level check, NIC cache hit and miss, beside a dependent load (UTLB Tables 1 and 2)",
        run: translation::lookup,
    },
    Bench {
        name: "pin",
        summary: "pinning and unpinning 1 to 32 pages, both pinners, beside the bare system calls (UTLB Table 1)",
        run: translation::pin,
    },
    Bench { name: "fault", summary: "read and write faults on minipages, beside their raw parts", run: shared::fault },
    Bench {
        name: "lock",
        summary: "the shared memory's lock, uncontended and contended, beside a flag round trip",
        run: shared::lock,
    },
    Bench {
        name: "barrier",
        summary: "an empty barrier of 2 and 4 ranks, beside a flag round trip",
        run: shared::barrier,
    },
    Bench {
        name: "waiting",
        summary: "idle ranks, wake-ups, hops, barriers and locks beside futexes; 4 ranks that share processors",
        run: waiting::waiting,
    },
    Bench {
        name: "traffic",
        summary: "datagrams among 16 ranks of as many hosts, all to all and all to one, beside bare sockets; and how fairly it is shared",
        run: traffic::traffic,
    },
    Bench {
        name: "far-scan",
        summary: "walks over memory four times as large as its share of RAM, beside the kernel's bare copies and drops of pages",
        run: far::scan,
    },
    Bench {
        name: "far-fault",
        summary: "a fault on a page of such memory that is away, beside a bare userfaultfd fault",
        run: far::fault,
    },
    Bench {
        name: "directory",
        summary: "lookups and getpages with the page directory on the host and on the NIC, beside a raw message there and back (GMS-NP Tables 1, 2, 4, 5)",
        run: directory::directory,
    },
    Bench {
        name: "rpc",
        summary: "remote procedure calls that poll, sleep, carry 1 MB or go over UDP, beside the raw way of the same bytes; 64 callers",
        run: rpc::rpc,
    },
    Bench {
        name: "study",
        summary: "lookups a second that the laboratory replays, one configuration and many, beside reading the page numbers",
        run: study::study,
    },
    Bench {
        name: "sim",
        summary: "packets a second that simulated nodes deliver on one core, beside entries through a bare heap",
        run: sim::sim,
    },
    Bench { name: "views", summary: "several views of one memory, beside one (Millipage Fig. 2)", run: views::views },
];

/// The words that an argument takes where only the code lists them.
fn values_of(argument: &str) -> Option<Vec<&'static str>> {
    (argument == "name").then(|| BENCHES.iter().map(|bench| bench.name).collect())
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
fn command(args: &BenchArgs) -> ExitCode {
    if args.list {
        list(args.json);
        return ExitCode::SUCCESS;
    }
    let name = args.name.as_deref().unwrap_or_default();
    let Some(bench) = BENCHES.iter().find(|b| b.name == name) else {
        eprintln!("mapwire: `{name}` is not a bench; `mapwire bench --list` prints those there are");
        return ExitCode::from(2);
    };
    let mut report = Report::new(bench.name, args.json);
    let plan = Plan {
        quick: args.quick,
        transport: Transport::of(&args.transport),
        // For as long as the process.
        transport_text: args.transport.clone().leak(),
        insecure: args.insecure,
        placement: args.placement,
        seconds: args.seconds,
        rate: args.rate,
    };
    let is_directory = bench.name == "directory";
    if !is_directory && (plan.placement.is_some() || plan.seconds.or(plan.rate).is_some()) {
        eprintln!("mapwire: --placement, --seconds and --rate are for `bench directory`; leave them out for `{name}`");
        return ExitCode::from(2);
    }
    let run = match (plan.transport, bench.name) {
        (Transport::Shm, _) => bench.run,
        (Transport::Udp | Transport::Ofi, "send-latency") => datagrams::latency,
        (Transport::Udp | Transport::Ofi, "send-bandwidth") => datagrams::bandwidth,
        (Transport::Udp, "fault") => shared::fault,
        (Transport::Udp, "traffic") => traffic::traffic,
        (Transport::Udp, "far-fault") => far::remote_fault,
        (Transport::Udp, "rpc") => rpc::rpc,
        (Transport::Udp | Transport::Ofi, _) => {
            eprintln!(
                "mapwire: bench `{name}` does not run over {}; send-latency, send-bandwidth, fault, traffic, far-fault and rpc run over udp, the first two over ofi",
                args.transport
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
    let width = BENCHES.iter().map(|b| b.name.len()).max().unwrap_or(0);
    for bench in BENCHES {
        if json {
            println!("{}", serde_json::json!({"kind": "bench", "bench": bench.name, "summary": bench.summary}));
        } else {
            let summary = stdio::wrapped(bench.summary, width + 2, stdio::columns());
            println!("{:<width$}  {summary}", bench.name);
        }
    }
}
