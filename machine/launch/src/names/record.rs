//! What the values of a job say. All are lines of text.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use mapwire_names::{LeaseId, SharedSecret, SigningKey};
use mapwire_transport::board::MAX_RANKS;
use mapwire_transport::rendezvous::{Secret, hex, unhex};

use crate::LaunchError;

/// Longest text about a host or an end that is read, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// This program's release: processes of others are not joined.
pub(super) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// How the keys of all jobs begin.
pub(super) const JOBS: &str = "mapwire/job/";

/// The name of a job: 1 to 64 ASCII letters, digits, `.`, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(String);

impl FromStr for JobName {
    type Err = LaunchError;

    fn from_str(text: &str) -> Result<Self, LaunchError> {
        crate::checked_name(text).map(Self).map_err(LaunchError::JobName)
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JobName {
    pub(super) fn key(&self) -> String {
        format!("{JOBS}{self}")
    }
}

/// One life of a job. Its text is what a process that `mapwire run --names` starts is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    id: [u8; 16],
    pub(super) lease: LeaseId,
}

impl Incarnation {
    pub(super) fn new(id: [u8; 16], lease: LeaseId) -> Self {
        Self { id, lease }
    }

    pub(super) fn id(&self) -> String {
        hex(self.id)
    }

    pub(super) fn prefix(&self, name: &JobName) -> String {
        format!("mapwire/run/{name}/{}/", self.id())
    }

    /// The job's secret, which whoever has the shared one can make, and nobody else.
    pub(super) fn secret(&self, name: &JobName, shared: &SharedSecret) -> Secret {
        Secret(shared.derive("mapwire job secret", &[name.0.as_bytes(), &self.id]))
    }

    pub(super) fn signing_key(&self, name: &JobName, shared: &SharedSecret) -> SigningKey {
        shared.signing_key("mapwire job values", &[name.0.as_bytes(), &self.id])
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.id(), self.lease.0)
    }
}

impl FromStr for Incarnation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (digits, lease) = text.split_once('-').ok_or(())?;
        let id = unhex(digits).ok_or(())?;
        let lease = LeaseId(lease.parse().map_err(|_| ())?);
        Ok(Self::new(id, lease))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) incarnation: Incarnation,
    pub(super) size: u32,
    pub(super) release: String,
}

impl Record {
    pub(super) fn to_text(&self) -> String {
        let Self { incarnation, size, release } = self;
        format!("mapwire {release}\n{incarnation}\n{size}")
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = lines_of(bytes)?;
        let release = lines.next()?.strip_prefix("mapwire ")?.to_owned();
        let incarnation = lines.next()?.parse().ok()?;
        let size = lines.next()?.parse().ok()?;
        (1..=MAX_RANKS).contains(&size).then_some(Self { incarnation, size, release })
    }
}

/// Which ranks a member has, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) ranks: Range<u32>,
    pub(super) host: String,
    pub(super) process: u32,
    /// Tells two claims of one process apart.
    pub(super) lease: LeaseId,
}

impl Claim {
    pub(super) fn to_text(&self) -> String {
        let Range { start, end } = self.ranks;
        format!("{start} {end}\n{}\n{}\n{}", self.host, self.process, self.lease.0)
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = lines_of(bytes)?;
        let (start, end) = lines.next()?.split_once(' ')?;
        let ranks = start.parse().ok()?..end.parse().ok()?;
        let claim = Self {
            ranks,
            host: lines.next()?.into(),
            process: lines.next()?.parse().ok()?,
            lease: LeaseId(lines.next()?.parse().ok()?),
        };
        (claim.ranks.start < claim.ranks.end && claim.ranks.end <= MAX_RANKS).then_some(claim)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Abort {
    pub(super) code: u8,
    pub(super) host: String,
    pub(super) message: String,
}

impl Abort {
    pub(super) fn to_text(&self) -> String {
        let is_clean = |it: &char| !it.is_control();
        let message: String = self.message.chars().filter(is_clean).take(100).collect();
        format!("{}\n{}\n{message}", self.code, self.host)
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = lines_of(bytes)?;
        Some(Self {
            code: lines.next()?.parse().ok()?,
            host: lines.next()?.into(),
            message: lines.next().unwrap_or_default().into(),
        })
    }
}

/// Lines that are safe to print.
pub(super) fn lines_of(bytes: &[u8]) -> Option<std::str::Lines<'_>> {
    crate::clean_text(bytes, MAX_TEXT_BYTES).map(str::lines)
}

/// A name that nobody else has drawn.
pub(super) fn random_text() -> Result<String, LaunchError> {
    Ok(hex(mapwire_transport::local::random()?))
}

pub(super) fn host_name() -> String {
    let names = rustix::system::uname();
    let name = names.nodename().to_string_lossy().into_owned();
    name.chars().filter(|it| !it.is_control()).take(100).collect()
}

/// A process that offers something: its host's name, and its process id there.
pub(super) fn offerer_text(rest: impl fmt::Display) -> String {
    format!("{RELEASE}\n{}\n{}\n{rest}", host_name(), std::process::id())
}

/// Host and process id of [`offerer_text`], and the lines behind them; `None`: of another release, or malformed.
pub(super) fn offerer_of(bytes: &[u8]) -> Option<(String, u32, std::str::Lines<'_>)> {
    let mut lines = lines_of(bytes)?;
    (lines.next()? == RELEASE).then_some(())?;
    Some((lines.next()?.to_owned(), lines.next()?.parse().ok()?, lines))
}

/// Ranks as a person writes them: `0-2, 5`.
pub(super) fn ranks_text(ranks: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some(run) if run.end == rank => run.end += 1,
            _ => runs.push(rank..rank + 1),
        }
    }
    let text = |run: Range<u32>| match run.len() {
        1 => run.start.to_string(),
        _ => format!("{}-{}", run.start, run.end - 1),
    };
    runs.into_iter().map(text).collect::<Vec<_>>().join(", ")
}
