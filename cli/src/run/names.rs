//! `mapwire run --job`: the ranks here are some of a job's, and other such commands bring the others.
//!
//! The command is a member of the job for all its ranks: it claims their numbers, waits until all ranks of the job are claimed, and
//! starts its own only then. These find each other by the same store, and their lowest has the broker of this host.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use mapwire_launch::names::{News, Session, Wanted};
use mapwire_launch::{LaunchError, NamedJob};
use mapwire_names::SharedSecret;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::keeper::Link;
use super::{Layout, signals};
use crate::args::RunArgs;
use crate::config::Settings;

/// How long ranks may be missing before it is said.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a command waits for the others unless --timeout says.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Meeting {
    job: NamedJob,
    shared: SharedSecret,
    wanted: Wanted,
}

impl Meeting {
    /// By the command line; `None` without `--job`.
    pub(super) fn of(args: &RunArgs, settings: &Settings) -> Result<Option<Self>, crate::Failure> {
        let (Some(name), Some(of)) = (&args.job, args.of) else {
            return Ok(None);
        };
        let wrong = |error: LaunchError| (2, error.to_string());
        let Some(count) = settings.ranks.filter(|count| *count <= of) else {
            let why = "give -n N, the number of ranks here, which is at most that of --of";
            return Err((2, why.into()));
        };
        let stored = NamedJob::store_of(args.names.as_deref(), args.secret_file.as_deref());
        let (store, secret_file) = stored.map_err(wrong)?;
        let shared = SharedSecret::read(&secret_file).map_err(|error| (1, error.to_string()))?;
        let name: mapwire_launch::names::JobName = name.parse().map_err(wrong)?;
        let wanted =
            Wanted { name: name.clone(), size: of, count, first: None, timeout: settings.timeout.unwrap_or(TIMEOUT) };
        let job = NamedJob {
            name,
            store,
            // Ranks may start in another folder.
            secret_file: std::path::absolute(&secret_file).unwrap_or(secret_file),
            size: of,
            rank: None,
            incarnation: None,
        };
        Ok(Some(Self { job, shared, wanted }))
    }

    /// The place of the ranks before their numbers are known.
    pub(super) fn place(&self) -> Layout {
        Layout::part(0..self.wanted.count, self.job.size)
    }

    /// Joins, and waits for the others. Gives the membership, and the place of the ranks.
    pub(super) fn join(mut self, link: &Link) -> Result<(Membership, Layout), u8> {
        let say = |text: String| eprintln!("mapwire: {text}");
        let started = Session::start(&self.job.store, self.shared.clone(), self.wanted.clone());
        let session = started.map_err(|error| {
            say(error.to_string());
            1
        })?;
        let mut missing: Option<(String, Instant)> = None;
        loop {
            while let Some(news) = session.poll_news() {
                match news {
                    News::Waiting(ranks) => {
                        let since = missing.take().map_or_else(Instant::now, |(_, since)| since);
                        missing = Some((ranks, since));
                    }
                    News::Formed(incarnation, ranks) => {
                        self.job.incarnation = Some(incarnation);
                        let place = Layout::part(ranks, self.job.size);
                        let job = self.job;
                        return Ok((Membership { session, job }, place));
                    }
                    News::Broken(error) => {
                        say(error.to_string());
                        return Err(1);
                    }
                    News::Failed(..) | News::Aborted { .. } | News::Unreachable(_) => {}
                }
            }
            if let Some((ranks, _)) = missing.take_if(|(_, since)| since.elapsed() >= SILENCE) {
                let (name, store) = (&self.job.name, &self.job.store);
                say(format!("waiting for these ranks of job {name} at {store}: {ranks}"));
            }
            if let Some(signal) = heard(link) {
                say(format!("{}: no rank was started", signals::name(signal)));
                session.leave();
                return Err(128 + signal as u8);
            }
            let mut fds = [
                PollFd::new(&session, PollFlags::IN),
                PollFd::from_borrowed_fd(link.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(link.pipe.as_fd(), PollFlags::IN),
            ];
            let limit = missing.is_some().then(|| Timespec::try_from(SILENCE).ok());
            let _ = poll(&mut fds, limit.flatten().as_ref());
        }
    }
}

/// The membership of the ranks here in a job that is formed.
pub(super) struct Membership {
    session: Session,
    job: NamedJob,
}

pub(super) enum Heard {
    Notice(String),
    /// The job ends, for this reason and with this exit code.
    End(String, u8),
}

impl Membership {
    pub(super) fn poll_heard(&self) -> Option<Heard> {
        loop {
            return Some(match self.session.poll_news()? {
                News::Failed(ranks, host) => {
                    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
                    let ranks = ranks.join(", ");
                    let why = "its command or its host has died";
                    let text = format!("rank {ranks} on host {host} is gone: {why}");
                    Heard::End(text, 128 + libc::SIGKILL as u8)
                }
                News::Aborted { code, host, message } => Heard::End(format!("host {host}: {message}"), code),
                News::Broken(error) => Heard::End(error.to_string(), 1),
                News::Unreachable(error) => Heard::Notice(format!("{error}; the job goes on")),
                News::Waiting(_) | News::Formed(..) => continue,
            });
        }
    }

    /// Tells the other members that this one ends the job. Has no effect when another has.
    pub(super) fn abort(&self, code: u8, why: &str) {
        self.session.abort(code, why);
    }

    pub(super) fn leave(self) {
        self.session.leave();
    }

    /// A rank's variables that name the job, instead of a launcher's broker: the ranks have one among them.
    pub(super) fn variables(&self, rank: u32) -> Vec<(OsString, OsString)> {
        let mut job = self.job.clone();
        job.rank = Some(rank);
        let named = job.variables().into_iter();
        named.chain([("MAPWIRE_JOB", OsString::new())]).map(|(name, value)| (name.into(), value)).collect()
    }
}

impl AsFd for Membership {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.session.as_fd()
    }
}

fn heard(link: &Link) -> Option<i32> {
    while let Some(signal) = link.signals.next() {
        match signal {
            libc::SIGTSTP => signals::stop_here(),
            libc::SIGCHLD | libc::SIGTTIN | libc::SIGTTOU => {}
            signal => return Some(signal),
        }
    }
    let mut fds = [PollFd::from_borrowed_fd(link.pipe.as_fd(), PollFlags::IN)];
    let now = Timespec::default();
    if poll(&mut fds, Some(&now)) != Ok(1) {
        return None;
    }
    let mut byte = [0];
    match rustix::io::read(&link.pipe, &mut byte) {
        Ok(1) => Some(i32::from(byte[0])),
        // The keeper was killed.
        _ => Some(libc::SIGKILL),
    }
}
