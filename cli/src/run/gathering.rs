//! What ranks write in a job for a trace or a capture: into one folder, beside the file that is made of it at the end.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use mapwire_console::whole_file::Destination;
use mapwire_settings::Transport;

use super::trace::Trace;
use super::{Work, capture, hosts};
use crate::Failure;
use crate::args::RunArgs;

const TRACE: &str = "MAPWIRE_TRACE_FOLDER";
const CAPTURE: &str = "MAPWIRE_CAPTURE_FOLDER";
/// Folders that others may have left.
const MOST_LEFT: u32 = 100;
const PROFILE: &str = "MAPWIRE_PROFILE_FOLDER";

#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Written {
    /// Their sends, fetches and receives.
    pub(crate) trace: bool,
    /// Their datagrams.
    pub(crate) capture: bool,
    /// Where the faults of their shared memory come from.
    pub(crate) profile: bool,
}

impl Written {
    /// Whether they write anything.
    pub(crate) fn is_any(self) -> bool {
        self.trace || self.capture || self.profile
    }

    /// Variables that make ranks write into `folder`.
    pub(crate) fn variables(self, folder: &Path) -> impl Iterator<Item = (String, String)> {
        let folder = folder.to_string_lossy().into_owned();
        let names = [(TRACE, self.trace), (CAPTURE, self.capture), (PROFILE, self.profile)].into_iter();
        names.filter(|(_, is_wanted)| *is_wanted).map(move |(name, _)| (name.to_owned(), folder.clone()))
    }
}

/// The folder of the ranks, which other users cannot enter, and what becomes of it.
pub(super) struct Gathering {
    folder: OwnedFd,
    path: PathBuf,
    trace: Option<Trace>,
    capture: Option<Destination>,
    has_profiles: bool,
    ranks: u32,
}

pub(super) fn destination(option: &str, target: &Path) -> Result<Destination, Failure> {
    let wrong = |code, why: String| (code, format!("{option} {}: {why}", target.display()));
    if target.is_dir() {
        return Err(wrong(2, "this is a folder; name a file".to_owned()));
    }
    if target.file_name().is_none() {
        return Err(wrong(2, "a file must be named".to_owned()));
    }
    Destination::find(target).map_err(|error| {
        let (code, why) = match error.kind() {
            io::ErrorKind::NotFound => (2, "its folder does not exist".to_owned()),
            _ => (1, error.to_string()),
        };
        wrong(code, format!("no file can be written there: {why}"))
    })
}

/// The folder of the profiles of ranks, where nothing is written beside a file. What another left under that name may stand there yet.
fn temporary_folder() -> io::Result<(OwnedFd, PathBuf)> {
    for number in 0.. {
        let path = std::env::temp_dir().join(format!("mapwire-{}.{number}.ranks", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_LEFT => {}
            made => return made.and_then(|()| Ok((File::open(&path)?.into(), path))),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Gathering {
    /// Makes the folder of the ranks, if the command line asks for anything that they write.
    pub(super) fn begin(args: &RunArgs, work: &Work) -> Result<Option<Self>, Failure> {
        let mut places = Vec::new();
        let mut place = |option: &'static str, target: &Option<PathBuf>| {
            let Some(target) = target else {
                return Ok::<_, Failure>(None);
            };
            let found = destination(option, target)?;
            let other = found.try_clone().map_err(|error| (1, error.to_string()))?;
            places.push((option, target.clone(), other));
            Ok(Some(found))
        };
        let trace = place("--trace", &args.trace)?;
        let capture = place("--capture", &args.capture)?;
        if capture.is_some() && !work.sends_datagrams() {
            return Err((2, "--capture: ranks of one host send each other no datagrams; give --transport udp, or see their transfers by --trace".to_owned()));
        }
        if let [(_, _, one), (_, _, other)] = &places[..]
            && one.path() == other.path()
        {
            return Err((2, "--trace and --capture name the same file".to_owned()));
        }
        let has_profiles = args.summary.is_some();
        let (folder, path) = match places.pop() {
            None if !has_profiles => return Ok(None),
            None => temporary_folder().map_err(|error| {
                (1, format!("--summary: no folder can be made in {}: {error}", std::env::temp_dir().display()))
            })?,
            Some((option, target, beside)) => {
                beside.private_folder(&format!(".{}.ranks", std::process::id())).map_err(|error| {
                    let target = target.display();
                    (1, format!("{option} {target}: nothing can be written beside it: {error}"))
                })?
            }
        };
        let command = args.program.iter().map(|word| word.to_string_lossy());
        let command: Vec<String> = command.map(Into::into).collect();
        let per_node = args.procs_per_node.unwrap_or(1);
        let trace = trace.map(|target| Trace::new(target, work.ranks(), work.hosts(), per_node, command));
        Ok(Some(Self { folder, path, trace, capture, has_profiles, ranks: work.ranks() }))
    }

    pub(super) fn written(&self) -> Written {
        Written { trace: self.trace.is_some(), capture: self.capture.is_some(), profile: self.has_profiles }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.path
    }

    /// Makes of the ranks' files what is wanted, when no rank writes any more. False when something is missing.
    pub(super) fn finish(self) -> bool {
        // By the descriptor: a folder of this name might be another by now.
        let folder = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let trace = self.trace.is_none_or(|it| tell("trace", &it.path(), it.write(&folder)));
        let capture = self.capture.is_none_or(|target| {
            let path = target.path();
            tell("capture", &path, capture::write(target, self.ranks, &folder))
        });
        remove(&self.path);
        trace && capture
    }

    /// Gives it up: no rank was started.
    pub(super) fn discard(self) {
        remove(&self.path);
    }
}

impl Work {
    fn sends_datagrams(&self) -> bool {
        match self {
            Self::Here(job) => job.settings.transport() == Transport::Udp && self.ranks() > 1,
            Self::Spread(hosts::Spread { .. }) => self.hosts() > 1,
        }
    }
}

/// Says what came of `what`; false if nothing was written.
fn tell(what: &str, path: &Path, written: Result<Vec<String>, String>) -> bool {
    match &written {
        Ok(lines) => lines.iter().for_each(|line| eprintln!("mapwire: {line}")),
        Err(why) => eprintln!("mapwire: no {what} was written to {}: {why}", path.display()),
    }
    written.is_ok()
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        eprintln!("mapwire: the folder {} cannot be removed: {error}", folder.display());
    }
}
