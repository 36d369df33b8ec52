//! The records of a job: of one trace, or of the files of its ranks in a folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use mapwire_trace::{Merge, RawReader, TraceReader};
use mapwire_wire::{TraceOp, TraceRecord};

use super::super::LabError;

/// Most ranks of a job.
const MOST_RANKS: usize = 4096;

/// Where the records are.
#[derive(Debug)]
pub(super) struct Input {
    files: Vec<PathBuf>,
    is_raw: bool,
}

/// The ranks of a job.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Node and process of each rank.
    pub(super) ranks: Vec<(u16, u16)>,
    processes: u16,
    /// Time of the first record.
    pub(super) first_ns: u64,
    pub(super) command: Vec<String>,
}

impl Shape {
    /// The rank of a record; `None` of one that has come since the ranks were found.
    pub(super) fn rank(&self, record: &TraceRecord) -> Option<usize> {
        let (node, process) = (record.node.get(), record.process.get());
        let rank = usize::from(node) * usize::from(self.processes) + usize::from(process);
        (process < self.processes && rank < self.ranks.len()).then_some(rank)
    }
}

/// Head of a rank's trace.
#[derive(Debug)]
struct Span {
    file: String,
    first_ns: u64,
    last_ns: u64,
    opened: Option<(u64, u64)>,
}

fn ends_in(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|it| it == ending)
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

impl Input {
    pub(super) fn find(path: &Path) -> Result<Self, LabError> {
        if !path.is_dir() {
            return Ok(Self { files: vec![path.to_owned()], is_raw: ends_in(path, "raw") });
        }
        let name = path.display();
        let entries = std::fs::read_dir(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let mut all: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        all.sort();
        let of = |ending| all.iter().filter(|path| ends_in(path, ending)).cloned().collect::<Vec<_>>();
        let (traces, ranks) = (of("mwt"), of("raw"));
        match (traces.len(), ranks.len()) {
            (0, 0) => Err(format!(
                "the folder {name} has neither a trace (.mwt) nor files of ranks (.raw): `mapwire run --trace FILE.mwt` makes a trace"
            )
            .into()),
            (1, 0) => Ok(Self { files: traces, is_raw: false }),
            (0, _) => Ok(Self { files: ranks, is_raw: true }),
            _ => Err(format!("the folder {name} has traces of different jobs: {}; name one", names(&[traces, ranks].concat())).into()),
        }
    }

    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Gives all records, in order of time, and says which files are good in part only.
    pub(super) fn each(&self, mut take: impl FnMut(&TraceRecord)) -> Result<Vec<String>, LabError> {
        let mut damaged = Vec::new();
        if !self.is_raw {
            for path in &self.files {
                let mut records = TraceReader::open(path)?.keep_good_part().records();
                for record in &mut records {
                    take(&record?);
                }
                damaged.extend(records.reader().damage().map(ToString::to_string));
            }
            return Ok(damaged);
        }
        let mut merged = Merge::new(self.raw()?);
        for record in &mut merged {
            take(&record?);
        }
        for stream in merged.streams().filter(|stream| stream.torn_bytes() > 0) {
            damaged
                .push(format!("{} ends in a torn record: its rank was killed, or the file was cut off", stream.file()));
        }
        Ok(damaged)
    }

    fn raw(&self) -> Result<Vec<RawReader<File>>, LabError> {
        let opened = self.files.iter().map(|path| RawReader::open(path).map_err(LabError::from));
        opened.collect()
    }

    /// Finds the ranks.
    ///
    /// # Errors
    /// No records; files that cannot be of one job.
    pub(super) fn shape(&self) -> Result<Shape, LabError> {
        let mut shape = Shape::default();
        if self.is_raw {
            self.check_ranks()?;
        } else {
            shape.command = TraceReader::open(&self.files[0])?.metadata().command.clone();
        }
        let (mut nodes, mut processes, mut first_ns) = (0_usize, 0_usize, None);
        let damaged = self.each(|record| {
            nodes = nodes.max(usize::from(record.node.get()) + 1);
            processes = processes.max(usize::from(record.process.get()) + 1);
            first_ns.get_or_insert(record.time_ns.get());
        })?;
        let files = names(&self.files);
        let Some(first_ns) = first_ns else {
            let why = damaged.first().map_or("no records are there, so there is nothing to show", String::as_str);
            return Err(format!("{files}: {why}").into());
        };
        if nodes * processes > MOST_RANKS {
            return Err(format!(
                "{files}: {nodes} nodes of {processes} processes; a job has {MOST_RANKS} ranks at most"
            )
            .into());
        }
        shape.processes = processes as u16;
        shape.first_ns = first_ns;
        shape.ranks = (0..nodes).flat_map(|node| (0..processes).map(move |of| (node as u16, of as u16))).collect();
        Ok(shape)
    }

    /// Files of ranks are of one job if each is of the rank that its name says, all have opened the same shared memory, and no rank ended
    /// before another began.
    fn check_ranks(&self) -> Result<(), LabError> {
        let mut spans: BTreeMap<u16, Span> = BTreeMap::new();
        for (reader, path) in self.raw()?.into_iter().zip(&self.files) {
            let file = reader.file().to_owned();
            let named = path.file_stem().and_then(|it| it.to_str()).and_then(|it| it.parse::<u16>().ok());
            for record in reader {
                let record = record?;
                let (node, time_ns) = (record.node.get(), record.time_ns.get());
                if named.is_some_and(|named| named != node) || spans.get(&node).is_some_and(|span| span.file != file) {
                    return Err(
                        format!("{file} has records of rank {node}: the folder has traces of different jobs").into()
                    );
                }
                let fresh = || Span { file: file.clone(), first_ns: time_ns, last_ns: time_ns, opened: None };
                let span = spans.entry(node).or_insert_with(fresh);
                span.last_ns = span.last_ns.max(time_ns);
                if record.op() == Some(TraceOp::OpenShared) {
                    span.opened = Some((record.address.get(), record.bytes.get()));
                }
            }
        }
        let mut all = spans.values();
        let Some(first) = all.next() else { return Ok(()) };
        let differs = |it: &&Span| {
            let is_apart = it.first_ns > first.last_ns || it.last_ns < first.first_ns;
            is_apart || it.opened.zip(first.opened).is_some_and(|(one, other)| one != other)
        };
        match all.find(differs) {
            None => Ok(()),
            Some(other) => Err(format!(
                "{} and {} are of different jobs: their ranks ran at other times, or opened other shared memory",
                first.file, other.file
            )
            .into()),
        }
    }
}
