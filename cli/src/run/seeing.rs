//! `mapwire run --summary` and `--metrics`: what a job has counted, at its end and while it runs.

use std::io::{self, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mapwire_console::whole_file::WholeFile;
use serde_json::json;

use super::gathering;
use super::profile::Profile;
use crate::args::RunArgs;
use crate::see::server::{self, Shown};
use crate::see::{Sample, table};

const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Wanted {
    summary: Option<Summary>,
    metrics: Option<TcpListener>,
    command: Vec<String>,
    /// The folder in which ranks leave their profiles.
    profiles: Option<PathBuf>,
}

#[derive(Debug)]
enum Summary {
    Shown,
    /// As JSON, into a file, which is begun before the job.
    Written(PathBuf, WholeFile),
}

impl Wanted {
    /// Finds out what the command line asks for; `None` if nothing. Ports are taken.
    pub(super) fn new(args: &RunArgs) -> Result<Option<Self>, crate::Failure> {
        let summary = match &args.summary {
            None => None,
            Some(None) => Some(Summary::Shown),
            Some(Some(path)) => {
                let file = gathering::destination("--summary", path)?;
                let begun = WholeFile::create_at(file)
                    .map_err(|error| (1, format!("--summary {}: {error}", path.display())))?;
                Some(Summary::Written(path.clone(), begun))
            }
        };
        let metrics = match &args.metrics {
            None => None,
            Some(text) => {
                let wrong = |code, why: String| (code, format!("--metrics {text}: {why}"));
                let address = server::parse(text).map_err(|why| wrong(2, why))?;
                let bound = TcpListener::bind(address);
                Some(bound.map_err(|error| wrong(1, error.to_string()))?)
            }
        };
        let is_empty = summary.is_none() && metrics.is_none();
        Ok((!is_empty).then(|| Self {
            summary,
            metrics,
            command: args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            profiles: None,
        }))
    }

    /// The ranks leave their profiles there.
    pub(super) fn set_profiles(&mut self, folder: &Path) {
        self.profiles = Some(folder.to_owned());
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    wanted: Wanted,
    shown: Shown,
    began: Instant,
    due: Option<Instant>,
}

impl Watch {
    /// Begins with the job; collectors are answered from now on.
    pub(super) fn begin(mut wanted: Wanted) -> io::Result<Self> {
        let (shown, now) = (Shown::default(), Instant::now());
        let due = wanted.metrics.is_some().then_some(now);
        if let Some(listener) = wanted.metrics.take() {
            server::start(listener, Shown::clone(&shown))?;
        }
        Ok(Self { wanted, shown, began: now, due })
    }

    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.due
    }

    /// Shows collectors what `samples` gives, if that is due.
    pub(super) fn renew(&mut self, now: Instant, samples: impl FnOnce() -> Vec<Sample>) {
        if self.due.is_some_and(|due| now >= due) {
            self.due = Some(now + EVERY);
            let samples = samples();
            if let Ok(mut shown) = self.shown.lock() {
                *shown = samples;
            }
        }
    }

    /// Says what the ranks have counted, once nothing of the job is left. False when it cannot be written.
    pub(super) fn finish(self, samples: &[Sample], code: u8) -> bool {
        let seconds = self.began.elapsed().as_secs_f64();
        let folder = self.wanted.profiles.filter(|_| self.wanted.summary.is_some());
        let profile = folder.and_then(|folder| Profile::read(&folder, samples.iter().map(|sample| sample.rank)));
        match self.wanted.summary {
            None => true,
            Some(Summary::Shown) => {
                eprintln!("mapwire: {} after {seconds:.3} s", ended(code));
                let profile = profile.iter().flat_map(Profile::lines);
                for line in table::lines(samples).into_iter().chain(profile) {
                    eprintln!("mapwire: {line}");
                }
                true
            }
            Some(Summary::Written(path, mut file)) => {
                let ranks: Vec<_> = samples.iter().map(Sample::json).collect();
                let summary = json!({
                    "kind": "summary",
                    "command": self.wanted.command,
                    "exit_code": code,
                    "seconds": seconds,
                    "ranks": ranks,
                    "allocations": profile.iter().flat_map(Profile::json).collect::<Vec<_>>(),
                });
                let written = writeln!(file, "{summary}").and_then(|()| file.keep());
                if let Err(error) = &written {
                    eprintln!("mapwire: no summary was written to {}: {error}", path.display());
                }
                written.is_ok()
            }
        }
    }
}

fn ended(code: u8) -> String {
    match code {
        0 => "the job ended".to_owned(),
        code => format!("the job ended with exit code {code}"),
    }
}
