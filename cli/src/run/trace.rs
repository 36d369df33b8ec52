//! `mapwire run --trace`: the ranks write what they communicate into a folder beside the trace; when the job is over, their files
//! become one trace in order of time.

use std::fs;
use std::path::{Path, PathBuf};

use mapwire_driver::capture::{counters_of, file_of};
use mapwire_trace::{Metadata, RawReader, TraceWriter, WholeFile};

/// The variable by which ranks learn of the folder.
const VARIABLE: &str = "MAPWIRE_TRACE_FOLDER";

/// A trace that is being taken.
pub(super) struct Trace {
    target: PathBuf,
    folder: PathBuf,
    ranks: u32,
    command: Vec<String>,
}

/// What was written.
struct Outcome {
    records: u64,
    bytes: u64,
    notes: Vec<String>,
}

impl Trace {
    /// Makes the folder of the ranks, beside the file `target`.
    ///
    /// # Errors
    /// No file can be written there; the text says why.
    pub(super) fn begin(target: &Path, ranks: u32, command: Vec<String>) -> Result<Self, String> {
        let wrong = |why: String| format!("--trace {}: {why}", target.display());
        let name = target
            .file_name()
            .ok_or_else(|| wrong("a file must be named".to_owned()))?;
        if target.is_dir() {
            return Err(wrong("this is a folder; name a file".to_owned()));
        }
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")))
            .map_err(|error| wrong(format!("its folder cannot be used: {error}")))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.ranks", std::process::id()));
        let folder = parent.join(hidden);
        fs::create_dir(&folder)
            .map_err(|error| wrong(format!("nothing can be written beside it: {error}")))?;
        Ok(Self {
            target: parent.join(name),
            folder,
            ranks,
            command,
        })
    }

    /// What the ranks' environment gets.
    pub(super) fn variable(&self) -> (&'static str, String) {
        (VARIABLE, self.folder.to_string_lossy().into_owned())
    }

    /// Makes one trace of the ranks' files, when no rank writes any more; says on standard error what came of it. False when there
    /// is no trace.
    pub(super) fn finish(self) -> bool {
        let outcome = self.merge();
        self.remove_folder();
        match outcome {
            Ok(Outcome {
                records,
                bytes,
                notes,
            }) => {
                for note in notes {
                    eprintln!("mapwire: trace: {note}");
                }
                eprintln!(
                    "mapwire: trace of {records} operations in {}, {bytes} bytes; see `mapwire lab info`",
                    self.target.display()
                );
                true
            }
            Err(why) => {
                eprintln!(
                    "mapwire: no trace was written to {}: {why}",
                    self.target.display()
                );
                false
            }
        }
    }

    /// Gives the trace up: no rank was started.
    pub(super) fn discard(self) {
        self.remove_folder();
    }

    fn remove_folder(&self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!(
                "mapwire: the folder {} cannot be removed: {error}",
                self.folder.display()
            );
        }
    }

    fn merge(&self) -> Result<Outcome, String> {
        let mut readers = Vec::new();
        let mut notes = Vec::new();
        for rank in 0..self.ranks {
            let path = file_of(&self.folder, rank);
            if path.exists() {
                readers.push(RawReader::open(&path).map_err(|error| text(&error))?);
            } else {
                notes.push(format!(
                    "rank {rank} wrote nothing: it never joined the job"
                ));
            }
        }
        if readers.is_empty() {
            return Err("no rank joined the job, so none wrote what it communicates".to_owned());
        }
        // What each rank has counted itself goes with the trace, so that a study of it can be compared.
        let counted = (0..self.ranks).filter_map(|rank| {
            let text = fs::read_to_string(counters_of(&self.folder, rank)).ok()?;
            Some(format!("rank {rank} counted {}", text.trim()))
        });
        let metadata = Metadata {
            command: self.command.clone(),
            nodes: Some(self.ranks),
            hosts: Some(1),
            notes: notes.iter().cloned().chain(counted).collect(),
            ..Metadata::default()
        };
        let file = WholeFile::create(&self.target).map_err(|error| error.to_string())?;
        let mut writer = TraceWriter::new(file, &metadata).map_err(|error| text(&error))?;
        let mut merged = mapwire_trace::merge::merge(readers);
        for record in &mut merged {
            let record = record.map_err(|error| text(&error))?;
            writer.push(&record).map_err(|error| text(&error))?;
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
        let file = writer.finish().map_err(|error| text(&error))?;
        file.keep().map_err(|error| error.to_string())?;
        let bytes = fs::metadata(&self.target).map_or(0, |file| file.len());
        Ok(Outcome {
            records,
            bytes,
            notes,
        })
    }
}

/// An error with its causes.
fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
