//! `mapwire run --trace`: the ranks write what they communicate; when the job is over, their files become one trace in order of time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mapwire_console::whole_file::{Destination, WholeFile};
use mapwire_console::with_causes;
use mapwire_driver::capture::{counters_of, file_of};
use mapwire_trace::{Metadata, RawReader, TraceWriter};

use super::hosts::clock_of;

pub(super) struct Trace {
    target: Destination,
    ranks: u32,
    hosts: u32,
    per_node: u16,
    command: Vec<String>,
    began: SystemTime,
}

impl Trace {
    pub(super) fn new(target: Destination, ranks: u32, hosts: u32, per_node: u16, command: Vec<String>) -> Self {
        Self { target, ranks, hosts, per_node, command, began: SystemTime::now() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.target.path()
    }

    /// Makes one trace of the ranks' files in `folder`, when no rank writes any more. Gives what there is to say of it.
    pub(super) fn write(&self, folder: &Path) -> Result<Vec<String>, String> {
        let mut readers = Vec::new();
        let mut notes = Vec::new();
        for rank in 0..self.ranks {
            let path = file_of(folder, rank);
            if path.exists() {
                let reader = RawReader::open(&path).map_err(|error| with_causes(&error))?;
                readers.push(reader.ahead_by(clock_of(folder, rank)));
            } else {
                notes.push(format!("rank {rank} wrote nothing: it never joined the job"));
            }
        }
        if readers.is_empty() {
            return Err("no rank joined the job, so none wrote what it communicates".to_owned());
        }
        // Each rank's own counters go with the trace, to be compared with a study of it.
        let counted = (0..self.ranks).filter_map(|rank| {
            let text = fs::read_to_string(counters_of(folder, rank)).ok()?;
            Some(format!("rank {rank} counted {}", text.trim()))
        });
        let shared = (self.per_node > 1).then(|| {
            let n = self.per_node;
            format!("each {n} ranks are the processes of one node: rank r is process r % {n} of node r / {n}")
        });
        let metadata = Metadata {
            command: self.command.clone(),
            nodes: Some(self.ranks.div_ceil(self.per_node.into())),
            hosts: Some(self.hosts),
            taken_unix_s: self.began.duration_since(UNIX_EPOCH).ok().map(|it| it.as_secs()),
            notes: notes.iter().cloned().chain(shared).chain(counted).collect(),
            ..Metadata::default()
        };
        let target = self.target.try_clone();
        let file = target.and_then(WholeFile::create_at).map_err(|error| error.to_string())?;
        let mut writer = TraceWriter::new(file, &metadata).map_err(|error| with_causes(&error))?;
        let mut merged = mapwire_trace::Merge::new(readers);
        for record in &mut merged {
            let mut record = record.map_err(|error| with_causes(&error))?;
            let rank = record.node.get();
            record.node = (rank / self.per_node).into();
            record.process = (rank % self.per_node).into();
            writer.push(&record).map_err(|error| with_causes(&error))?;
        }
        for stream in merged.streams() {
            if stream.torn_bytes() > 0 {
                notes.push(format!(
                    "{} ends in a torn record: its rank was killed, and what it did last is missing",
                    stream.file()
                ));
            }
        }
        let records = writer.records();
        let file = writer.finish().map_err(|error| with_causes(&error))?;
        let bytes = file.keep().map_err(|error| error.to_string())?;
        let said = notes.iter().map(|note| format!("trace: {note}"));
        let path = self.path();
        let of = format!("trace of {records} operations in {}, {bytes} bytes; see `mapwire lab info`", path.display());
        Ok(said.chain([of]).collect())
    }
}
