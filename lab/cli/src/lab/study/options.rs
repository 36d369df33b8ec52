//! What all commands that study traces take: the traces, which operations count, what a lookup costs.

use std::path::PathBuf;
use std::sync::Mutex;

use clap::{Args, ValueEnum};
use mapwire_study::config::Configuration;
use mapwire_study::cost::{CostProfile, from_bench_rows};
use mapwire_study::decode::Selection;
use mapwire_study::files::{FileError, TraceFindings, study_files};
use mapwire_study::study::Request;
use mapwire_study::tables::{direct_note, left_out_note};

use super::super::{DamagedError, LabError, UsageError};
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// Trace files
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Which operations are lookups
    #[arg(long, value_name = "OP,...", value_delimiter = ',')]
    ops: Vec<Op>,
    /// Which paths count
    #[arg(long, value_name = "PATH,...", value_delimiter = ',')]
    paths: Vec<PathKind>,
    /// What the parts of a lookup cost: `papers`, or a file with what `mapwire bench lookup|pin|notify-latency --json` printed
    #[arg(long, value_name = "papers|FILE", default_value = "papers")]
    cost: String,
    /// Threads (default: one for each core)
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Op {
    Send,
    Fetch,
    #[value(name = "recv")]
    Receive,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PathKind {
    /// Through the NIC.
    Ring,
    /// By mapped memory.
    Direct,
}

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    Table,
    Csv,
    Json,
    Parquet,
}

/// What was found out about the traces.
pub(crate) struct Studied {
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) traces: Vec<TraceFindings>,
}

impl Studied {
    /// Tells of traces of which only a part was good, or which never met a NIC, and of configurations that cannot do what they do.
    pub(crate) fn warn(&self) -> Result<(), LabError> {
        for trace in &self.traces {
            if let Some(note) = direct_note(&trace.name(), &trace.findings.totals()) {
                eprintln!("mapwire: note: {note}");
            }
        }
        for trace in &self.traces {
            if let Some(note) = left_out_note(&trace.name(), &trace.findings.left_out) {
                eprintln!("mapwire: note: {note}");
            }
        }
        let failures = self.traces.iter().flat_map(|trace| {
            trace.findings.failures.iter().map(|(_, why)| format!("{}: {why}", trace.path.display()))
        });
        let failures: Vec<_> = failures.collect();
        let damaged = self.traces.iter().filter_map(|it| it.damage.as_ref());
        let damaged = DamagedError::tell(&damaged.map(ToString::to_string).collect::<Vec<_>>());
        match failures.as_slice() {
            [] => damaged,
            failures => Err(failures.join("\nmapwire: ").into()),
        }
    }
}

impl TraceOptions {
    /// Sends and fetches, on all paths, unless `--ops` or `--paths` say otherwise.
    pub(crate) fn sends(&self) -> Selection {
        self.selection(&[Op::Send, Op::Fetch])
    }

    /// Operations that were asked for; `ops` if none were.
    fn selection(&self, ops: &[Op]) -> Selection {
        let ops = if self.ops.is_empty() { ops } else { &self.ops };
        let path = |path| self.paths.is_empty() || self.paths.contains(&path);
        Selection {
            send: ops.contains(&Op::Send),
            fetch: ops.contains(&Op::Fetch),
            receive: ops.contains(&Op::Receive),
            ring: path(PathKind::Ring),
            direct: path(PathKind::Direct),
            piece_pages: None,
        }
    }

    /// The profile of costs that was asked for.
    pub(crate) fn profile(&self) -> Result<CostProfile, LabError> {
        if self.cost == "papers" {
            return Ok(CostProfile::papers());
        }
        let text = std::fs::read_to_string(&self.cost).map_err(|error| {
            UsageError(format!("--cost {}: cannot read it: {error}; `papers` needs no file", self.cost))
        })?;
        Ok(from_bench_rows(&text, &self.cost).map_err(|error| UsageError(format!("--cost {}: {error}", self.cost)))?)
    }

    /// Studies all operations of the traces.
    pub(crate) fn study(&self, configurations: Vec<Configuration>, causes: bool) -> Result<Studied, LabError> {
        let request = Request { configurations, selection: self.all(), causes, threads: self.threads() };
        Ok(Studied { configurations: request.configurations.clone(), traces: self.run(&request)? })
    }

    /// All operations, on all paths, unless `--ops` or `--paths` say otherwise.
    pub(crate) fn all(&self) -> Selection {
        self.selection(&[Op::Send, Op::Fetch, Op::Receive])
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores).max(1)
    }

    pub(crate) fn run(&self, request: &Request) -> Result<Vec<TraceFindings>, FileError> {
        let sizes = self.traces.iter().map(|path| std::fs::metadata(path).map_or(0, |it| it.len()));
        let progress = Mutex::new(Progress::bytes("studying", Some(sizes.sum())));
        study_files(&self.traces, request, &|bytes| {
            if let Ok(progress) = progress.lock() {
                progress.at(bytes);
            }
        })
    }
}
