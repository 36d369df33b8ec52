//! Servers and clients that come and go, without a launcher.
//!
//! A server opens [`Door`]s and starts a [`Reception`]; a client [`visit`]s by the door's name. Both then have a [`Node`] in a job of the
//! server, in which the server is rank 0. How they meet, and what protects whom from whom, is said in [`mapwire_launch::doors`]. Those of different hosts meet by a store of names
//! ([`FarReception`], [`visit_far`]), in a job of two; who has the store's secret may come.
//!
//! ```no_run
//! use std::sync::Arc;
//! use mapwire::meeting::{Credentials, Door, Greet, JobId, Reception, ReceptionLimits};
//! use mapwire::{Node, NodeConfig};
//!
//! struct Greeter;
//! impl Greet for Greeter {
//!     fn open(&self, _job: JobId, node: Node) -> Result<(), mapwire::Error> {
//!         // Export something, register a service; keep the node.
//!         std::mem::forget(node);
//!         Ok(())
//!     }
//!     fn admit(&self, job: JobId, rank: u32, who: &Credentials) {
//!         println!("process {} of user {} is rank {rank} of job {job}", who.process, who.user);
//!     }
//!     fn part(&self, _job: JobId, _rank: u32) {}
//!     fn close(&self, _job: JobId) {}
//! }
//!
//! let reception = Reception::start(NodeConfig::from_env()?, Arc::new(Greeter), ReceptionLimits::default())?;
//! reception.add(Arc::new(Door::open("clock".parse()?)?));
//! # Ok::<(), mapwire::Error>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use mapwire_launch::doors::{Host, knock};
use mapwire_transport::rendezvous::JobAddress;

use crate::config::NodeConfig;
use crate::error::Result;
use crate::node::Node;

mod far;

pub use far::{FarReception, NamedStore, visit_far};
pub use mapwire_launch::doors::{Credentials, Door, DoorName, JobId, MeetingError, ReceptionLimits};

/// What a server does for its jobs and guests. Called on threads of the reception.
pub trait Greet: Send + Sync + 'static {
    /// Takes the server's place in a new job, as rank 0, and makes ready what guests will use. They wait meanwhile.
    ///
    /// # Errors
    /// Why it cannot be made ready: the guests are told.
    fn open(&self, job: JobId, node: Node) -> Result<()>;

    /// A guest has been given a rank, and joins when this is over. It may take no lock that is held for long: knocks wait.
    fn admit(&self, job: JobId, rank: u32, who: &Credentials);

    /// A guest has left or died.
    fn part(&self, job: JobId, rank: u32);

    /// All ranks of the job were used, and its guests are gone: gives the node up.
    fn close(&self, job: JobId);
}

/// The reception of a server: a thread that answers knocks, and keeps the jobs. It ends with this; then the jobs end too.
#[derive(Debug)]
pub struct Reception(mapwire_launch::doors::Reception);

impl Reception {
    /// Starts it. Nodes of its jobs are made by `config`, whose job and rank mean nothing here.
    ///
    /// # Errors
    /// No thread, or no descriptor left.
    pub fn start(config: NodeConfig, greet: Arc<dyn Greet>, limits: ReceptionLimits) -> Result<Self> {
        let config = of_guests(config);
        let host = Arc::new(Joiner { config, greet });
        let reception = mapwire_launch::doors::Reception::start(host, limits)?;
        Ok(Self(reception))
    }

    /// Answers at `door` too.
    pub fn add(&self, door: Arc<Door>) {
        self.0.add(door);
    }

    /// Answers there no more. Guests that are in stay.
    pub fn remove(&self, name: &DoorName) {
        self.0.remove(name);
    }
}

struct Joiner {
    config: NodeConfig,
    greet: Arc<dyn Greet>,
}

impl Host for Joiner {
    fn open_job(&self, job: JobId, address: &JobAddress) -> Result<(), String> {
        let config = NodeConfig { job: Some(address.to_string()), rank: 0, ..self.config.clone() };
        Node::with(config).and_then(|node| self.greet.open(job, node)).map_err(|error| error.to_string())
    }

    fn handle_guest(&self, job: JobId, rank: u32, who: &Credentials) {
        self.greet.admit(job, rank, who);
    }

    fn handle_guest_gone(&self, job: JobId, rank: u32) {
        self.greet.part(job, rank);
    }

    fn close_job(&self, job: JobId) {
        self.greet.close(job);
    }
}

/// A client's place in a job of its server, which is rank 0.
#[derive(Debug)]
pub struct Visit {
    /// The client's node.
    pub node: Node,
    /// The server, by the kernel's word.
    pub server: Credentials,
}

/// The users at whose doors a process may knock without knowing more: its own, and root.
#[must_use]
pub fn trusted_users() -> Vec<u32> {
    let mut users = vec![rustix::process::geteuid().as_raw(), 0];
    users.dedup();
    users
}

/// Knocks for `name` at the doors of these users in turn, and joins the job that the first of them gives. `config` is what the node is made
/// with; its job and rank mean nothing here.
///
/// # Errors
/// [`MeetingError`]: nobody serves `name`, or not this process; what [`Node::with`] says.
pub fn visit(name: &DoorName, users: &[u32], config: NodeConfig, timeout: Duration) -> Result<Visit> {
    let admission = knock(name, users, timeout)?;
    let mut config = of_guests(config);
    config.job = Some(admission.address.to_string());
    config.rank = admission.rank;
    Ok(Visit { node: Node::with(config)?, server: admission.server })
}

/// For a job in which ranks come and go. A launcher that has this process write down what it does wants that of its own job.
fn of_guests(mut config: NodeConfig) -> NodeConfig {
    config.driver.is_open = true;
    config.driver.trace = None;
    config.driver.net.capture = None;
    config
}
