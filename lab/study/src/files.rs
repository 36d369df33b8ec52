//! Studies of trace files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mapwire_trace::{Block, Damage, Metadata, ReadError, TraceReader};

use crate::choosers::{Chooser, Knowledge, Learner};
use crate::pool;
use crate::study::{Allowed, Findings, Request, Study, StudyError};

/// What was found out about one trace.
#[derive(Clone, Debug)]
pub struct TraceFindings {
    pub path: PathBuf,
    pub metadata: Metadata,
    pub findings: Findings,
    /// Where its good part ends, if that is not its end. Only the good part was studied.
    pub damage: Option<Damage>,
}

impl TraceFindings {
    /// The file's name without folder and ending.
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{file}: {cause}")]
    Study { file: String, cause: StudyError },
    #[error("{file} has no lookup in its {records} records; see `mapwire lab info`, and choose other --ops or --paths")]
    Empty { file: String, records: u64 },
    #[error("{0}; there is no lookup in that part")]
    NothingGood(Damage),
    #[error("{file} has pages of {page_bytes} bytes; only traces with pages of 4096 are studied")]
    PageSize { file: String, page_bytes: u64 },
}

/// Studies the files, several at once if there are threads for it; each is read once or, where the trace needs other engines
/// than were tried first, or a policy needs to know its future, again. `progress` is told how many bytes of all files have been read.
pub fn study_files(
    paths: &[PathBuf],
    request: &Request,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<TraceFindings>, FileError> {
    let at_once = request.threads.clamp(1, paths.len().max(1));
    let request = Request { threads: (request.threads / at_once).max(1), ..request.clone() };
    let read = Mutex::new(vec![0_u64; paths.len()]);
    let tell = |at: usize, bytes: u64| {
        if let Ok(mut read) = read.lock() {
            read[at] = read[at].max(bytes);
            progress(read.iter().sum());
        }
    };
    let mut found: Vec<_> = paths.iter().map(|_| None).collect();
    let tasks = paths.iter().zip(&mut found).enumerate().collect();
    let work = |(at, (path, found)): (usize, (&PathBuf, &mut Option<_>))| {
        let outcome = study_file(path, &request, &|bytes| tell(at, bytes));
        let failed = outcome.is_err();
        *found = Some(outcome);
        if failed { Err(()) } else { Ok(()) }
    };
    // The first file that failed says why.
    let (Ok(()) | Err(())) = pool::each(at_once, tasks, work);
    found.into_iter().flatten().collect()
}

fn study_file(path: &Path, request: &Request, progress: &dyn Fn(u64)) -> Result<TraceFindings, FileError> {
    let knowledge = Arc::new(learn(path, request, progress)?);
    let mut allowed = Allowed::ALL;
    loop {
        let mut study = Study::new(request.clone(), allowed).map_err(in_file(path))?.knowing(Arc::clone(&knowledge));
        let studied = each_block(path, progress, |block| study.take(block));
        let studied = studied.and_then(|read| Ok((read, study.finish().map_err(in_file(path))?)));
        match studied {
            Err(FileError::Study { cause: StudyError::Again(less), .. }) if less != allowed => allowed = less,
            Ok(((_, damage), findings)) if findings.totals().lookups == 0 => {
                return Err(match damage {
                    Some(damage) => FileError::NothingGood(damage),
                    None => FileError::Empty { file: path.display().to_string(), records: findings.records },
                });
            }
            Ok(((metadata, damage), findings)) => {
                return Ok(TraceFindings { path: path.to_owned(), metadata, findings, damage });
            }
            Err(error) => return Err(error),
        }
    }
}

/// What the policies of the request must know of the trace beforehand.
fn learn(path: &Path, request: &Request, progress: &dyn Fn(u64)) -> Result<Knowledge, FileError> {
    let next_uses = request.has(Chooser::Optimum);
    if !next_uses && !request.has(Chooser::Released) {
        return Ok(Knowledge::default());
    }
    let mut learner = Learner::new(request.selection, next_uses);
    each_block(path, progress, |block| learner.take(block))?;
    Ok(learner.finish())
}

fn in_file(path: &Path) -> impl Fn(StudyError) -> FileError {
    move |cause| FileError::Study { file: path.display().to_string(), cause }
}

/// Reads a trace, and returns what it says of itself and where its good part ends, if that is not its end.
fn each_block(
    path: &Path,
    progress: &dyn Fn(u64),
    mut take: impl FnMut(&Block<'_>) -> Result<(), StudyError>,
) -> Result<(Metadata, Option<Damage>), FileError> {
    let mut reader = TraceReader::open(path)?.keep_good_part();
    let metadata = reader.metadata().clone();
    if metadata.page_bytes != mapwire_translation::PAGE_BYTES as u64 {
        return Err(FileError::PageSize { file: path.display().to_string(), page_bytes: metadata.page_bytes });
    }
    while let Some(block) = reader.next_block()? {
        take(&block).map_err(in_file(path))?;
        progress(reader.position_bytes());
    }
    Ok((metadata, reader.damage().cloned()))
}
