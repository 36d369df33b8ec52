//! Servers and clients of different hosts: they meet by a store of names, in a job of two.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_host::sparing::Sparing;
use mapwire_launch::names::{JobName, Serving, VISIT_SIZE, Visiting, servers};
use mapwire_launch::{Detected, LaunchError, NamedJob};
use mapwire_names::{SharedSecret, StoreAddress};
use mapwire_wire::NodeId;

use super::{DoorName, Greet, JobId, of_guests};
use crate::config::NodeConfig;
use crate::error::Result;
use crate::node::Node;

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
    let Some(server) = found.iter().find(is_there) else {
        return Ok(None);
    };
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
    /// The secret is not to be had; no thread.
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
            sparing: Sparing::default(),
        };
        let masked = mapwire_host::masking::mask();
        let thread = std::thread::Builder::new().name("mapwire-far-door".to_owned()).spawn(move || {
            mapwire_host::masking::mask_for_good();
            desk.serve(&woken);
        });
        drop(masked);
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
    /// `None` while both join it.
    node: Arc<Mutex<Option<Node>>>,
    failure: Arc<Mutex<Option<crate::Error>>>,
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
    sparing: Sparing<&'static str>,
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

    /// Joins a client's job, on a thread of its own: the client may have gone meanwhile.
    fn join(&mut self, job: JobName) {
        self.last += 1;
        let id = self.last;
        let node = Arc::new(Mutex::new(None));
        let failure = Arc::new(Mutex::new(None));
        let (place, failed) = (Arc::clone(&node), Arc::clone(&failure));
        let (greet, config) = (Arc::clone(&self.greet), self.config.clone());
        let detected = self.store.job(job, 0);
        let work = move || {
            mapwire_host::masking::mask_for_good();
            let joined = Node::join_by(config, &detected).and_then(|node| {
                greet.open(id, node.clone())?;
                Ok(node)
            });
            match joined {
                Ok(node) => *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(node),
                Err(error) => {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        };
        let builder = std::thread::Builder::new().name("mapwire-meet".to_owned());
        if builder.spawn(work).is_ok() {
            self.jobs.push(Job { id, node, failure });
        }
    }

    /// Leaves the jobs whose clients are gone.
    fn part(&mut self) {
        let now = Instant::now();
        let (greet, sparing) = (&self.greet, &mut self.sparing);
        while let Some(left_out) = sparing.poll(now) {
            tracing::warn!("{left_out}");
        }
        self.jobs.retain(|job| {
            let failure = job.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = &*failure {
                if sparing.admit("clients of other hosts that did not come in", now) {
                    tracing::warn!("a client of another host did not come in: {error}");
                }
                return false;
            }
            drop(failure);
            let mut place = job.node.lock().unwrap_or_else(PoisonError::into_inner);
            let is_gone = (place.as_ref()).is_some_and(|node| node.inner.engine.lock().is_gone(NodeId(1)));
            if is_gone {
                let node = place.take();
                let (greet, id) = (Arc::clone(greet), job.id);
                let leave = move || {
                    greet.part(id, 1);
                    greet.close(id);
                    // The last to have it: leaving takes as long as the store takes.
                    drop(node);
                };
                let builder = std::thread::Builder::new().name("mapwire-meet".to_owned());
                let _ = builder.spawn(leave);
            }
            !is_gone
        });
    }
}
