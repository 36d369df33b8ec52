//! `mapwire lab`: the laboratory. Each subcommand is a module with its arguments and its `command`.
//!
//! | module | command |
//! |---|---|
//! | [`import`], [`export`] | `mapwire lab import`, `mapwire lab export`: other formats |
//! | [`generate`] | `mapwire lab generate`: synthetic traces |
//! | [`info`] | `mapwire lab info`: what a trace is made of |
//! | [`memory`] | `mapwire lab memory`: what a NIC's memory holds |
//! | [`report`] | `mapwire lab report`: the papers' tables and figures as a page of plots |
//! | [`study`] | `mapwire lab study`: designs, sizes and policies, all combinations, on traces |
//! | [`tables`] | `mapwire lab tables`: the papers' tables and figures, ours beside the papers' |
//! | [`timeline`] | `mapwire lab timeline`: what each thread of a job waited for, and what moved between its ranks |

mod count;
mod export;
mod formats;
mod generate;
mod import;
mod info;
mod memory;
pub(crate) mod output;
mod report;
mod study;
mod tables;
mod target;
mod timeline;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) type LabError = Box<dyn std::error::Error>;

/// Options that make no sense, or not together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// Traces are cut off or damaged. What was found in their good parts is written.
#[derive(Debug, thiserror::Error)]
#[error("{0}; only that part was used")]
pub(crate) struct DamagedError(String);

impl DamagedError {
    /// The exit code of a command that studied the good part of a trace.
    pub(crate) const EXIT_CODE: u8 = 3;

    /// An error if there is any damage.
    pub(crate) fn tell(damaged: &[String]) -> Result<(), LabError> {
        match damaged {
            [] => Ok(()),
            _ => Err(Self(damaged.join("; ")).into()),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Show what a trace is made of: operations, lookups, footprints
    ///
    /// A lookup is a page of a transfer (send, fetch, recv); a footprint is the number of distinct pages of a process's
    /// transfers. A trace that is cut off or damaged is shown as far as it is good.
    #[command(after_help = "Examples:\n  mapwire lab info fft.mwt\n  mapwire lab info --json fft.mwt")]
    Info(info::InfoArgs),
    /// Make a trace of a file of another format
    ///
    /// csv: a header `time_ns,node,process,op,address,bytes` (any order, also `direct`), op send, fetch, recv, export, unexport, hold,
    /// release, absent or present, or what was asked of shared memory: compute, open-shared, shape-shared, allocate, read-fault,
    /// write-fault, prefetch, prefetch-write, lock, unlock, barrier, broadcast, give or take; addresses decimal or behind 0x. parquet: the same columns. din (DineroIV): label 0 is a send, 1 a
    /// recv, 2 a fetch; a line's number is its time. oracleGeneral (libCacheSim): an object is a page, a request a send of it.
    /// Records must be in order of time, or be put so by --sort.
    #[command(
        after_help = "Examples:\n  mapwire lab import fft.csv -o fft.mwt\n  mapwire lab import --sort unordered.csv -o fft.mwt\n  mapwire lab import cloud.oracleGeneral -o cloud.mwt --dense-ids"
    )]
    Import(import::ImportArgs),
    /// Write a trace in another format
    ///
    /// csv and parquet hold a line or row for each record. din (DineroIV) and oracleGeneral (libCacheSim) hold lookups: a line or
    /// request for each page of each transfer, of one process or of all with --tag-processes; oracleGeneral knows the next
    /// access of each. din's addresses have up to 64 bits: build DineroIV for them.
    #[command(
        after_help = "Examples:\n  mapwire lab export fft.mwt -o fft.csv\n  mapwire lab export fft.mwt -o fft.din --node 0 --process 2\n  mapwire lab export fft.mwt -o fft.oracleGeneral --tag-processes --time-unit us"
    )]
    Export(export::ExportArgs),
    /// Make up a trace by a pattern of communication
    ///
    /// The file says that it is synthetic, with the whole command. The same options give the same bytes on every computer.
    /// A transfer is two records: a send or fetch, and the recv at its other side.
    #[command(
        after_help = "Examples:\n  mapwire lab generate zipf -o zipf.mwt --records 10M --seed 7\n  mapwire lab generate transpose -o fft.mwt --nodes 8 --processes 1 --buffer 64M\n  mapwire lab generate --mix zipf,sequential -o mix.mwt"
    )]
    Generate(generate::GenerateArgs),
    /// Replay traces against translation designs: all combinations of the values given
    ///
    /// A lookup is one page of one operation. Each node has a NIC of its own, which its processes share; the rows are sums over
    /// nodes. Each NIC miss has a cause, as in DineroIV: conflict if a fully associative LRU cache of as many entries would
    /// hit; otherwise compulsory at the first lookup of the page (of the line, where lines are filled whole), or capacity. The cost of a
    /// lookup follows the equations of UTLB §6.2; dynamic handles cost a range (dynamic handle lookup §V.C). An option that a design does not have leaves that design as it is.
    ///
    /// NIC bytes are what the design charges the NIC's memory budget, on the node that needs most. With unlimited NIC memory only the
    /// first lookup of a page (of its line) misses; --within finds the fewest entries that cost hardly more.
    ///
    /// Of the policies, `optimum` unpins what is needed furthest in the future (Belady): none pins or unpins less. It reads the trace
    /// twice, and keeps 4 bytes for each lookup. An application can choose itself (UTLB §3.4): `released` unpins first what the
    /// program does not need again, as it could tell on freeing a buffer. `sweep` unpins what it used last while it goes at even steps
    /// through memory that it used before, and what it used least recently otherwise.
    ///
    /// Of a trace that is cut off or damaged the good part is studied; the exit code is 3 then. It is 2 for options that make no sense, and
    /// 1 for traces that cannot be studied, and where a row is missing as its configuration cannot do what the trace does.
    #[command(
        after_help = "Examples:\n  mapwire lab study fft.mwt --entries 1K,2K,4K,8K,16K --ways 1,2,4 --offset on,off\n  mapwire lab study fft.mwt lu.mwt --design hierarchical,interrupt --limit none,4MiB --ops send,fetch --format csv -o rows.csv\n  mapwire lab study fft.mwt --policy lru,mru,lfu,mfu,random --limit 1M --ops send,fetch --cost bench.jsonl\n  mapwire lab study fft.mwt lu.mwt --policy lru,sweep,optimum --limit 1/8,1/2 --ops send,fetch --sum\n  mapwire lab study fft.mwt --entries 64,256,1K,4K,16K --ways 1,4 --ops send,fetch --within 3%"
    )]
    Study(Box<study::StudyArgs>),
    /// Show what a NIC's memory holds under a design, structure by structure
    ///
    /// The firmware is given the processes, exports, imports and pages, and asked (dynamic handle lookup, Figure 3). Lookup structures
    /// are the design's, the export table and the import table.
    #[command(
        after_help = "Examples:\n  mapwire lab memory --design per-process,entries=32K,dynamic-handle\n  mapwire lab memory --design dynamic-handle --entries 8K,16K,32K --line 64 --processes 16 --json"
    )]
    Memory(memory::MemoryArgs),
    /// Print the papers' tables and figures, computed on traces, beside what the papers print
    ///
    /// UTLB Tables 3 to 8, Figures 7 and 8, and dynamic handle lookup Figures 3 and 5. Our columns are the traces. UTLB's tables count sends
    /// and fetches, as its traces had them, Figure 5 all operations, unless --ops is given. Under a limit on pinned memory, transfers of more
    /// pages are cut into pieces. A number in parentheses is
    /// printed under a column that cannot be its own; `?` is not legible in the paper, `-` does not exist.
    #[command(after_help = "Examples:\n  mapwire lab tables fft.mwt lu.mwt\n  mapwire lab tables fft.mwt --json")]
    Tables(tables::TablesArgs),
    /// Write one HTML page with the papers' tables and figures as interactive plots
    ///
    /// What `mapwire lab tables` prints, with plots; then a chapter for each machine of `mapwire sim paper`. The page needs no network.
    #[command(
        after_help = "Examples:\n  mapwire lab report fft.mwt lu.mwt -o report.html\n  mapwire lab report fft.mwt --machines gms-np -o report.html"
    )]
    Report(report::ReportArgs),
    /// Show who waited for what and when, and how many bytes moved between which ranks
    ///
    /// Of a trace that `mapwire run --trace` has written, or a folder with one. With -o it writes Perfetto's JSON: a process for each rank,
    /// a track for each thread with its faults, locks, barriers and broadcasts, one for what moves, with arrows between ranks, and counters
    /// of faults and bytes a millisecond. Open it at ui.perfetto.dev.
    ///
    /// The table has a row for each rank that gives bytes, and a column for each that gets them; with --matrix it is drawn too. It counts the
    /// shared memory's bytes. What else a rank sends or fetches has no peer in a trace, and a column of its own. Traces of before have none.
    ///
    /// Of a trace that is cut off or damaged the good part is shown; the exit code is 3 then.
    #[command(
        after_help = "Examples:\n  mapwire run -n 2 --coherence minipages --trace sor.mwt -- sor\n  mapwire lab timeline sor.mwt -o sor.json\n  mapwire lab timeline sor.mwt --matrix sor.svg\n  mapwire lab timeline sor.mwt --json"
    )]
    Timeline(timeline::TimelineArgs),
}

pub(crate) fn command(command: &LabCommand) -> ExitCode {
    let done = match command {
        LabCommand::Info(args) => info::command(args),
        LabCommand::Import(args) => import::command(args),
        LabCommand::Export(args) => export::command(args),
        LabCommand::Generate(args) => generate::command(args),
        LabCommand::Study(args) => study::command(args),
        LabCommand::Memory(args) => memory::command(args),
        LabCommand::Tables(args) => tables::command(args),
        LabCommand::Report(args) => report::command(args),
        LabCommand::Timeline(args) => timeline::command(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let usage = error.is::<UsageError>() || error.is::<mapwire_study::sweep::SweepError>();
            let code = match (usage, error.is::<DamagedError>()) {
                (true, _) => 2,
                (_, true) => DamagedError::EXIT_CODE,
                _ => 1,
            };
            crate::fail(error.as_ref(), code)
        }
    }
}
