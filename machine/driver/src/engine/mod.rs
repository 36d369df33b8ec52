//! Who runs the duty cycle, and how threads wait.
//!
//! A thread that waits in mapwire runs the cycle itself, so that nothing is handed from thread to thread and finished work is
//! seen on the core that did it. While no thread waits, a service thread sleeps until a peer rings; it then serves what came
//! and sleeps again (event-driven rather than polled, Millipage §3.3). In [`DriverMode::Thread`] the service thread polls all
//! the time, and other threads only write commands and watch completion words.

mod deadline;
mod ending;
mod events;
mod forks;
mod holding;
mod interrupts;
mod naps;
mod noting;
mod operations;
mod polling;
mod serving;
mod waits;

pub use ending::exit_lost;
use ending::run_to_the_end;
use naps::MemoryNap;
pub use naps::{AskForWake, Asked};
pub(crate) use noting::Noted;
use noting::ProcessorTimes;
pub use noting::TracedCall;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mapwire_host::own_words::OwnWord;
use mapwire_host::waiting::{Patience, WaitStrategy, now_ns};
use mapwire_host::{exiting, masking};
use mapwire_transport::bells::Wake;
use mapwire_transport::board::{Board, RankState};
use mapwire_transport::fabric::{Doorbells, Fabric};
use mapwire_transport::job::JobFabric;
use mapwire_wire::{CommandRepr, NodeId};

use crate::completions::CompletionWords;
use crate::config::{DriverConfig, DriverMode};
use crate::driver::Driver;
use crate::driver::confined::Caller;
use crate::error::DriverError;
use crate::host_bell::HostBell;
use crate::log::Line;
pub use crate::peer_words::DirectStores;
use crate::peer_words::PeerWords;
use crate::spin::SpinLock;
use crate::threads::Threads;
pub use interrupts::DriverGuard;
use interrupts::Interrupts;

/// The driver of a process, shared by its threads.
#[derive(Debug)]
pub struct Engine<F: Fabric = JobFabric> {
    driver: SpinLock<Driver<F>>,
    /// Not 0 in the process that this belongs to.
    home: OwnWord,
    bells: Arc<F::Bells>,
    me: NodeId,
    size: u32,
    mode: DriverMode,
    wait: WaitStrategy,
    timeout: Duration,
    patience: Patience,
    words: Arc<CompletionWords>,
    peers: PeerWords,
    threads: Threads,
    stop: AtomicBool,
    service: Mutex<Option<JoinHandle<()>>>,
    /// Some ranks ring nobody: see [`Fabric::unrung`].
    has_far: bool,
    /// Threads in the page-fault handler that wait for packets which only other threads may take.
    far_faults: AtomicU32,
    /// Threads of this process that sleep on its bell, the service thread left out.
    sleepers: AtomicU32,
    interrupts: Interrupts,
    memory_nap: MemoryNap,
    /// Whether there ever was a descriptor for an event loop.
    has_events: AtomicBool,
    /// Held while a descriptor is armed.
    arming: Mutex<()>,
    /// Rings of its bell that the service thread has seen.
    seen_rings: AtomicU32,
    /// Rings of its bell before its last round, and how often it has rested since.
    served_rings: AtomicU32,
    rests: AtomicU32,
    /// The service thread has not found out whether anything is left for it. Only that thread uses it.
    owes_look: AtomicBool,
    /// Ranks come and go, and the broker may end without a word: it is looked for.
    is_open: bool,
    /// When its figures were published last.
    published_at_ns: AtomicU64,
    /// Addresses whose page faults this process serves; 0 while there are none.
    faults_start: AtomicUsize,
    faults_end: AtomicUsize,
    /// While a trace is taken: when threads' last calls were over, by their own clocks.
    processor_times: Option<Box<ProcessorTimes>>,
}

/// A rank that did not get all that was sent to it.
#[derive(Debug)]
pub struct Undelivered {
    /// Who.
    pub to: NodeId,
    /// Why, when it is gone.
    pub gone: Option<DriverError>,
    /// For how long it was waited for, when it is not.
    pub waited: Duration,
}

impl core::fmt::Display for Undelivered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let rank = self.to.0;
        write!(f, "what was sent to rank {rank} last is lost: ")?;
        match &self.gone {
            Some(why @ DriverError::PeerGone(_)) => {
                write!(f, "{why}; let ranks wait for what others send before they leave, or flush what must arrive")
            }
            Some(why) => why.fmt(f),
            None => write!(
                f,
                "rank {rank} took nothing of it for {:?}; is it stopped, or busy outside mapwire? MAPWIRE_TIMEOUT sets how long to wait",
                self.waited
            ),
        }
    }
}

impl<F: Fabric> Engine<F> {
    /// Starts the driver of this process over `fabric`.
    ///
    /// # Errors
    /// When a part cannot be made, or the service thread not started.
    pub fn start(config: &DriverConfig, fabric: F) -> Result<Arc<Self>, DriverError> {
        let bells = Arc::clone(fabric.bells());
        let (me, size) = (fabric.me(), fabric.size() as u32);
        let words = Arc::new(CompletionWords::new());
        let peers = PeerWords::new(size as usize)?;
        let home = forks::home()?;
        let mut driver = Driver::new(config, fabric, peers.clone(), Arc::clone(&words))?;
        let has_far = driver.paths().far_nap().is_some();
        let look = || {
            driver.poll();
        };
        let patience = match config.is_open {
            true => Patience::of_open_job(config.wait, size as usize, look),
            false => Patience::new(config.wait, size as usize, look),
        };
        mapwire_host::barrier::register();
        let engine = Arc::new(Self {
            driver: SpinLock::new(driver),
            home,
            bells,
            me,
            size,
            mode: config.mode,
            wait: config.wait,
            timeout: config.timeout,
            patience,
            words,
            peers,
            threads: Threads::new(),
            stop: AtomicBool::new(false),
            service: Mutex::new(None),
            has_far,
            far_faults: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            interrupts: Interrupts::new(),
            memory_nap: MemoryNap::default(),
            has_events: AtomicBool::new(false),
            arming: Mutex::new(()),
            seen_rings: AtomicU32::new(0),
            served_rings: AtomicU32::new(0),
            rests: AtomicU32::new(0),
            owes_look: AtomicBool::new(false),
            is_open: config.is_open,
            published_at_ns: AtomicU64::new(0),
            faults_start: AtomicUsize::new(0),
            faults_end: AtomicUsize::new(0),
            processor_times: config.trace.is_some().then(|| Box::new(ProcessorTimes::new())),
        });
        // The thread holds no share of the engine: dropping the last share is what stops it.
        let weak = Arc::downgrade(&engine);
        // The thread starts with signals blocked: handlers of the program run on threads of the program.
        let masked = masking::mask();
        let thread = std::thread::Builder::new()
            .name("mapwire-service".to_owned())
            .spawn(move || {
                masking::mask_for_good();
                mapwire_host::scheduling::ask_for_short_turns();
                let serve = || {
                    while let Some(engine) = weak.upgrade() {
                        if !engine.serve_once() {
                            return;
                        }
                    }
                };
                // A handler of the program may panic. Without this thread the rank would serve nobody.
                run_to_the_end(serve);
            })
            .map_err(DriverError::Thread)?;
        drop(masked);
        *engine.service.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(engine)
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        u32::from(self.me.0)
    }

    /// Ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether calls of services are written down.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.processor_times.is_some()
    }

    /// The timeout of set-up steps.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Who runs the duty cycle.
    #[must_use]
    pub fn mode(&self) -> DriverMode {
        self.mode
    }

    /// How threads wait.
    #[must_use]
    pub fn wait_strategy(&self) -> WaitStrategy {
        self.wait
    }

    /// Has the calling thread serve what waits for the host, whenever `bell` is rung, until that ends.
    pub fn run_host(&self, bell: &HostBell) {
        let serve = || {
            let mut seen = 0;
            while bell.wait(seen) {
                seen = bell.rings();
                self.serve_host();
            }
        };
        // As without the service thread, the rank would serve nobody.
        run_to_the_end(serve);
    }

    #[must_use]
    pub fn words(&self) -> &CompletionWords {
        &self.words
    }

    /// What says whether direct stores to `peer` may go ahead.
    #[must_use]
    pub fn direct_stores_to(&self, peer: NodeId) -> DirectStores {
        self.peers.direct_stores_to(peer)
    }

    /// Notes that something is under way to `peer` that a direct store must not overtake. To be called with the driver held,
    /// together with what it is for: [`settle`](Self::settle) takes the note back when it finds nothing under way.
    #[inline]
    pub fn mark_dirty(&self, _held: &Driver<F>, peer: NodeId) {
        self.peers.mark_dirty(peer);
    }

    /// Writes a command towards `to` to the queue of `driver`; false when it is full. In [`DriverMode::Inline`] the caller's
    /// thread serves it at once.
    ///
    /// # Errors
    /// A command that cannot be written.
    #[inline]
    pub fn submit(
        &self,
        mut driver: DriverGuard<'_, F>,
        to: NodeId,
        command: &CommandRepr,
        data: &[u8],
    ) -> Result<bool, DriverError> {
        self.mark_dirty(&driver, to);
        if self.mode == DriverMode::Inline {
            return driver.submit(command, data);
        }
        let submitted = driver.enqueue(command, data)?;
        drop(driver);
        self.bells.ring(self.me);
        Ok(submitted)
    }

    /// Wakes threads of `rank`: what this process has stored to its memory may be what they wait for.
    #[cold]
    pub fn wake(&self, rank: NodeId, who: Wake) {
        if self.is_here() {
            self.bells.wake(rank, who);
        }
    }

    /// Announces that the calling thread will send something to `peer` once it has made it. With [`WaitStrategy::Event`], this wakes a
    /// sleeping thread of a peer on this host, which wakes meanwhile.
    pub fn announce(&self, peer: NodeId) {
        if self.wait == WaitStrategy::Event && self.is_here() {
            self.bells.rouse(peer);
        }
    }

    /// Whether a rank is on another host.
    #[must_use]
    pub fn is_remote(&self, rank: NodeId) -> bool {
        self.lock().paths().is_remote(rank)
    }

    /// Whether libfabric stores to and fetches from the memory of a rank.
    #[must_use]
    pub fn has_rma(&self, of: NodeId) -> bool {
        self.lock().has_rma(of)
    }

    /// The provider of libfabric that far ranks are reached by, where there are any.
    #[must_use]
    pub fn provider(&self) -> Option<String> {
        self.lock().paths().fabric().provider().map(str::to_owned)
    }

    /// Whether a rank is known to have failed, rather than left.
    #[must_use]
    pub fn has_died(&self, rank: NodeId) -> bool {
        self.state(rank) == RankState::Dead
    }

    /// How a rank stands, as the board has it.
    #[must_use]
    pub fn state(&self, rank: NodeId) -> RankState {
        self.bells.state(rank)
    }

    /// Shows on the board that this rank has opened the memory that all ranks share so many times.
    pub fn show_openings(&self, openings: u32) {
        self.bells.show_openings(openings);
    }

    /// How often a rank has opened that memory, if the board shows it.
    #[must_use]
    pub fn openings(&self, rank: NodeId) -> Option<u32> {
        self.bells.openings(rank)
    }

    /// The board of the job; `None` where there is none.
    #[must_use]
    pub fn board(&self) -> Option<&Arc<Board>> {
        self.bells.board()
    }

    /// Whether there were other ranks and all of them are gone.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let all = (0..self.size).map(|rank| NodeId(rank as u16));
        let mut others = all.filter(|&node| node != self.me).peekable();
        others.peek().is_some() && others.all(|node| self.bells.state(node).is_gone())
    }

    /// The ranks by state, for messages about waits that take too long.
    #[must_use]
    pub fn states(&self) -> String {
        let mut text = String::from("ranks:");
        for rank in 0..self.size.min(64) {
            // Who leaves says so to its peers first.
            let gone = self.peers.is_gone(NodeId(rank as u16));
            let state = match self.bells.state(NodeId(rank as u16)) {
                RankState::Joined if gone => RankState::Left,
                state => state,
            };
            text.push_str(&format!(" {rank} {state:?}"));
        }
        text
    }

    /// Waits until what was sent has been acknowledged by peers of other hosts, and is in the rings of others, for
    /// [`timeout`](Self::timeout) at most. Gives the ranks that did not get all.
    pub fn deliver(&self) -> Vec<Undelivered> {
        if !self.is_here() {
            return Vec::new();
        }
        // In one hold: what other threads send after that is not waited for.
        let sent = |driver: &mut Driver<F>| driver.has_sent_all().then(|| driver.owed(true));
        let owed = self.wait_driver(Caller::Program, Some(self.timeout), sent);
        self.undelivered(owed)
    }

    /// Stops the service thread and leaves the job, once all is [delivered](Self::deliver). Idempotent, and nothing in a forked child.
    pub fn stop(&self) -> Vec<Undelivered> {
        if !self.is_here() {
            return Vec::new();
        }
        let undelivered = self.deliver();
        self.end_service();
        self.lock().begin_leaving();
        // Ranks of other hosts hear of it by datagrams, which may be lost.
        let limit = self.timeout.min(LONGEST_FAREWELL);
        let told = |driver: &mut Driver<F>| driver.has_said_farewell().then_some(());
        self.wait_driver(Caller::Program, Some(limit), told);
        if self.lock().paths().has_datagrams() {
            // A peer that leaves too waits for this rank's ack, which may be lost: then the peer says farewell again.
            self.wait_driver(Caller::Program, Some(LINGER), |_| None::<()>);
        }
        self.publish(now_ns());
        self.lock().leave();
        while let Some(line) = self.next_line() {
            line.write();
        }
        undelivered
    }

    /// Stops the service thread. At the exit of the process nobody waits for it: it may be the one that exits, or in a handler of the
    /// program.
    fn end_service(&self) {
        self.stop.store(true, Ordering::Release);
        self.bells.wake(self.me, Wake::All);
        let thread = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && !exiting::is_exiting()
        {
            let _ = thread.join();
        }
    }

    /// The ranks that did not get what was sent to them, without the program's having been told.
    /// They are `owed` something, as was found when all else was sent; `None`: it was not.
    fn undelivered(&self, owed: Option<Vec<NodeId>>) -> Vec<Undelivered> {
        let mut driver = self.lock();
        let owed = owed.unwrap_or_else(|| driver.owed(false)).into_iter();
        let found = owed.map(|to| Undelivered {
            to,
            gone: driver.is_gone(to).then(|| driver.why_gone(to)),
            waited: self.timeout,
        });
        found.collect()
    }

    /// Whether the calling thread holds the driver: it has been interrupted in a call, and can make no other.
    #[must_use]
    pub fn is_held_here(&self) -> bool {
        self.driver.is_mine()
    }

    /// The next line of the log, taken in a hold of its own.
    fn next_line(&self) -> Option<Line> {
        self.lock().outcomes().take_line()
    }
}

/// How long a rank that leaves waits for peers to hear of it.
const LONGEST_FAREWELL: Duration = Duration::from_secs(2);

/// How long it then still answers peers that leave: some of their timeouts.
const LINGER: Duration = Duration::from_millis(5);
