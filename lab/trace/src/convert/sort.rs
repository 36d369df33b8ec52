//! Imported records, put in order of time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use mapwire_wire::TraceRecord;

use super::error::ConvertError;
use super::import::Import;
use crate::merge::Merge;
use crate::metadata::Metadata;
use crate::reader::{Records, TraceReader};
use crate::writer::TraceWriter;

/// Records that are sorted in memory (32 bytes each, and half as much again while sorting).
pub const RUN_RECORDS: usize = 8 << 20;
/// Most runs that are merged, each from a file: two billion records in all.
pub const MAX_RUNS: usize = 256;

/// Imported records, put in order of time; those of equal times stay in the file's order. Runs of them are sorted in memory; if there
/// are several, each is set aside in a file without a name, and they are merged.
#[derive(Debug)]
pub enum Sorted {
    Memory(std::vec::IntoIter<TraceRecord>),
    Files(Merge<Records<File>>),
}

impl Sorted {
    /// Reads all of `import`; files are set aside in `folder`, in runs of `run_records` records.
    ///
    /// # Errors
    /// What is wrong with the import; there are more records than [`MAX_RUNS`] runs; a run cannot be set aside.
    pub fn new(mut import: Import<'_>, folder: &Path, run_records: usize) -> Result<Self, ConvertError> {
        let mut run = Vec::new();
        let mut files = Vec::new();
        loop {
            match import.next() {
                Some(record) => run.push(record?),
                None if files.is_empty() => {
                    run.sort_by_key(|record| record.time_ns.get());
                    return Ok(Self::Memory(run.into_iter()));
                }
                None => break,
            }
            if run.len() == run_records {
                if files.len() == MAX_RUNS {
                    return Err(ConvertError::File {
                        file: import.file().to_owned(),
                        what: format!("it has more than {} records, too many to sort", MAX_RUNS * run_records),
                    });
                }
                files.push(set_aside(&mut run, folder)?);
            }
        }
        if !run.is_empty() {
            files.push(set_aside(&mut run, folder)?);
        }
        Ok(Self::Files(Merge::new(files)))
    }
}

impl Iterator for Sorted {
    type Item = Result<TraceRecord, ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Memory(records) => records.next().map(Ok),
            Self::Files(merge) => {
                let next = merge.next()?;
                Some(next.map_err(|error| ConvertError::Sort(error.into())))
            }
        }
    }
}

/// A file that has no name, and so goes when it is closed.
fn nameless(folder: &Path) -> io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".mapwire-sort-{}-{number}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sorts a run and writes it to a file; leaves it empty.
fn set_aside(run: &mut Vec<TraceRecord>, folder: &Path) -> Result<Records<File>, ConvertError> {
    run.sort_by_key(|record| record.time_ns.get());
    let sort = |error: Box<dyn std::error::Error + Send + Sync>| ConvertError::Sort(error);
    let file = nameless(folder).map_err(|error| sort(error.into()))?;
    let mut writer = TraceWriter::new(file, &Metadata::default()).map_err(|error| sort(error.into()))?;
    for record in run.drain(..) {
        writer.push(&record).map_err(|error| sort(error.into()))?;
    }
    let mut file = writer.finish().map_err(|error| sort(error.into()))?;
    file.flush().and_then(|()| file.rewind()).map_err(|error| sort(error.into()))?;
    let reader = TraceReader::new(file, "a file of sorted records")?;
    Ok(reader.records())
}
