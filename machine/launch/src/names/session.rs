//! A member of a job, on a thread: it joins, keeps its leases, and watches for members that die and for the end of the job.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mapwire_names::{NamesError, SharedSecret, SigningKey, Store, StoreAddress, open};
use mapwire_transport::local;
use rustix::event::PollFlags;

use super::forming::{self, Formed, KEEP, Waiting, Wanted};
use super::record::{Abort, Incarnation, host_name};
use super::signed;
use crate::LaunchError;
use crate::worker::{Bell, Worker};

#[derive(Debug)]
pub enum News {
    /// These ranks are missing, as text.
    Waiting(String),
    /// The job is formed: this process has these ranks of this incarnation.
    Formed(Incarnation, Range<u32>),
    /// A member has died with these ranks, which were on this host.
    Failed(Range<u32>, String),
    /// A member ends the job.
    Aborted {
        /// Exit code of the job.
        code: u8,
        host: String,
        message: String,
    },
    /// The store cannot be reached just now. The job goes on.
    Unreachable(NamesError),
    Broken(LaunchError),
}

#[derive(Debug)]
enum Order {
    Abort { code: u8, message: String },
    Leave,
}

type Queue = Arc<Mutex<VecDeque<News>>>;

struct NewsSender<'a> {
    news: Queue,
    bell: &'a Bell,
}

impl NewsSender<'_> {
    fn tell(&self, news: News) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(news);
        self.bell.ring();
    }
}

/// A membership. Dropped without [`leave`](Self::leave), it counts as dead.
#[derive(Debug)]
pub struct Session {
    news: Queue,
    worker: Worker<Order>,
}

impl Session {
    /// Begins to join. News tell how it goes.
    ///
    /// # Errors
    /// Cannot start a thread or open a descriptor.
    pub fn start(address: &StoreAddress, shared: SharedSecret, wanted: Wanted) -> Result<Self, LaunchError> {
        let store = open(address, &shared)?;
        let news = Queue::default();
        let told = Arc::clone(&news);
        let worker = Worker::start("mapwire-names", move |orders, bell| {
            run(store, &shared, &wanted, orders, &NewsSender { news: told, bell });
        })?;
        Ok(Self { news, worker })
    }

    pub fn poll_news(&self) -> Option<News> {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= 1 {
            self.worker.bell().clear();
        }
        all.pop_front()
    }

    /// Waits for news, until `ends` if that is given.
    pub fn wait_for_news(&self, ends: Option<Instant>) -> Option<News> {
        loop {
            if let Some(news) = self.poll_news() {
                return Some(news);
            }
            if !matches!(local::wait_for(self, PollFlags::IN, ends), Ok(true)) {
                return None;
            }
        }
    }

    /// Tells all members that this one ends the job.
    pub fn abort(&self, code: u8, message: &str) {
        self.worker.order(Order::Abort { code, message: message.to_owned() });
    }

    /// Leaves in order. The last that leaves removes all that is left of the job. Takes seconds where the store does not answer.
    pub fn leave(self) {
        self.worker.order(Order::Leave);
    }
}

impl AsFd for Session {
    /// Readable when there may be news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.worker.bell().as_fd()
    }
}

/// The wait of a member that joins: orders end it.
struct Joining<'a> {
    orders: &'a Receiver<Order>,
    told: &'a NewsSender<'a>,
    last: String,
}

impl Waiting for Joining<'_> {
    fn pause(&mut self, pause: Duration) -> bool {
        matches!(self.orders.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
    }

    fn tell(&mut self, missing: &str) {
        if !missing.is_empty() && self.last != missing {
            self.last = missing.to_owned();
            self.told.tell(News::Waiting(missing.to_owned()));
        }
    }
}

fn run(
    mut store: Box<dyn Store>,
    shared: &SharedSecret,
    wanted: &Wanted,
    orders: &Receiver<Order>,
    told: &NewsSender<'_>,
) {
    let mut joining = Joining { orders, told, last: String::new() };
    let formed = match forming::form(&mut *store, shared, wanted, &mut joining) {
        Ok(Some(formed)) => formed,
        Ok(None) => return,
        Err(error) => return told.tell(News::Broken(error)),
    };
    told.tell(News::Formed(formed.incarnation.clone(), formed.ranks()));
    let mut watch = Watch {
        signing: formed.incarnation.signing_key(&wanted.name, shared),
        prefix: formed.incarnation.prefix(&wanted.name),
        count: formed.claims.len() as u64,
        gone: BTreeSet::new(),
        is_aborted: false,
        formed,
        store,
    };
    watch.serve(orders, told);
}

struct Watch {
    store: Box<dyn Store>,
    formed: Formed,
    signing: SigningKey,
    prefix: String,
    /// Claims that were there when they were looked at last.
    count: u64,
    /// Of members that have left or died.
    gone: BTreeSet<u32>,
    is_aborted: bool,
}

impl Watch {
    fn serve(&mut self, orders: &Receiver<Order>, told: &NewsSender<'_>) {
        let mut was_reached = true;
        loop {
            match orders.recv_timeout(KEEP) {
                Ok(Order::Abort { code, message }) => {
                    if let Err(error) = self.abort(code, &message) {
                        tracing::warn!("the other hosts are not told of the end: {error}");
                    }
                }
                Ok(Order::Leave) => {
                    if let Err(error) = self.leave() {
                        tracing::warn!("what this host has put goes in some seconds: {error}");
                    }
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // Without a sign that it has left, it counts as dead.
                    let _ = self.store.revoke(self.formed.lease);
                    return;
                }
            }
            match self.look(told) {
                Ok(()) => was_reached = true,
                Err(LaunchError::Store(error @ NamesError::Unreachable { .. })) => {
                    if std::mem::take(&mut was_reached) {
                        told.tell(News::Unreachable(error));
                    }
                }
                Err(error) => {
                    told.tell(News::Broken(error));
                    return;
                }
            }
        }
    }

    fn look(&mut self, told: &NewsSender<'_>) -> Result<(), LaunchError> {
        let (own, job) = (self.formed.lease, self.formed.incarnation.lease);
        if !self.store.keep(own)? || !self.store.keep(job)? {
            return Err(NamesError::NoLease { address: self.store.address().to_string() }.into());
        }
        if !self.is_aborted {
            let key = format!("{}abort", self.prefix);
            if let Some(value) = signed::get(&mut *self.store, &self.signing, &key)? {
                self.is_aborted = true;
                if let Some(abort) = Abort::parse(&value) {
                    let Abort { code, host, message } = abort;
                    told.tell(News::Aborted { code, host, message });
                }
            }
        }
        let count = self.store.count(&format!("{}claim/", self.prefix))?;
        if count != self.count {
            self.count = count;
            self.find_gone(told)?;
        }
        Ok(())
    }

    fn find_gone(&mut self, told: &NewsSender<'_>) -> Result<(), LaunchError> {
        let there = forming::claims(&mut *self.store, &self.signing, &self.prefix)?;
        // Read after the claims: a member that leaves posts this before its claim goes.
        let left = self.left()?;
        for (number, claim) in &self.formed.claims {
            if there.get(number) == Some(claim) || !self.gone.insert(*number) {
                continue;
            }
            if !left.contains(number) {
                told.tell(News::Failed(claim.ranks.clone(), claim.host.clone()));
            }
        }
        Ok(())
    }

    fn left(&mut self) -> Result<BTreeSet<u32>, LaunchError> {
        let folder = format!("{}left/", self.prefix);
        let left = signed::list(&mut *self.store, &self.signing, &folder)?;
        Ok(left.iter().filter_map(|(number, _)| number.parse().ok()).collect())
    }

    fn abort(&mut self, code: u8, message: &str) -> Result<(), LaunchError> {
        self.is_aborted = true;
        let abort = Abort { code, host: host_name(), message: message.into() };
        let key = format!("{}abort", self.prefix);
        let (text, lease) = (abort.to_text(), self.formed.incarnation.lease);
        // If another member was first, its reason stands.
        signed::create(&mut *self.store, &self.signing, &key, text.as_bytes(), lease).map(drop)
    }

    fn leave(&mut self) -> Result<(), LaunchError> {
        let key = format!("{}left/{}", self.prefix, self.formed.own);
        let job = self.formed.incarnation.lease;
        signed::create(&mut *self.store, &self.signing, &key, b"", job)?;
        let there = forming::claims(&mut *self.store, &self.signing, &self.prefix)?;
        let left = self.left()?;
        self.store.revoke(self.formed.lease)?;
        let is_over = |number: &u32| left.contains(number) || !there.contains_key(number);
        if self.formed.claims.keys().all(is_over) {
            self.store.revoke(job)?;
        }
        Ok(())
    }
}
