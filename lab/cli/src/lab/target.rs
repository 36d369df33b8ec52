//! Trace files that the laboratory writes.

use std::path::Path;

use mapwire_console::whole_file::WholeFile;
use mapwire_trace::{Metadata, TraceWriter, WriteError};
use mapwire_wire::TraceRecord;
use serde_json::json;

use super::LabError;
use super::output::{cannot_write, grouped, print};
use crate::progress::Progress;

pub(super) struct Written {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// They are made up, and there is at least one.
    Generator,
    /// From a file, which may hold none.
    File(&'a str),
}

/// Writes a trace file of `records`; `at` is told how many were written. Nothing stands under its name unless all went well.
pub(super) fn write<E: Into<LabError>>(
    path: &Path,
    metadata: &Metadata,
    source: Source<'_>,
    records: impl Iterator<Item = Result<TraceRecord, E>>,
    progress: Option<&Progress>,
) -> Result<Written, LabError> {
    let named = cannot_write(path);
    let failed = |error: WriteError| match error {
        WriteError::Io(error) => named(&error),
        other => named(&other),
    };
    let file = WholeFile::create(path).map_err(|error| named(&error))?;
    let mut writer = TraceWriter::new(file, metadata).map_err(failed)?;
    for record in records {
        writer.push(&record.map_err(Into::into)?).map_err(failed)?;
        if let Some(progress) = progress
            && writer.records().is_multiple_of(1 << 16)
        {
            progress.at(writer.records());
        }
    }
    let count = writer.records();
    if let Source::File(name) = source
        && count == 0
    {
        return Err(format!("{name} holds no records: {} was not written", path.display()).into());
    }
    let bytes = writer.finish().map_err(failed)?.keep().map_err(|error| named(&error))?;
    Ok(Written { records: count, bytes })
}

impl Written {
    pub(super) fn report(&self, command: &str, path: &Path, json: bool) -> Result<(), LabError> {
        let file = path.display().to_string();
        let each = self.bytes as f64 / self.records.max(1) as f64;
        print(&if json {
            let row = json!({"kind": command, "file": file, "records": self.records, "file_bytes": self.bytes});
            format!("{row}\n")
        } else {
            let (records, bytes) = (grouped(self.records), grouped(self.bytes));
            format!("{file}: {records} records in {bytes} bytes, {each:.2} bytes a record\n")
        })
    }
}
