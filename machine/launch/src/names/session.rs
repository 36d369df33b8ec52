//! A member of a job, on a thread: it joins, keeps its leases, and watches for members that die and for the end of the job.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_host::descriptors::above_stdio;
use mapwire_host::masking;
use mapwire_names::{NamesError, SharedSecret, SigningKey, Store, StoreAddress, open};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::forming::{self, Formed, KEEP, Waiting, Wanted};
use super::record::{Abort, Incarnation, host_name};
use super::signed;
use crate::LaunchError;

/// What a member hears.
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
        /// The member's host.
        host: String,
        /// Why.
        message: String,
    },
    /// The store cannot be reached just now. The job goes on.
    Unreachable(NamesError),
    /// The membership is over.
    Broken(LaunchError),
}

enum Order {
    Abort { code: u8, message: String },
    Leave,
}

#[derive(Debug)]
struct Told {
    news: Mutex<VecDeque<News>>,
    bell: OwnedFd,
}

impl Told {
    fn tell(&self, news: News) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(news);
        // It fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// A membership. Dropped without [`leave`](Self::leave), it counts as dead.
#[derive(Debug)]
pub struct Session {
    told: Arc<Told>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Begins to join. News tell how it goes.
    ///
    /// # Errors
    /// No thread or descriptor can be had.
    pub fn start(address: &StoreAddress, shared: SharedSecret, wanted: Wanted) -> Result<Self, LaunchError> {
        let os = |call| move |source| LaunchError::Os { call, source };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).and_then(above_stdio).map_err(|errno| os("eventfd")(errno.into()))?;
        let told = Arc::new(Told { news: Mutex::default(), bell });
        let (orders, heard) = mpsc::channel();
        let store = open(address, &shared)?;
        let tells = Arc::clone(&told);
        // Handlers of the program run on threads of the program.
        let masked = masking::mask();
        let thread = std::thread::Builder::new()
            .name("mapwire-names".to_owned())
            .spawn(move || {
                masking::mask_for_good();
                run(store, &shared, &wanted, &heard, &tells);
            })
            .map_err(os("starting a thread"))?;
        drop(masked);
        Ok(Self { told, orders: Some(orders), thread: Some(thread) })
    }

    /// What has happened.
    pub fn poll_news(&self) -> Option<News> {
        let mut all = self.told.news.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= 1 {
            let _ = rustix::io::read(self.as_fd(), &mut [0; 8]);
        }
        all.pop_front()
    }

    /// Waits for news, until `ends` if that is given.
    pub fn wait_for_news(&self, ends: Option<Instant>) -> Option<News> {
        loop {
            if let Some(news) = self.poll_news() {
                return Some(news);
            }
            let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], limit.as_ref());
        }
    }

    /// Tells all members that this one ends the job.
    pub fn abort(&self, code: u8, message: &str) {
        if let Some(orders) = &self.orders {
            let message = message.to_owned();
            let _ = orders.send(Order::Abort { code, message });
        }
    }

    /// Leaves in order. The last that leaves removes all that is left of the job. Takes seconds where the store does not answer.
    pub fn leave(mut self) {
        if let Some(orders) = self.orders.take() {
            let _ = orders.send(Order::Leave);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl AsFd for Session {
    /// Readable when there may be news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.bell.as_fd()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The wait of a member that joins: orders end it.
struct Joining<'a> {
    orders: &'a Receiver<Order>,
    told: &'a Told,
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

fn run(mut store: Box<dyn Store>, shared: &SharedSecret, wanted: &Wanted, orders: &Receiver<Order>, told: &Told) {
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

/// A member of a formed job.
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
    fn serve(&mut self, orders: &Receiver<Order>, told: &Told) {
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

    /// Keeps the leases, and looks for what others did.
    fn look(&mut self, told: &Told) -> Result<(), LaunchError> {
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

    fn find_gone(&mut self, told: &Told) -> Result<(), LaunchError> {
        let there = forming::claims(&mut *self.store, &self.signing, &self.prefix)?;
        // After the claims: who leaves says so before its claim goes.
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

    /// The numbers of the members that have left.
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
        // Who was first has said it.
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
