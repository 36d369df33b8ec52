//! Studies of trace files.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use mapwire_trace::{Damage, Metadata, ReadError, TraceReader};

use crate::study::{Allowed, Findings, Request, Study, StudyError};

/// What was found out about one trace.
#[derive(Clone, Debug)]
pub struct TraceFindings {
    /// The file.
    pub path: PathBuf,
    /// What it says of itself.
    pub metadata: Metadata,
    /// What was found.
    pub findings: Findings,
    /// Where its good part ends, if that is not its end. Only the good part was studied.
    pub damage: Option<Damage>,
}

impl TraceFindings {
    /// The file's name without folder and ending.
    pub fn name(&self) -> String {
        name_of(&self.path)
    }
}

/// The name of a trace: that of its file, without folder and ending.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Why a trace was not studied.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be studied.
    #[error("{file}: {cause}")]
    Study {
        /// The file.
        file: String,
        /// Why.
        cause: StudyError,
    },
    /// It has no operation of those that were selected.
    #[error(
        "{file} has no lookup in its {records} records; see `mapwire lab info`, and choose other --ops or --paths"
    )]
    Empty {
        /// The file.
        file: String,
        /// Its records.
        records: u64,
    },
    /// It is damaged, and has no such operation before that.
    #[error("{0}; there is no lookup in that part")]
    NothingGood(Damage),
    /// Pages of another size.
    #[error("{file} has pages of {page_bytes} bytes; only traces with pages of 4096 are studied")]
    PageSize {
        /// The file.
        file: String,
        /// What it says.
        page_bytes: u64,
    },
}

impl FileError {
    /// That of a file without a lookup, or without one in its good part.
    pub(crate) fn no_lookup(file: String, records: u64, damage: Option<Damage>) -> Self {
        match damage {
            None => FileError::Empty { file, records },
            Some(damage) => FileError::NothingGood(damage),
        }
    }
}

/// Studies the files, several at once if there are threads for it; each is read once or, where the trace needs other engines
/// than were tried first, again. `progress` is told how many bytes of all files have been read.
///
/// # Errors
/// That of the first file that has one.
pub fn study_files(
    paths: &[PathBuf],
    request: &Request,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<TraceFindings>, FileError> {
    let at_once = request.threads.clamp(1, paths.len().max(1));
    let request = Request {
        threads: (request.threads / at_once).max(1),
        ..request.clone()
    };
    let read = Mutex::new(vec![0_u64; paths.len()]);
    let tell = |at: usize, bytes: u64| {
        if let Ok(mut read) = read.lock() {
            read[at] = read[at].max(bytes);
            progress(read.iter().sum());
        }
    };
    let next = Mutex::new(0..paths.len());
    let found: Mutex<Vec<Option<Result<TraceFindings, FileError>>>> =
        Mutex::new(paths.iter().map(|_| None).collect());
    let work = || loop {
        let Some(at) = next.lock().ok().and_then(|mut next| next.next()) else {
            return;
        };
        let outcome = study_file(&paths[at], &request, &|bytes| tell(at, bytes));
        let failed = outcome.is_err();
        if let Ok(mut found) = found.lock() {
            found[at] = Some(outcome);
        }
        if failed && let Ok(mut next) = next.lock() {
            *next = 0..0;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..at_once {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_default();
    let mut all = Vec::new();
    let mut failure = None;
    for outcome in found.into_iter().flatten() {
        match outcome {
            Ok(findings) => all.push(findings),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(all),
    }
}

fn study_file(
    path: &Path,
    request: &Request,
    progress: &dyn Fn(u64),
) -> Result<TraceFindings, FileError> {
    let file = path.display().to_string();
    let mut allowed = Allowed::ALL;
    loop {
        match try_study(path, request, allowed, progress) {
            Err(FileError::Study {
                cause: StudyError::Again(less),
                ..
            }) if less != allowed => allowed = less,
            Ok(found) if found.findings.totals().lookups == 0 => {
                return Err(FileError::no_lookup(
                    file,
                    found.findings.records,
                    found.damage,
                ));
            }
            other => return other,
        }
    }
}

fn try_study(
    path: &Path,
    request: &Request,
    allowed: Allowed,
    progress: &dyn Fn(u64),
) -> Result<TraceFindings, FileError> {
    let file = path.display().to_string();
    let wrong = |cause| FileError::Study {
        file: file.clone(),
        cause,
    };
    let mut reader = TraceReader::open(path)?.keep_good_part();
    let metadata = reader.metadata().clone();
    if metadata.page_bytes != mapwire_translation::PAGE_BYTES as u64 {
        return Err(FileError::PageSize {
            file,
            page_bytes: metadata.page_bytes,
        });
    }
    let mut study = Study::new(request.clone(), allowed).map_err(wrong)?;
    while let Some(block) = reader.next_block()? {
        study.take(&block).map_err(wrong)?;
        progress(reader.position_bytes());
    }
    Ok(TraceFindings {
        path: path.to_owned(),
        metadata,
        findings: study.finish().map_err(wrong)?,
        damage: reader.damage().cloned(),
    })
}
