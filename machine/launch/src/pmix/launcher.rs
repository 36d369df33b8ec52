//! A launcher that speaks PMIx.

use std::time::Duration;

use super::abi;
use super::library::{self, Choice, Datum, Library, TooLate};
use crate::launcher::{check_get, check_put};
use crate::{Event, LaunchError, Launcher};

const PROTOCOL: &str = "PMIx";

/// How long the launcher may take for what it can answer at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Pmix {
    library: &'static Library,
    namespace: String,
    rank: u32,
    size: u32,
    is_spent: bool,
}

impl std::fmt::Debug for Pmix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { namespace, rank, size, .. } = self;
        write!(f, "Pmix({namespace}, {rank} of {size})")
    }
}

fn too_late(what: &'static str, after: Duration) -> impl FnOnce(TooLate) -> LaunchError {
    move |TooLate| LaunchError::Timeout { what, after }
}

impl Pmix {
    pub(crate) fn join(namespace: &str, rank: u32, timeout: Duration) -> Result<Self, LaunchError> {
        let library = Library::load().map_err(LaunchError::NoLibrary)?;
        let what = "joining the launcher (PMIx)";
        let joined = library.init(timeout).map_err(too_late(what, timeout))?;
        let me = joined.map_err(|status| refused(library, what, status))?;
        if me != (namespace.to_owned(), rank) {
            return Err(LaunchError::Protocol {
                protocol: PROTOCOL,
                answer: format!("rank {} of {}", me.1, me.0),
                expected: "the rank and job of PMIX_RANK and PMIX_NAMESPACE",
            });
        }
        let mut this = Self { library, namespace: me.0, rank, size: 0, is_spent: false };
        match this.job_value("pmix.job.size", timeout)? {
            Some(Datum::Number(size)) if rank < size => this.size = size,
            other => {
                return Err(LaunchError::Protocol {
                    protocol: PROTOCOL,
                    answer: format!("{other:?}"),
                    expected: "the size of the job (pmix.job.size)",
                });
            }
        }
        for codes in [&abi::RANK_FAILURES, &abi::JOB_FAILURES] {
            let answered = library.register(codes, timeout).map_err(too_late(what, timeout))?;
            if answered != abi::SUCCESS {
                let why = library.describe(answered);
                tracing::warn!("the launcher does not report failures of ranks: {why}");
            }
        }
        Ok(this)
    }

    fn job_value(&self, key: &'static str, timeout: Duration) -> Result<Option<Datum>, LaunchError> {
        let answer = self.library.get(&self.namespace, abi::RANK_WILDCARD, key, &[], timeout);
        let (status, datum) = answer.map_err(too_late("the size of the job", timeout))?;
        Ok(datum.filter(|_| status == abi::SUCCESS))
    }

    fn check(&self, what: &str, status: abi::Status) -> Result<(), LaunchError> {
        match status {
            abi::SUCCESS => Ok(()),
            status => Err(refused(self.library, what, status)),
        }
    }

    fn check_usable(&self) -> Result<(), LaunchError> {
        if self.is_spent { Err(LaunchError::Spent) } else { Ok(()) }
    }
}

fn refused(library: &Library, what: &str, status: abi::Status) -> LaunchError {
    if [abi::ERR_UNREACH, abi::ERR_LOST_CONNECTION].contains(&status) {
        return LaunchError::Closed;
    }
    LaunchError::Refused { protocol: PROTOCOL, what: what.into(), reason: library.describe(status) }
}

/// Keys of the modex, apart from those of PMIx and of other libraries.
fn full_key(key: &str) -> String {
    format!("mapwire.{key}")
}

impl Launcher for Pmix {
    fn protocol(&self) -> &str {
        PROTOCOL
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        check_put(key, value)?;
        self.check_usable()?;
        let status = self.library.put(&full_key(key), value);
        self.check("putting a value", status)
    }

    fn fence(&mut self, timeout: Duration) -> Result<(), LaunchError> {
        self.check_usable()?;
        let what = "a fence of all ranks";
        self.check(what, self.library.commit())?;
        let fenced = self.library.fence(&self.namespace, timeout);
        self.is_spent = fenced != Ok(abi::SUCCESS);
        let status = fenced.map_err(too_late(what, timeout))?;
        self.check(what, status)
    }

    fn get(&mut self, rank: u32, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, LaunchError> {
        check_get(rank, self.size, key)?;
        self.check_usable()?;
        let what = "getting a value";
        // The server counts whole seconds, and 0 is for ever.
        let seconds = i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).max(1);
        let choices = [Choice::Immediate, Choice::Timeout(seconds)];
        let answer = self.library.get(&self.namespace, rank, &full_key(key), &choices, timeout);
        match answer.map_err(too_late(what, timeout))? {
            (abi::SUCCESS, Some(Datum::Bytes(bytes))) => Ok(Some(bytes)),
            (abi::SUCCESS, other) => Err(LaunchError::Protocol {
                protocol: PROTOCOL,
                answer: format!("{other:?}"),
                expected: "a value's bytes",
            }),
            // A server may wait until the end of the time for a value that nobody puts.
            (abi::ERR_NOT_FOUND | abi::ERR_TIMEOUT, _) => Ok(None),
            (status, _) => Err(refused(self.library, what, status)),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        while let Some(told) = library::poll_event() {
            if abi::JOB_FAILURES.contains(&told.status) {
                return Some(Event::Aborted);
            }
            let about = told.about.filter(|(job, rank)| *job == self.namespace && *rank < self.size);
            if let Some((_, rank)) = about {
                return Some(Event::Failed(rank));
            }
        }
        None
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        let what = "aborting the job";
        let aborted = self.library.abort(code, message, ANSWER_TIMEOUT);
        self.check(what, aborted.map_err(too_late(what, ANSWER_TIMEOUT))?)
    }

    fn finish(self: Box<Self>, timeout: Duration) -> Result<(), LaunchError> {
        let what = "leaving the launcher";
        let finished = self.library.finalize(timeout);
        self.check(what, finished.map_err(too_late(what, timeout))?)
    }
}
