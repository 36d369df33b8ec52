//! A process's place in a job.

use core::any::Any;
use core::marker::PhantomData;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use mapwire_driver::DriverError;
use mapwire_driver::engine::{AskForWake, Asked, DriverGuard, Engine};
use mapwire_driver::profile::Profile;
use mapwire_host::waiting::WaitStrategy;
use mapwire_launch::{Detected, Membership};
use mapwire_translation::ChooseVictims;
use mapwire_transport::job::JobFabric;
use mapwire_transport::net::{Addresses, AddressesError, NetConfig};
use mapwire_transport::rendezvous::JobAddress;
use mapwire_vmmc::ProxySpace;
use mapwire_wire::NodeId;

use crate::config::{ConfigError, NodeConfig};
use crate::copies::Copies;
use crate::environment;
use crate::error::Result;
use crate::leaving::{self, Departure};

/// A process's place in a job: its rank, its NIC, and the way to the others. Cheap to clone; the last clone that goes leaves
/// the job, once what was sent has arrived, or is in memory of a rank of the same host: it waits for that for as long as
/// `MAPWIRE_TIMEOUT` says (30 s).
///
/// A process that exits while it has a node, as one in a static, leaves likewise: when it returns from `main`, and in
/// [`std::process::exit`]. What did not arrive, without an error of a call having told of it, is named on standard error, and the exit code
/// is 70 if it would have been 0. With another code it delivers what it sent, and then counts as a rank that failed. [`std::process::abort`], signals, `_exit` and `quick_exit` end a process without that.
///
/// # Forked children
/// A node, and all that is made from it, works in the process that joined and in no other. In a child by `fork` every call fails with
/// [`ErrorKind::Forked`](crate::ErrorKind::Forked), calls without a result do nothing, counters are 0, and dropping gives back nothing: the
/// parent goes on unharmed. Shared memory of one host is there, with what its documentation names; between hosts it is not: a child that
/// touches it ends with a line on standard error. A child may join a job
/// of its own, and `exec` anything.
#[derive(Clone, Debug)]
pub struct Node {
    inner: Arc<Inner>,
    /// It goes with the last `Node` that has it.
    group: Arc<GroupSlot>,
}

/// The proxy addresses of a node's imports. Read by every call that takes one, written when an import comes or goes.
pub(crate) type Proxies = RwLock<ProxySpace<Arc<dyn Any + Send + Sync>>>;

/// What calls of all ranks together keep, once there was one.
pub(crate) type GroupSlot = Mutex<Option<Box<dyn Any + Send>>>;

#[derive(Debug)]
struct Inner {
    engine: Arc<Engine>,
    config: NodeConfig,
    proxies: Proxies,
    openings: AtomicU32,
    is_shared: AtomicBool,
    profile: OnceLock<Option<Arc<Profile>>>,
    requests: AtomicU32,
    copies: Copies,
    departure: Arc<Departure>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.engine.is_here() {
            // All of it is the parent's: sockets that it sends by, sessions of libraries, threads that are not here. The child keeps its
            // copies until it ends.
            core::mem::forget(Arc::clone(&self.departure));
            return;
        }
        self.departure.leave();
    }
}

impl Node {
    /// Joins the job that `mapwire run` started this process in, or `mpirun`, `prterun`, `srun` or `mpiexec`: by PMIx, PMI-2 or PMI-1; or the one that
    /// `MAPWIRE_JOB_NAME` names, by a store of names. Without
    /// a launcher, a job of this process alone. Where `mapwire run` is not there to do so, it warns on standard error of variables that
    /// mean nothing, and of a launcher that it does not know.
    ///
    /// # Errors
    /// A `MAPWIRE_*` variable that is not valid; a launcher that is gone or refuses; a limit of the operating system.
    pub fn join() -> Result<Self> {
        let config = NodeConfig::from_env()?;
        if config.job.is_some() {
            return Self::with(config);
        }
        environment::warn_of_variables();
        let Some(launcher) = mapwire_launch::detect()? else {
            environment::warn_alone();
            return Self::with(config);
        };
        Ok(Self::join_by(config, &launcher)?.leaving_at_exit())
    }

    /// Joins the job of a launcher. The node is not known to the exit of the process: far memory serves until the very end.
    pub(crate) fn join_by(mut config: NodeConfig, launcher: &Detected) -> Result<Self> {
        let (net, timeout) = (&mut config.driver.net, config.driver.timeout);
        let membership = Membership::begin(launcher, net, timeout)?;
        if membership.spans_hosts() && net.addresses.is_empty() {
            net.addresses = addresses_of_this_host()?;
        }
        config.job = Some(membership.address().to_string());
        config.rank = membership.rank();
        Self::of(config, Some(membership))
    }

    /// Joins as `config` says.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn with(config: NodeConfig) -> Result<Self> {
        Ok(Self::of(config, None)?.leaving_at_exit())
    }

    fn leaving_at_exit(self) -> Self {
        leaving::leave_at_exit(&self.inner.departure);
        self
    }

    fn of(config: NodeConfig, membership: Option<Membership>) -> Result<Self> {
        if config.driver.net.loss.is_some() && config.rank == 0 {
            environment::warn("MAPWIRE_LOSS is set: ranks lose or damage datagrams on purpose");
        }
        let job = match &config.job {
            None => JobFabric::alone().map_err(DriverError::from)?,
            Some(text) => {
                let address: JobAddress = text.parse().map_err(|error| ConfigError {
                    name: "MAPWIRE_JOB".to_owned(),
                    value: text.clone(),
                    why: format!("{error}"),
                })?;
                let driver = &config.driver;
                let net = NetConfig { spins: driver.wait == WaitStrategy::Poll, ..driver.net.clone() };
                JobFabric::join(&address, config.rank, driver.timeout, &net).map_err(DriverError::from)?
            }
        };
        if let Some(membership) = &membership {
            membership.exchange_cards(job.card(), config.driver.timeout)?;
        }
        let engine = Engine::start(&config.driver, job)?;
        let timeout = config.driver.timeout;
        let departure = Departure::new(Arc::clone(&engine), membership, timeout);
        Ok(Self {
            group: Arc::default(),
            inner: Arc::new(Inner {
                engine,
                config,
                proxies: Proxies::default(),
                openings: AtomicU32::new(0),
                is_shared: AtomicBool::new(false),
                profile: OnceLock::new(),
                requests: AtomicU32::new(0),
                copies: Copies::default(),
                departure: Arc::new(departure),
            }),
        })
    }

    /// The same node, for what its group keeps.
    pub(crate) fn without_group(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), group: Arc::default() }
    }

    /// Refuses a [forked child](Self#forked-children) of the process that joined. Takes a nanosecond; every call of this crate asks it.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        Ok(self.inner.engine.check_here()?)
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    pub(crate) fn proxies(&self) -> &Proxies {
        &self.inner.proxies
    }

    pub(crate) fn group(&self) -> &GroupSlot {
        &self.group
    }

    /// How often all ranks have opened the shared memory.
    pub(crate) fn openings(&self) -> &AtomicU32 {
        &self.inner.openings
    }

    /// Whether its shared memory is open.
    pub(crate) fn is_shared(&self) -> &AtomicBool {
        &self.inner.is_shared
    }

    /// What it counts of its shared memory, if the launcher wants that. A job goes on without.
    pub(crate) fn profile(&self) -> Option<&Arc<Profile>> {
        let make = |folder: &std::path::PathBuf| {
            let (rank, size) = (self.inner.engine.rank(), self.inner.engine.size());
            let made = Profile::create(folder, rank, size, mapwire_host::waiting::now_ns);
            made.inspect_err(
                |error| tracing::warn!(%error, folder = %folder.display(), "no profile of the shared memory"),
            )
            .ok()
        };
        let profile = || self.inner.config.shared.profile.as_ref().and_then(make).map(Arc::new);
        self.inner.profile.get_or_init(profile).as_ref()
    }

    /// Requests under way on the ring path.
    pub(crate) fn requests(&self) -> &AtomicU32 {
        &self.inner.requests
    }

    /// What is on its way to other hosts.
    pub(crate) fn copies(&self) -> &Copies {
        &self.inner.copies
    }

    /// Whether the launcher says that rank 0 has failed, or that the job ends.
    pub(crate) fn has_lost_first(&self) -> bool {
        self.inner.departure.has_lost_first()
    }

    /// The driver; `None` in a forked child, where nothing may be asked of it.
    fn driver(&self) -> Option<DriverGuard<'_>> {
        let engine = &self.inner.engine;
        engine.is_here().then(|| engine.lock())
    }

    /// This process's number in the job, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.engine.rank() as usize
    }

    /// The node of a rank of the job.
    pub(crate) fn peer(&self, rank: usize) -> Result<NodeId, DriverError> {
        let size = self.inner.engine.size();
        match u32::try_from(rank) {
            Ok(rank) if rank < size => Ok(NodeId(rank as u16)),
            other => Err(DriverError::NoSuchRank { rank: other.unwrap_or(u32::MAX), size }),
        }
    }

    /// Processes in the job.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.engine.size() as usize
    }

    /// Runs one turn of the driver in this thread, and the handlers of notifications that came. Whether anything was done.
    /// Needed only by programs that poll memory themselves: waits of this crate do it, and a service thread does while no
    /// thread waits.
    #[inline]
    pub fn poll(&self) -> bool {
        self.inner.engine.poll()
    }

    /// Counts this thread as one that polls for as long as the guard lives: what peers send wakes nobody, and is served when
    /// the thread calls [`poll`](Self::poll) or waits. For loops that poll closely; a thread that computes meanwhile keeps its
    /// peers waiting.
    #[must_use = "the thread counts as polling while the guard lives"]
    pub fn polling(&self) -> Polling {
        self.inner.engine.enter_polling();
        Polling { node: self.clone(), _thread: PhantomData }
    }

    /// Waits until `check` gives something, running the driver meanwhile, in the way that `MAPWIRE_WAIT` says. For
    /// conditions that others bring about by storing into this process's memory. What comes by the ring wakes a thread that
    /// sleeps here. A store on the direct path does not, as nobody knows what `check` looks at: the thread looks again after
    /// 200 µs at first, and after 10 ms at most. [`Export::wait_signal`](crate::Export::wait_signal) is woken at once. In a forked child it
    /// gives `None` at once.
    #[inline]
    pub fn wait_until<T>(
        &self,
        timeout: Option<core::time::Duration>,
        mut check: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.inner.engine.wait_for_memory(Some(&Unasked), timeout, |_| check())
    }

    /// Counters of the NIC.
    #[must_use]
    pub fn nic_counters(&self) -> mapwire_nic::Counters {
        self.driver().map(|driver| *driver.nic().counters()).unwrap_or_default()
    }

    /// The links to ranks of other hosts that were used so far, by rank: round-trip times, windows, what was sent and sent again.
    #[must_use]
    pub fn links(&self) -> Vec<(usize, crate::LinkStats)> {
        let Some(driver) = self.driver() else { return Vec::new() };
        let stats = |rank| Some((rank, driver.nic().link_stats(NodeId(rank as u16))?));
        (0..self.size()).filter_map(stats).collect()
    }

    /// Datagrams that came to this rank and were rejected, by cause; `None` where no rank is on another host.
    #[must_use]
    pub fn rejections(&self) -> Option<crate::Rejections> {
        self.driver()?.rejections()
    }

    /// Counters of translation: lookups and NIC misses of the NIC, check misses, pins and unpins of this process
    /// (UTLB §6).
    #[must_use]
    pub fn translation_counters(&self) -> mapwire_translation::Counters {
        let Some(driver) = self.driver() else { return mapwire_translation::Counters::default() };
        let nic = mapwire_translation::TranslationDesign::counters(driver.nic().translation());
        nic + driver.page_counters()
    }

    /// Sends of this process that the exporter refused after they had left, as far as this process has been told: they had
    /// returned `Ok`, or failed midway. [`Import::flush`](crate::Import::flush) says of one import whether there were any.
    #[must_use]
    pub fn refused_stores(&self) -> u64 {
        self.driver().map_or(0, |driver| driver.refused_stores())
    }

    /// Lets the program choose which pages are unpinned when the limit on pinned pages wants it: it often knows what it will use
    /// again (UTLB §3.4). In place of the policy that `--policy` names; without a limit nothing is ever unpinned to make room, and
    /// the chooser is never asked. It is called while this process's driver is held: it must call nothing of this crate, and
    /// touch no shared memory.
    ///
    /// # Errors
    /// [`Error::PinnedAlready`](crate::Error::PinnedAlready): call it before anything is exported, sent or fetched by the ring.
    pub fn choose_victims(&self, chooser: impl ChooseVictims + 'static) -> Result<()> {
        self.check_process()?;
        let mut driver = self.inner.engine.lock();
        if driver.set_chooser(Box::new(chooser)) {
            return Ok(());
        }
        let pages = driver.page_counters().pinned_pages;
        Err(crate::Error::PinnedAlready { pages })
    }

    /// The NIC's memory, by structure.
    #[must_use]
    pub fn nic_memory(&self) -> mapwire_nic::MemoryBreakdown {
        self.driver().map(|driver| driver.nic().memory()).unwrap_or_default()
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.inner.config
    }
}

/// Where others reach this process if nothing was said of it.
pub(crate) fn addresses_of_this_host() -> Result<Vec<IpAddr>> {
    let wrong = |why: AddressesError| ConfigError {
        name: "MAPWIRE_ADDRESSES".to_owned(),
        value: "auto".to_owned(),
        why: why.to_string(),
    };
    Ok(Addresses::auto().resolve().map_err(wrong)?)
}

/// See [`Node::polling`].
#[derive(Debug)]
pub struct Polling {
    node: Node,
    /// What is counted is the thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.node.inner.engine.leave_polling();
    }
}

/// Memory that is not known: nobody is asked to wake whoever waits for it.
struct Unasked;

impl AskForWake for Unasked {
    fn ask(&self) -> Asked {
        Asked::Nobody
    }

    fn end(&self) {}
}
