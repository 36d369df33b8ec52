//! The server's thread that answers knocks and keeps the jobs of its guests.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, mpsc::TryRecvError};
use std::time::{Duration, Instant};

use mapwire_host::log_limit::LogLimit;
use mapwire_host::masking;
use mapwire_transport::board::MAX_RANKS;
use mapwire_transport::local::{self, is_own};
use mapwire_transport::rendezvous::JobAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::hosted::{HostedJob, Stage};
use super::knocks::{Knock, Knocks};
use super::record::Answer;
use super::{Credentials, Door, DoorName, MeetingError};
use crate::worker::{Bell, Worker};

/// Knocks taken from one door before the others get their turn.
const ACCEPT_BURST: usize = 64;
/// Ranks that a process may have without having joined: what it does not use is given up after some time, and others need ranks meanwhile.
const MOST_JOINING: usize = 256;
const SHORT_RETRY: Duration = Duration::from_millis(50);

/// A job's number at its server, from 1; none is used twice.
pub type JobId = u64;

/// What a server does for its jobs. Called on threads of the reception.
pub trait Host: Send + Sync + 'static {
    /// Joins a new job as rank 0, and makes ready for guests, who wait meanwhile. On a thread of its own.
    ///
    /// # Errors
    /// The reason, which the waiting guests are told.
    fn open_job(&self, job: JobId, address: &JobAddress) -> Result<(), String>;

    /// A guest has been given a rank. It joins when this is over.
    fn handle_guest(&self, job: JobId, rank: u32, who: &Credentials);

    /// A guest has left or died.
    fn handle_guest_gone(&self, job: JobId, rank: u32);

    /// Nobody is in the job any more, nor ever comes: leaves it. On a thread of its own.
    fn close_job(&self, job: JobId);
}

/// How many guests a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceptionLimits {
    /// Ranks of a job, the server included: 2 to 4096.
    pub ranks: u32,
    /// Jobs at a time. Users other than this process's and root have half of them at most, each of them no more than it leaves to the
    /// others of these; an eighth is theirs alone.
    pub jobs: usize,
    /// Guests at a time of this process's user and of root.
    pub own_guests: usize,
    /// Guests at a time of each other user; 0: none are admitted.
    pub other_guests: usize,
}

impl Default for ReceptionLimits {
    fn default() -> Self {
        Self { ranks: 256, jobs: 64, own_guests: 4096, other_guests: 64 }
    }
}

#[derive(Debug)]
enum Order {
    Open(Arc<Door>),
    Close(DoorName),
}

/// The reception of a server. It ends with this, and with it all jobs.
#[derive(Debug)]
pub struct Reception(Worker<Order>);

impl Reception {
    /// Starts it.
    ///
    /// # Errors
    /// No thread, or no descriptor left.
    pub fn start(host: Arc<dyn Host>, limits: ReceptionLimits) -> Result<Self, MeetingError> {
        let limits = ReceptionLimits { ranks: limits.ranks.clamp(2, MAX_RANKS), ..limits };
        let (tell, opened) = mpsc::channel();
        let worker = Worker::start("mapwire-door", move |orders, bell| {
            let desk = Desk {
                host,
                limits,
                bell: Arc::clone(bell),
                tell,
                opened,
                doors: Vec::new(),
                knocks: Knocks::default(),
                jobs: Vec::new(),
                last_job: 0,
                short_until: None,
                sparing: LogLimit::default(),
            };
            desk.serve(orders);
        });
        Ok(Self(worker?))
    }

    /// Answers at `door` too.
    pub fn add(&self, door: Arc<Door>) {
        self.0.order(Order::Open(door));
    }

    /// Stops answering there. Guests that were admitted stay.
    pub fn remove(&self, name: &DoorName) {
        self.0.order(Order::Close(name.clone()));
    }
}

struct Desk {
    host: Arc<dyn Host>,
    limits: ReceptionLimits,
    bell: Arc<Bell>,
    tell: Sender<(JobId, Result<(), String>)>,
    opened: Receiver<(JobId, Result<(), String>)>,
    doors: Vec<Arc<Door>>,
    knocks: Knocks,
    jobs: Vec<HostedJob>,
    last_job: JobId,
    /// Until then nobody is let in: no descriptor is left.
    short_until: Option<Instant>,
    sparing: LogLimit<Cause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Clients that wait, as no descriptor is left.
    Short,
    /// Jobs for clients of a user that could not be opened.
    Unopened(u32),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("times without a file descriptor for a client"),
            Self::Unopened(user) => write!(f, "jobs that could not be opened, for user {user}"),
        }
    }
}

impl Desk {
    fn serve(mut self, orders: &Receiver<Order>) {
        loop {
            loop {
                match orders.try_recv() {
                    Ok(Order::Open(door)) => self.doors.push(door),
                    Ok(Order::Close(name)) => self.doors.retain(|door| *door.name() != name),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let now = Instant::now();
            self.serve_jobs(now);
            self.answer_door(now);
            while let Some(left_out) = self.sparing.poll(now) {
                tracing::warn!("{left_out}");
            }
            self.knocks.hear(now);
            for knock in self.knocks.take_waiting() {
                self.place(knock, now);
            }
            self.sleep(now);
        }
    }

    fn serve_jobs(&mut self, now: Instant) {
        for (id, outcome) in self.opened.try_iter() {
            let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) else {
                continue;
            };
            job.stage = Stage::Open;
            if let Err(why) = outcome {
                if self.sparing.admit(Cause::Unopened(job.user), now) {
                    tracing::warn!("a job for clients of user {} could not be opened: {why}", job.user);
                }
                job.stage = Stage::Over;
                for knock in self.knocks.take_waiting() {
                    if knock.who.user == job.user {
                        knock.answer(&Answer::Refused(why.clone()));
                    } else {
                        self.knocks.put_back(knock);
                    }
                }
            }
        }
        for job in &mut self.jobs {
            for rank in job.serve(now) {
                self.host.handle_guest_gone(job.id, rank);
            }
            if job.stage == Stage::Open && job.is_used_up() {
                job.stage = Stage::Over;
                let (host, id) = (Arc::clone(&self.host), job.id);
                // Without a thread it is done here, and knocks wait meanwhile.
                let close = move || host.close_job(id);
                if let Err((_, close)) = aside(close) {
                    close();
                }
            }
        }
        // The server notices that a job without a broker is over.
        self.jobs.retain(|job| job.stage != Stage::Over);
    }

    fn answer_door(&mut self, now: Instant) {
        if self.short_until.is_some_and(|until| now < until) {
            return;
        }
        self.short_until = None;
        for door in &self.doors {
            for _ in 0..ACCEPT_BURST {
                match local::accept(door) {
                    Ok(socket) => {
                        if let Ok(who) = Credentials::of(&socket) {
                            self.knocks.take(socket, who, now);
                        }
                    }
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(Errno::AGAIN) => break,
                    Err(errno) => {
                        if self.sparing.admit(Cause::Short, now) {
                            tracing::error!(
                                "a client waits at the door of {}: {errno}; raise the limit (`ulimit -n`)",
                                door.name()
                            );
                        }
                        self.short_until = Some(now + SHORT_RETRY);
                        return;
                    }
                }
            }
        }
    }

    /// Gives a client a rank, now or when there is a job for it.
    fn place(&mut self, knock: Knock, now: Instant) {
        let who = knock.who;
        if let Err(why) = self.check_limits(&who) {
            knock.answer(&Answer::Refused(why));
            return;
        }
        let user = who.user;
        let found = self.jobs.iter_mut().find(|job| job.user == user && job.has_room());
        let Some(job) = found else {
            if let Err(why) = self.begin_job(user) {
                knock.answer(&Answer::Refused(why));
                return;
            }
            return self.knocks.put_back(knock);
        };
        if job.stage == Stage::Opening {
            return self.knocks.put_back(knock);
        }
        let rank = job.admit(&who, now);
        self.host.handle_guest(job.id, rank, &who);
        let answer = Answer::Admitted { address: job.address().clone(), rank, size: job.size };
        if !knock.answer(&answer) {
            job.give_up(rank, now);
            self.host.handle_guest_gone(job.id, rank);
        }
    }

    fn check_limits(&self, who: &Credentials) -> Result<(), String> {
        let most = if is_own(who.user) { self.limits.own_guests } else { self.limits.other_guests };
        if most == 0 {
            return Err(format!("it admits no clients of user {}", who.user));
        }
        let of_user = || self.jobs.iter().filter(|job| job.user == who.user);
        let guests: usize = of_user().map(HostedJob::guests).sum();
        if guests >= most {
            return Err(format!("user {} has {guests} clients there already", who.user));
        }
        let joining: usize = of_user().map(|job| job.joining_of(who.process)).sum();
        if joining >= MOST_JOINING {
            return Err(format!("{joining} clients of this process have not joined yet"));
        }
        Ok(())
    }

    /// Whether `user` may have one job more.
    fn check_jobs(&self, user: u32) -> Result<(), String> {
        let jobs = || self.jobs.iter();
        let most = self.limits.jobs;
        let all = jobs().count();
        let of_others = jobs().filter(|job| !is_own(job.user)).count();
        let of_user = jobs().filter(|job| job.user == user).count();
        let may = if is_own(user) {
            all < most && all - of_others < most - most / 8
        } else {
            let left = most.div_ceil(2).saturating_sub(of_others);
            of_user < left.min(most.saturating_sub(all))
        };
        match may {
            true => Ok(()),
            false => Err(format!("of its {all} jobs {of_user} are of user {user}, who may have no more now")),
        }
    }

    fn begin_job(&mut self, user: u32) -> Result<(), String> {
        self.check_jobs(user)?;
        self.last_job += 1;
        let job = HostedJob::new(self.last_job, user, self.limits.ranks);
        let job = job.map_err(|error| error.to_string())?;
        let (host, id, address) = (Arc::clone(&self.host), job.id, job.address().clone());
        let (tell, bell) = (self.tell.clone(), Arc::clone(&self.bell));
        let open = move || {
            let _ = tell.send((id, host.open_job(id, &address)));
            bell.ring();
        };
        self.jobs.push(job);
        if let Err((error, _)) = aside(open) {
            self.jobs.pop();
            return Err(error.to_string());
        }
        Ok(())
    }

    fn sleep(&self, now: Instant) {
        let brokers = self.jobs.iter().filter_map(|job| job.poll_at(now));
        let knocks = self.knocks.poll_at();
        let due = brokers.chain(knocks).chain(self.short_until);
        let due = due.chain(self.sparing.poll_at());
        let limit = due.min().map(|at| at.saturating_duration_since(now));
        // A job may have become due since `now`, and times are rounded.
        let limit = limit.map(|left| left + Duration::from_millis(1));
        let limit = limit.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = vec![PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
        let mut watch = |fd| fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        if self.short_until.is_none() {
            self.doors.iter().for_each(|door| watch(door.as_fd()));
        }
        self.jobs.iter().for_each(|job| watch(job.broker.as_fd()));
        self.knocks.sockets().for_each(&mut watch);
        // Interrupted or not, everything is looked at again.
        let _ = poll(&mut fds, limit.as_ref());
        self.bell.clear();
    }
}

/// Does `work` on a thread of its own, or gives it back.
fn aside<F: FnOnce() + Send + 'static>(work: F) -> Result<(), (io::Error, F)> {
    let (hand, take) = mpsc::channel::<F>();
    let spawned = std::thread::Builder::new().name("mapwire-meet".to_owned()).spawn(move || {
        masking::mask_for_good();
        if let Ok(work) = take.recv() {
            work();
        }
    });
    match spawned {
        Ok(_) => {
            let _ = hand.send(work);
            Ok(())
        }
        Err(error) => Err((error, work)),
    }
}
