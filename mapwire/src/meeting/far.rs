//! Servers and clients of different hosts: they meet by a store of names, in a job of two.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_host::log_limit::LogLimit;
use mapwire_launch::names::{JobName, Serving, VISIT_SIZE, Visiting, servers};
use mapwire_launch::{Detected, LaunchError, NamedJob};
use mapwire_names::{SharedSecret, StoreAddress};
use mapwire_wire::NodeId;

use super::{DoorName, Greet, JobId, of_guests};
use crate::config::NodeConfig;
use crate::error::Result;
use crate::node::Node;
use crate::threads;

/// How often a server asks the store for clients.
const ASKING: Duration = Duration::from_millis(100);
/// How often it says that it lives.
const KEEPING: Duration = Duration::from_secs(1);
/// While the store cannot be reached, how often it is tried.
const RETRY: Duration = Duration::from_secs(2);
/// Jobs of far clients have numbers from here on.
const FIRST_JOB: JobId = 1 << 63;
/// Far clients at a time.
const MOST_JOBS: usize = 64;

/// A store of names, and the file of the secret that protects what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStore {
    store: StoreAddress,
    secret_file: PathBuf,
}

impl NamedStore {
    /// What `MAPWIRE_NAMES` and `MAPWIRE_SECRET_FILE` say; `None` if the first is not set.
    ///
    /// # Errors
    /// The address makes no sense.
    pub fn from_env() -> Result<Option<Self>> {
        if std::env::var_os("MAPWIRE_NAMES").is_none_or(|value| value.is_empty()) {
            return Ok(None);
        }
        let (store, secret_file) = NamedJob::store_of(None, None)?;
        Ok(Some(Self { store, secret_file }))
    }

    fn secret(&self) -> Result<SharedSecret, LaunchError> {
        Ok(SharedSecret::read(&self.secret_file)?)
    }

    fn job(&self, name: JobName, rank: u32) -> Detected {
        Detected::Names(NamedJob {
            name,
            store: self.store.clone(),
            secret_file: self.secret_file.clone(),
            size: VISIT_SIZE,
            rank: Some(rank),
            incarnation: None,
        })
    }
}

/// Asks a server of `name` on host `host` to join a job of two, and joins it too: the server is rank 0. `host` is a name or an address.
///
/// # Errors
/// The store cannot be reached; no server there; one that does not come within `timeout`.
pub fn visit_far(
    store: &NamedStore,
    name: &DoorName,
    host: &str,
    mut config: NodeConfig,
    timeout: Duration,
) -> Result<Option<Node>> {
    let shared = store.secret()?;
    let found = servers(&store.store, &shared, name)?;
    let addresses: Vec<IpAddr> = match (host, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip()).collect(),
        // It may be known by its name all the same.
        Err(_) => Vec::new(),
    };
    let is_there = |server: &&mapwire_launch::names::FarServer| {
        server.host == host || server.addresses.iter().any(|it| addresses.contains(it))
    };
    let Some(server) = found.iter().find(is_there) else { return Ok(None) };
    let visiting = Visiting::begin(&store.store, &shared, server)?;
    config = of_guests(config);
    config.driver.timeout = timeout;
    let node = Node::join_by(config, &store.job(visiting.job.clone(), 1))?;
    Ok(Some(node))
}

/// The reception of clients of other hosts: a thread that asks the store for them. It ends with this.
#[derive(Debug)]
pub struct FarReception {
    names: Arc<Mutex<Vec<DoorName>>>,
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FarReception {
    /// Starts it. While the store cannot be reached it tries again, and says so once.
    ///
    /// # Errors
    /// The secret cannot be read; a thread cannot be started.
    pub fn start(store: NamedStore, config: NodeConfig, greet: Arc<dyn Greet>) -> Result<Self> {
        let shared = store.secret()?;
        let names: Arc<Mutex<Vec<DoorName>>> = Arc::default();
        let (wake, woken) = mpsc::channel();
        let desk = Desk {
            shared,
            store,
            config: of_guests(config),
            greet,
            names: Arc::clone(&names),
            jobs: Vec::new(),
            seen: Vec::new(),
            last: FIRST_JOB,
            sparing: LogLimit::default(),
        };
        let thread = threads::spawn("mapwire-far-door", move || desk.serve(&woken));
        Ok(Self { names, wake: Some(wake), thread: Some(thread.map_err(crate::Error::Io)?) })
    }

    /// Serves these names from here on.
    pub fn set_names(&self, names: Vec<DoorName>) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }
}

impl Drop for FarReception {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A job with a far client.
struct Job {
    id: JobId,
    /// The thread that joins it: the client may have gone meanwhile.
    joining: Option<JoinHandle<Result<Node>>>,
    node: Option<Node>,
}

impl Job {
    /// Takes the node of a job that has been joined, or says why it could not be.
    fn take_joined(&mut self) -> Result<()> {
        if let Some(thread) = self.joining.take_if(|thread| thread.is_finished())
            && let Ok(joined) = thread.join()
        {
            self.node = Some(joined?);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match &self.node {
            Some(node) => node.engine().lock().is_gone(NodeId(1)),
            // The thread has panicked.
            None => self.joining.is_none(),
        }
    }
}

struct Desk {
    shared: SharedSecret,
    store: NamedStore,
    config: NodeConfig,
    greet: Arc<dyn Greet>,
    names: Arc<Mutex<Vec<DoorName>>>,
    jobs: Vec<Job>,
    /// Jobs that were asked for and stand in the store still.
    seen: Vec<JobName>,
    last: JobId,
    /// Lines of the log that clients cause.
    sparing: LogLimit<&'static str>,
}

impl Desk {
    fn serve(mut self, woken: &Receiver<()>) {
        let mut serving: Option<Serving> = None;
        let mut kept = Instant::now();
        let mut was_told = false;
        loop {
            let outcome = self.turn(&mut serving, &mut kept);
            let pause = match outcome {
                Ok(()) => {
                    was_told = false;
                    ASKING
                }
                Err(error) => {
                    if !std::mem::replace(&mut was_told, true) {
                        tracing::warn!("clients of other hosts cannot come: {error}");
                    }
                    serving = None;
                    RETRY
                }
            };
            self.part();
            match woken.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) | Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn turn(&mut self, serving: &mut Option<Serving>, kept: &mut Instant) -> Result<(), LaunchError> {
        let serving = match serving {
            Some(serving) => serving,
            None => {
                let addresses = crate::node::addresses_of_this_host().unwrap_or_default();
                serving.insert(Serving::begin(&self.store.store, &self.shared, addresses)?)
            }
        };
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        serving.set_names(&names)?;
        if kept.elapsed() >= KEEPING {
            *kept = Instant::now();
            serving.keep()?;
        }
        let asked = serving.asked()?;
        self.seen.retain(|job| asked.contains(job));
        for job in asked {
            if !self.seen.contains(&job) && self.jobs.len() < MOST_JOBS {
                self.seen.push(job.clone());
                self.join(job);
            }
        }
        Ok(())
    }

    /// Joins a client's job, on a thread of its own.
    fn join(&mut self, job: JobName) {
        self.last += 1;
        let id = self.last;
        let (greet, config) = (Arc::clone(&self.greet), self.config.clone());
        let detected = self.store.job(job, 0);
        let joining = threads::spawn("mapwire-meet", move || {
            let node = Node::join_by(config, &detected)?;
            greet.open(id, node.clone())?;
            Ok(node)
        });
        if let Ok(thread) = joining {
            self.jobs.push(Job { id, joining: Some(thread), node: None });
        }
    }

    /// Leaves the jobs whose clients are gone.
    fn part(&mut self) {
        let now = Instant::now();
        let (greet, sparing) = (&self.greet, &mut self.sparing);
        while let Some(left_out) = sparing.poll(now) {
            tracing::warn!("{left_out}");
        }
        self.jobs.retain_mut(|job| {
            if let Err(error) = job.take_joined() {
                if sparing.admit("clients of other hosts that did not come in", now) {
                    tracing::warn!("a client of another host did not come in: {error}");
                }
                return false;
            }
            let is_over = job.is_over();
            if is_over && let Some(node) = job.node.take() {
                let (greet, id) = (Arc::clone(greet), job.id);
                let _ = threads::spawn("mapwire-meet", move || {
                    greet.part(id, 1);
                    greet.close(id);
                    // The last to have it: leaving takes as long as the store takes.
                    drop(node);
                });
            }
            !is_over
        });
    }
}
