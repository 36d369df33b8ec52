//! The launcher of ranks that find each other in a store of names.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use mapwire_names::{SharedSecret, SigningKey, Store, StoreAddress, open};
use mapwire_transport::rendezvous::Secret;

use super::forming::Wanted;
use super::record::{Abort, Incarnation, JobName, Record, host_name, ranks_text};
use super::session::{News, Session};
use super::{forming, signed};
use crate::detect::NamedJob;
use crate::launcher::{check_get, check_put};
use crate::{Event, LaunchError, Launcher};

/// The shortest and the longest time between two looks at a fence.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];

type Values = HashMap<String, HashMap<u32, Vec<u8>>>;

#[derive(Debug)]
pub(crate) struct Names {
    store: Box<dyn Store>,
    shared: SharedSecret,
    name: JobName,
    incarnation: Incarnation,
    rank: u32,
    size: u32,
    prefix: String,
    /// The membership, unless `mapwire run` keeps it.
    session: Option<Session>,
    events: VecDeque<Event>,
    fences: u32,
    /// What was read since the last fence.
    got: Values,
}

impl Names {
    /// Joins the job. Waits for its other ranks, unless `mapwire run` has.
    pub(crate) fn join(job: &NamedJob, timeout: Duration) -> Result<Self, LaunchError> {
        let shared = SharedSecret::read(&job.secret_file)?;
        let mut store = open(&job.store, &shared)?;
        let (incarnation, rank, session) = match (&job.incarnation, job.rank) {
            (Some(incarnation), Some(rank)) => {
                check_life(&mut *store, &shared, job, incarnation)?;
                (incarnation.clone(), rank, None)
            }
            _ => {
                let (session, incarnation, rank) = become_member(job, &shared, timeout)?;
                (incarnation, rank, Some(session))
            }
        };
        Ok(Self {
            prefix: incarnation.prefix(&job.name),
            name: job.name.clone(),
            size: job.size,
            events: VecDeque::new(),
            fences: 0,
            got: Values::new(),
            store,
            shared,
            incarnation,
            rank,
            session,
        })
    }

    fn signing_key(&self) -> SigningKey {
        self.incarnation.signing_key(&self.name, &self.shared)
    }

    fn create(&mut self, key: &str, value: &[u8]) -> Result<bool, LaunchError> {
        let (signing, lease) = (self.signing_key(), self.incarnation.lease);
        signed::create(&mut *self.store, &signing, key, value, lease)
    }

    /// Turns news of the membership into events.
    fn hear(&mut self) -> Option<String> {
        let mut end = None;
        while let Some(news) = self.session.as_ref().and_then(Session::poll_news) {
            let why = match news {
                News::Failed(ranks, host) => {
                    self.events.extend(ranks.clone().map(Event::Failed));
                    format!("rank {} on host {host} has died", ranks_text(ranks))
                }
                News::Aborted { host, message, .. } => {
                    self.events.push_back(Event::Aborted);
                    format!("host {host}: {message}")
                }
                News::Broken(error) => {
                    self.events.push_back(Event::Aborted);
                    error.to_string()
                }
                News::Unreachable(error) => {
                    tracing::warn!("{error}; the job goes on");
                    continue;
                }
                News::Waiting(_) | News::Formed(..) => continue,
            };
            tracing::warn!("job {}: {why}", self.name);
            end.get_or_insert(why);
        }
        end
    }

    fn arrived(&mut self, number: u32) -> Result<BTreeSet<u32>, LaunchError> {
        let folder = format!("{}fence/{number}/", self.prefix);
        let signing = self.signing_key();
        let there = signed::list(&mut *self.store, &signing, &folder)?;
        Ok(there.iter().filter_map(|(rank, _)| rank.parse().ok()).collect())
    }
}

/// Checks that the incarnation in which `mapwire run` has claimed the rank is the job's.
fn check_life(
    store: &mut dyn Store,
    shared: &SharedSecret,
    job: &NamedJob,
    incarnation: &Incarnation,
) -> Result<(), LaunchError> {
    let record = signed::get(store, &forming::record_key(shared), &job.name.key())?;
    let record = record.and_then(|value| Record::parse(&value));
    match record {
        Some(record) if record.incarnation == *incarnation && record.size == job.size => Ok(()),
        _ => Err(LaunchError::Ended(format!(
            "the store has no job {} of {} ranks that this process was started for",
            job.name, job.size
        ))),
    }
}

fn become_member(
    job: &NamedJob,
    shared: &SharedSecret,
    timeout: Duration,
) -> Result<(Session, Incarnation, u32), LaunchError> {
    let wanted = Wanted { name: job.name.clone(), size: job.size, count: 1, first: job.rank, timeout };
    let session = Session::start(&job.store, shared.clone(), wanted)?;
    loop {
        match session.wait_for_news(None) {
            Some(News::Formed(incarnation, ranks)) => {
                return Ok((session, incarnation, ranks.start));
            }
            Some(News::Broken(error)) => return Err(error),
            _ => {}
        }
    }
}

impl Launcher for Names {
    fn protocol(&self) -> &str {
        match self.store.address() {
            StoreAddress::Server(_) => "names (mapwire serve)",
            StoreAddress::Etcd(_) => "names (etcd)",
        }
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn secret(&self) -> Option<Secret> {
        Some(self.incarnation.secret(&self.name, &self.shared))
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        check_put(key, value)?;
        let key = format!("{}value/{key}/{}", self.prefix, self.rank);
        self.create(&key, value).map(drop)
    }

    fn fence(&mut self, timeout: Duration) -> Result<(), LaunchError> {
        let ends = Instant::now() + timeout;
        let number = self.fences;
        self.fences += 1;
        self.got.clear();
        let folder = format!("{}fence/{number}/", self.prefix);
        self.create(&format!("{folder}{}", self.rank), b"")?;
        let mut pause = PAUSES[0];
        while self.store.count(&folder)? < u64::from(self.size) {
            if let Some(why) = self.hear() {
                return Err(LaunchError::Ended(why));
            }
            if Instant::now() >= ends {
                let there = self.arrived(number)?;
                let missing = (0..self.size).filter(|rank| !there.contains(rank));
                return Err(LaunchError::Late { missing: ranks_text(missing), after: timeout });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES[1]);
        }
        Ok(())
    }

    fn get(&mut self, rank: u32, key: &str, _timeout: Duration) -> Result<Option<Vec<u8>>, LaunchError> {
        check_get(rank, self.size, key)?;
        if !self.got.contains_key(key) {
            let folder = format!("{}value/{key}/", self.prefix);
            let signing = self.signing_key();
            let found = signed::list(&mut *self.store, &signing, &folder)?;
            let of_rank = |(rank, value): (String, _)| Some((rank.parse().ok()?, value));
            let values = found.into_iter().filter_map(of_rank).collect();
            self.got.insert(key.to_owned(), values);
        }
        Ok(self.got.get(key).and_then(|values| values.get(&rank)).cloned())
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.hear();
        self.events.pop_front()
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        let abort = Abort {
            code: u8::try_from(code).unwrap_or(1),
            host: host_name(),
            message: format!("rank {} aborts: {message}", self.rank),
        };
        let key = format!("{}abort", self.prefix);
        self.create(&key, abort.to_text().as_bytes()).map(drop)
    }

    fn finish(self: Box<Self>, _timeout: Duration) -> Result<(), LaunchError> {
        if let Some(session) = self.session {
            session.leave();
        }
        Ok(())
    }
}
