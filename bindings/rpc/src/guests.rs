//! The jobs of a server and its guests, each with its queue of calls.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mapwire::meeting::{Credentials, Greet, JobId};
use mapwire::rpc::{PeerCredentials, Rpc, Server};
use mapwire::{EventFd, Node};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::names::Served;
use crate::settings;

/// A bell that makes the server's descriptor readable until it is cleared.
pub(crate) struct Ring {
    fd: OwnedFd,
    is_rung: AtomicBool,
}

impl Ring {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { fd: eventfd(0, flags)?, is_rung: AtomicBool::new(false) })
    }

    pub(crate) fn ring(&self) {
        // It fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        // After that: whoever sees the mark finds the descriptor readable.
        self.is_rung.store(true, Ordering::Release);
    }

    /// Makes no system call unless it was rung.
    pub(crate) fn clear(&self) {
        if self.is_rung.load(Ordering::Relaxed) && self.is_rung.swap(false, Ordering::Acquire) {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The server's end of one job.
pub(crate) struct Job {
    rpc: Rpc,
    pub(crate) server: Server,
    /// Readable when a call has arrived.
    pub(crate) events: EventFd,
}

/// All jobs of a server. Its reception adds to them; serving threads poll them.
pub(crate) struct Guests {
    jobs: Mutex<BTreeMap<JobId, Arc<Job>>>,
    served: Mutex<Vec<Served>>,
    /// Number of changes of `jobs`.
    changes: AtomicU64,
    /// Readable when any job has something.
    watch: OwnedFd,
    /// Rung on each change of `jobs`.
    ring: Arc<Ring>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guests {
    pub(crate) fn new(served: Vec<Served>, watch: OwnedFd, ring: Arc<Ring>) -> Self {
        Self { jobs: Mutex::default(), served: Mutex::new(served), changes: AtomicU64::new(1), watch, ring }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The present jobs, by number.
    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).values().cloned().collect()
    }

    /// Serves this version from here on, to present and future guests.
    pub(crate) fn serve(&self, served: Served) {
        let mut all = lock(&self.served);
        if !all.contains(&served) {
            all.push(served);
        }
        for job in lock(&self.jobs).values() {
            // A job that is over has no server any more.
            let _ = job.server.register(served.program, served.version);
        }
    }

    /// Stops serving this version.
    pub(crate) fn end(&self, served: Served) {
        let mut all = lock(&self.served);
        all.retain(|one| *one != served);
        for job in lock(&self.jobs).values() {
            let _ = job.server.unregister(served.program, served.version);
        }
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.ring.ring();
    }
}

impl Greet for Guests {
    fn open(&self, job: JobId, node: Node) -> Result<(), mapwire::Error> {
        let rpc = match Rpc::open(&node, settings::rpc_config()) {
            Ok(rpc) => rpc,
            Err(mapwire::rpc::Error::Node(error)) => return Err(error),
            // The service's number is free in a new node, and the settings are valid.
            Err(error) => return Err(mapwire::Error::Io(std::io::Error::other(error))),
        };
        let events = node.event_fd()?;
        let server = rpc.server();
        let all = lock(&self.served);
        for one in all.iter() {
            let _ = server.register(one.program, one.version);
        }
        let data = epoll::EventData::new_u64(job);
        let added = epoll::add(&self.watch, events.as_fd(), data, epoll::EventFlags::IN);
        added.map_err(|errno| mapwire::Error::Io(errno.into()))?;
        events.arm()?;
        let end = Job { rpc, server, events };
        lock(&self.jobs).insert(job, Arc::new(end));
        drop(all);
        self.note_change();
        Ok(())
    }

    fn admit(&self, job: JobId, rank: u32, who: &Credentials) {
        let word = PeerCredentials { uid: who.user, gid: who.group, pid: who.process };
        let job = lock(&self.jobs).get(&job).cloned();
        if let Some(job) = job
            && let Err(error) = job.rpc.set_credentials(rank as usize, Some(word))
        {
            crate::log::warn(&format!("calls of process {} are refused: {error}", who.process));
        }
    }

    fn part(&self, _: JobId, _: u32) {}

    fn close(&self, job: JobId) {
        let end = lock(&self.jobs).remove(&job);
        if let Some(end) = end {
            let _ = epoll::delete(&self.watch, end.events.as_fd());
        }
        self.note_change();
    }
}
