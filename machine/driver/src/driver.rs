//! One turn of the duty cycle, and the state that it works on.

mod attention;
#[cfg(test)]
mod bare_fabric;
#[cfg(test)]
mod conformance;
mod datagrams;
mod far;
pub(crate) mod peers;
mod receiving;
mod sending;
mod telling;
#[cfg(test)]
mod tests;

use core::sync::atomic::Ordering;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use mapwire_host::masking;
use mapwire_host::memory::MemoryError;
use mapwire_host::own_words::OwnWord;
use mapwire_host::waiting::now_ns;
use mapwire_nic::{Config, Delivery, MemoryBreakdown, Nic};
use mapwire_node::{Node, NodeConfig, SharedMemory};
use mapwire_service::{Region, Service};
use mapwire_translation::{AnyDesign, ChooseVictims, Counters, PageRange, TranslationDesign};
use mapwire_transport::bells::Wake;
use mapwire_transport::fabric::{Doorbells, Fabric};
use mapwire_transport::job::JobFabric;
use mapwire_wire::{Endpoint, HandlerId, Key, NodeId, ProcessId};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::breach::Breaches;
use crate::capture::Capture;
use crate::commands::CommandQueue;
use crate::completions::{CompletionWords, WORDS};
use crate::config::DriverConfig;
use crate::engine::Place;
use crate::error::DriverError;
use crate::events::Events;
use crate::exports::{LeftLanding, LocalExport};
use crate::host_bell::HostBell;
use crate::imports::{GivenUp, StoredInPlace};
use crate::log::{Line, Log};
use crate::mover::GarbagePage;
use crate::pages::Pins;
use crate::rma::Rma;
use crate::service_memory::ServiceMemory;
use crate::shared::SharedPort;
pub(crate) use attention::ATTENTIVE_NAP;
use attention::Attention;
use datagrams::LeftDatagram;
use telling::Teller;

/// The process of a NIC that serves one.
pub(crate) const PROCESS: ProcessId = ProcessId(0);

/// Handler of the shared memory's messages.
pub(crate) const SHARED_HANDLER: HandlerId = HandlerId(1);

/// The first handler id that programs may give to services of their own.
pub const FIRST_FREE_HANDLER: u32 = 16;

/// The network interface of a process, with the translation design that its job has chosen.
pub type Interface = Nic<AnyDesign>;

/// Looks of a waiting thread that may follow a turn without another one.
const MOST_GLANCES: u32 = 15;

/// Turns that a send takes at most before it goes out, when something has come from its peer.
const NEWS_TURNS: u32 = 16;

/// A word for each peer, of [`peer_flags`], which imports of that peer share.
pub(crate) type PeerWords = Arc<[OwnWord]>;

/// The words of `peers` peers to whom the way is clear.
pub(crate) fn peer_words(peers: usize) -> Result<PeerWords, MemoryError> {
    let words = OwnWord::several(peers)?;
    for word in &words {
        word.store(peer_flags::HERE, Ordering::Relaxed);
    }
    Ok(words.into())
}

/// What a program has sent towards a peer, and whether the peer is there: one word for each peer, read on each direct send.
pub mod peer_flags {
    /// Packets or commands towards the peer may be under way: a direct store now would overtake them.
    pub const RING_DIRTY: u32 = 1;
    /// The peer is gone.
    pub const GONE: u32 = 2;
    /// What is communicated is written down: direct stores are, too.
    pub const TRACED: u32 = 4;
    /// This process is the one that joined: a forked child finds 0 here, and so no way clear.
    pub const HERE: u32 = 8;
}

/// The state behind the lock. It runs a node over a fabric: packets, bells, passed memory.
#[derive(Debug)]
pub struct Driver<F: Fabric = JobFabric> {
    pub(crate) me: NodeId,
    pub(crate) node: Node<AnyDesign>,
    pub(crate) pins: Pins,
    pub(crate) fabric: F,
    garbage: GarbagePage,
    pub(crate) queue: CommandQueue,
    bells: Arc<F::Bells>,
    pub(crate) peers: PeerWords,
    pub(crate) breaches: Breaches,
    /// For how long a peer may be silent that is awaited.
    silence: Duration,
    /// Peers that were sent something and whose bell has not been rung since.
    to_ring: Vec<NodeId>,
    /// The last turn has seen the rings of all peers empty; it may end before, to turn to its program.
    pub(crate) rings_empty: bool,
    /// The page-fault handler runs the driver.
    pub(crate) is_confined: bool,
    /// The service thread has been woken for what the handler has left.
    told_service: bool,
    pub(crate) exports: Vec<LocalExport>,
    /// Former landings of redirected exports that a fetch may still read.
    pub(crate) left_landings: Vec<LeftLanding>,
    /// Memory and statuses that peers have passed for imports under way, by tag, and from whom; `None` when this process had no descriptor left for it.
    pub(crate) passed: HashMap<u64, (NodeId, Option<OwnedFd>)>,
    /// Imports that are given up behind commands that wait.
    pub(crate) given_up: VecDeque<GivenUp>,
    pub(crate) teller: Teller,
    pub(crate) log: Log,
    pub(crate) shared: Option<Box<SharedPort>>,
    /// What goes to ranks of this host past the NIC.
    pub(crate) stored_in_place: StoredInPlace,
    /// Memory that libfabric moves, where it does.
    pub(crate) rma: Option<Box<Rma>>,
    left_datagram: LeftDatagram,
    attention: Attention,
    /// A store of the shared memory that the page-fault handler has left to others.
    pub(crate) left_store: Option<(HandlerId, Endpoint, Region, u64)>,
    /// A peer that the shared memory must meet, which the page-fault handler has left to others.
    pub(crate) left_meeting: Option<NodeId>,
    /// Rung while messages wait for a thread of the host; without it whoever runs a turn takes them.
    host_bell: Option<Arc<HostBell>>,
    /// It has been, since that thread looked.
    has_rung_host: bool,
    /// Memory of the program's services.
    pub(crate) service_memories: Vec<(HandlerId, ServiceMemory)>,
    /// What shared memories have counted that are closed.
    pub(crate) shared_before: mapwire_dsm::Counters,
    pub(crate) capture: Option<Capture>,
    /// What to write to when a turn has done something.
    pub(crate) events: Vec<Arc<Events>>,
    /// Importers are asked to ring after each direct store.
    pub(crate) watching: bool,
    /// Looks that may be mere glances at the rings: the last turn has found nothing to do.
    glances: u32,
}

impl<F: Fabric> Driver<F> {
    /// Joins the parts; nothing is connected yet.
    ///
    /// # Errors
    /// When the pinner, the cache or the NIC cannot be as `config` says.
    pub(crate) fn new(
        config: &DriverConfig,
        mut fabric: F,
        peers: PeerWords,
        words: Arc<CompletionWords>,
    ) -> Result<Self, DriverError> {
        let me = fabric.me();
        let nodes = fabric.size();
        let reply_keys = (0..nodes).map(|_| job_key()).collect::<Result<Vec<Key>, DriverError>>()?;
        let (delivery, left_datagram) = match fabric.net() {
            None => (Delivery::Lossless, LeftDatagram::default()),
            Some(net) => (Delivery::Lossy(datagrams::link_config(net, config)?), LeftDatagram::new()),
        };
        let node_config = NodeConfig {
            nic: Config {
                node: me,
                reply_keys,
                memory_bytes: config.nic_memory(nodes),
                max_payload_bytes: fabric.max_payload_bytes(),
                delivery,
            },
            uid: fabric.uid(),
        };
        let mut node = Node::new(node_config, AnyDesign::new(&config.translation)?)?;
        for peer in (0..nodes).map(|node| NodeId(node as u16)) {
            if !fabric.passes_memory(peer) {
                node.set_apart(peer);
            }
            if !fabric.is_remote(peer) {
                node.set_lossless(peer);
            }
        }
        let (pins, rules) = Pins::new(config.pinner.open()?, config);
        node.open_process(PROCESS, rules, WORDS)?;
        let rma = Rma::new(fabric.far(), &mut node, rules)?;
        let capture = match &config.trace {
            None => None,
            Some(folder) => {
                node.set_tracing(true);
                for flags in peers.iter() {
                    flags.fetch_or(peer_flags::TRACED, Ordering::Relaxed);
                }
                Some(Capture::create(folder, u32::from(me.0))?)
            }
        };
        Ok(Self {
            me,
            node,
            pins,
            bells: Arc::clone(fabric.bells()),
            fabric,
            garbage: GarbagePage::new(),
            queue: CommandQueue::new()?,
            rings_empty: false,
            is_confined: false,
            told_service: false,
            peers,
            breaches: Breaches::new(nodes),
            silence: datagrams::silence(config.timeout),
            to_ring: Vec::with_capacity(nodes),
            exports: Vec::new(),
            left_landings: Vec::new(),
            passed: HashMap::new(),
            given_up: VecDeque::new(),
            teller: Teller::new(words, nodes),
            log: Log::new(),
            shared: None,
            stored_in_place: StoredInPlace::default(),
            rma,
            left_datagram,
            attention: Attention::default(),
            left_store: None,
            left_meeting: None,
            host_bell: None,
            has_rung_host: false,
            service_memories: Vec::new(),
            shared_before: mapwire_dsm::Counters::default(),
            capture,
            events: Vec::new(),
            watching: false,
            glances: 0,
        })
    }

    /// One turn: commands, packets out, packets in, then what followed from them; bells last. Whether anything was done.
    #[inline]
    pub fn poll(&mut self) -> bool {
        let worked = self.turn();
        self.ring_due();
        worked
    }

    /// Whether a thread that looks again and again may leave this turn out: the last one has found nothing, and nothing waits in the
    /// rings. All else that a turn sees to (timers, news of the job, peers that have room again) can wait for some looks. Whoever has
    /// given the driver something to do takes a turn first.
    #[inline]
    pub(crate) fn may_only_glance(&mut self) -> bool {
        let may = self.glances > 0 && !self.fabric.has_packet();
        self.glances = self.glances.saturating_sub(1);
        may
    }

    /// A turn that leaves the bells due, for a thread that looks again at once: to read whether a peer polls costs a cache line's
    /// way between processors, during which the peer's answer may come. Only a thread that goes on to [`poll`](Self::poll) or
    /// [`ring_due`](Self::ring_due) very soon may call it, as peers sleep meanwhile.
    #[inline]
    pub(crate) fn turn(&mut self) -> bool {
        if self.is_confined {
            return self.turn_in_handler();
        }
        let mut worked = self.make_up();
        worked |= self.queue.has_commands() && self.queue.serve(&mut self.node, PROCESS);
        worked |= !self.given_up.is_empty() && self.release_given_up();
        worked |= self.receive();
        worked |= self.receive_datagrams();
        if self.node.has_host_work(PROCESS) {
            self.call_host();
        }
        worked |= self.rma.is_some() && self.drain_moves();
        if self.has_news() {
            self.housekeep();
            worked = true;
        }
        worked |= self.send_out();
        if worked {
            self.fire_events();
        }
        // Datagrams come by a socket, which has no ring to glance at.
        self.glances = match worked || self.fabric.net().is_some() {
            true => 0,
            false => MOST_GLANCES,
        };
        worked
    }

    /// The second half of a turn: what services ask for, and packets out. Whether anything was done.
    #[inline]
    fn send_out(&mut self) -> bool {
        let mut worked = self.serve_services();
        worked |= self.transmit();
        worked |= self.transmit_datagrams();
        if self.node.has_misses() {
            worked |= self.handle_misses();
        }
        self.tell();
        if self.node.owes_pages() {
            // To give pages back frees memory, which no thread may do in the fault handler.
            self.bells.wake(self.me, Wake::Service);
        }
        if self.capture.is_some() {
            self.take_traced();
        }
        worked
    }

    /// A turn in the page-fault handler: nothing of it allocates or frees.
    fn turn_in_handler(&mut self) -> bool {
        let mut worked = self.receive();
        worked |= self.receive_datagrams();
        worked |= self.serve_services();
        worked |= self.transmit();
        worked |= self.transmit_datagrams();
        self.tell();
        if worked {
            self.fire_events();
        }
        worked
    }

    /// Does `work` as may be done at `place`.
    #[inline]
    pub(crate) fn at<T>(&mut self, place: Place, work: impl FnOnce(&mut Self) -> T) -> T {
        if place == Place::Program {
            return work(self);
        }
        // A fault on the service thread interrupts nothing, and nobody else would do what it left.
        self.set_confined(!masking::is_library_thread());
        let done = work(self);
        self.set_confined(false);
        done
    }

    fn set_confined(&mut self, on: bool) {
        self.is_confined = on;
        self.node.set_confined(on);
        self.fabric.set_confined(on);
    }

    /// Carries out what the page-fault handler has left. Whether there was anything.
    #[inline]
    fn make_up(&mut self) -> bool {
        self.told_service = false;
        self.node.has_left() && self.make_up_now()
    }

    #[cold]
    fn make_up_now(&mut self) -> bool {
        self.node.make_up(now_ns());
        self.make_up_store();
        self.make_up_meeting();
        let peers = &self.peers;
        self.passed.retain(|_, (from, _)| !peers::is_gone(peers, *from));
        self.fabric.bury();
        true
    }

    /// Whether the service thread is to be woken for what the handler may not do. Says so once, until a thread has done it.
    pub(crate) fn needs_service(&mut self) -> bool {
        let needs = self.node.has_left()
            || self.owes_program()
            || self.node.has_misses()
            || self.queue.has_commands()
            || self.has_news();
        needs && !core::mem::replace(&mut self.told_service, true)
    }

    /// Whether the page-fault handler has left anything to others.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.node.has_left()
    }

    /// Looks whether the broker has ended: a system call.
    pub(crate) fn look_for_end(&mut self) {
        self.fabric.look_for_end();
    }

    /// Whether there is news of the job.
    #[inline]
    fn has_news(&self) -> bool {
        self.fabric.has_news()
    }

    /// The NIC asks for something. A design that drops what misses leaves it to a thread of the host (dynamic handle lookup §IV.A:
    /// the miss event queue); for the others this thread is interrupted (UTLB §6.2). Whether anything was done.
    #[cold]
    fn handle_misses(&mut self) -> bool {
        if self.node.nic().translation().drops_on_miss() && !masking::is_library_thread() {
            // The service thread looks for misses whenever it is woken.
            self.bells.wake(self.me, Wake::Service);
            return false;
        }
        let mut worked = false;
        while self.node.has_misses() {
            self.serve_misses();
            worked |= self.transmit();
            worked |= self.transmit_datagrams();
        }
        worked
    }

    /// Serves what the NIC asks for, and lets it go on. Whether there was anything.
    pub(crate) fn serve_misses(&mut self) -> bool {
        let mut failed = Vec::new();
        let served = self.node.serve_misses(&mut self.pins, |error| failed.push(error));
        self.log_unserved(failed);
        served
    }

    /// Whether the NIC waits for the host.
    pub(crate) fn has_misses(&self) -> bool {
        self.node.has_misses()
    }

    /// Gives back pages whose translations have long left the NIC, where there are more than the high-water mark allows
    /// (dynamic handle lookup §IV-B).
    pub(crate) fn reclaim(&mut self) {
        let mut failed = Vec::new();
        self.node.reclaim(&mut self.pins, |error| failed.push(error));
        self.log_unserved(failed);
        self.release_landings();
    }

    /// What asked for pages that cannot be pinned meets the garbage frame.
    fn log_unserved(&mut self, failed: Vec<mapwire_node::HostErrorOf<Pins>>) {
        for error in failed {
            let error = self.pins.explain(error);
            self.log.push(Line::NotServed(error.to_string()));
        }
    }

    /// Marks the pages of `range` as in use by the command with completion word `word`.
    ///
    /// # Errors
    /// Pages that cannot be pinned.
    #[inline]
    pub fn hold(&mut self, word: u32, range: PageRange) -> Result<(), DriverError> {
        let held = self.node.hold(PROCESS, &mut self.pins, word, range);
        held.map_err(|error| self.pins.explain(error).into())
    }

    /// Undoes [`hold`](Self::hold) for a command that was not submitted.
    pub fn unhold(&mut self, word: u32) {
        self.node.release(PROCESS, word);
    }

    /// Whether there is anything to do: asked once more before a thread sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.fabric.has_input() || self.has_duties()
    }

    /// As [`has_work`](Self::has_work), without a look at the peers' rings.
    #[inline]
    pub(crate) fn has_duties(&self) -> bool {
        self.owes_program() || self.queue.has_commands() || self.has_news()
    }

    /// Whether handlers of the program or lines of its log wait for a thread that may run and write them.
    #[inline]
    pub(crate) fn owes_program(&self) -> bool {
        self.teller.has_notices() || !self.log.is_empty()
    }

    /// The views of the shared memory, while it is open.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedPort> {
        self.shared.as_deref()
    }

    /// The model of the shared memory, while it is open.
    #[inline]
    #[must_use]
    pub fn shared_memory(&self) -> Option<&SharedMemory> {
        self.node.service(PROCESS, SHARED_HANDLER)
    }

    /// Calls that model.
    #[inline]
    pub(crate) fn call_shared<T>(&mut self, call: impl FnOnce(&mut SharedMemory) -> T) -> Option<T> {
        self.node.call(PROCESS, SHARED_HANDLER, call)
    }

    /// Registers a service of the program.
    ///
    /// # Errors
    /// An id that the library keeps for itself, or that the process has given already.
    pub fn register_service(&mut self, handler: HandlerId, service: Box<dyn Service>) -> Result<(), DriverError> {
        if handler.0 < FIRST_FREE_HANDLER {
            return Err(mapwire_node::RegisterError::Reserved(handler).into());
        }
        self.node.register(PROCESS, handler, service)?;
        self.poll();
        Ok(())
    }

    /// Takes a service of the program away.
    pub fn deregister_service(&mut self, handler: HandlerId) -> Option<Box<dyn Service>> {
        self.service_memories.retain(|(id, _)| *id != handler);
        (handler.0 >= FIRST_FREE_HANDLER).then(|| self.node.deregister(PROCESS, handler)).flatten()
    }

    /// Goes up whenever a service of the program is called, comes or goes. While it stands still, all are as they were.
    #[inline]
    #[must_use]
    pub fn service_calls(&self) -> u64 {
        self.node.service_calls(PROCESS)
    }

    /// Calls a service of the program, and sends what it asks for; `None` when there is none of this type under the id.
    #[inline]
    pub fn call_service<T: Service, R>(&mut self, handler: HandlerId, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        let done = self.ask_service(handler, call)?;
        if self.node.has_asks() {
            self.send_out();
            self.fire_events();
            self.ring_due();
        }
        Some(done)
    }

    /// As [`call_service`](Self::call_service), and leaves what the service asks for to the next turn: for a thread that waits next.
    #[inline]
    pub fn ask_service<T: Service, R>(&mut self, handler: HandlerId, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.node.call(PROCESS, handler, call)
    }

    /// Has messages that run on the host wait for whoever is told by `bell`, and calls [`serve_host`](Self::serve_host).
    pub fn set_host_bell(&mut self, bell: Option<Arc<HostBell>>) {
        self.host_bell = bell;
        self.has_rung_host = false;
    }

    /// Messages wait for the host: tells it once.
    #[cold]
    fn call_host(&mut self) {
        match &self.host_bell {
            Some(bell) if !self.node.has_too_much_host_work(PROCESS) => {
                if !core::mem::replace(&mut self.has_rung_host, true) {
                    bell.ring();
                }
            }
            _ => while self.node.serve_on_host(now_ns(), PROCESS) {},
        }
    }

    /// Gives messages that wait for a thread of the host to their services, and sends what these ask for. Whether there were any.
    pub fn serve_host(&mut self) -> bool {
        self.has_rung_host = false;
        let mut worked = false;
        while self.node.serve_on_host(now_ns(), PROCESS) {
            worked = true;
        }
        if self.node.has_asks() {
            self.poll();
        }
        worked
    }

    /// Gives tables of services so many bytes of NIC memory, in place of those that they had.
    ///
    /// # Errors
    /// The NIC has not as much left; they keep what they had.
    pub fn set_service_bytes(&mut self, bytes: usize) -> Result<(), DriverError> {
        Ok(self.node.set_service_bytes(bytes)?)
    }

    /// What the shared memory did so far; nothing when it is not open.
    #[must_use]
    pub fn shared_counters(&self) -> mapwire_dsm::Counters {
        self.shared_memory().map_or_else(Default::default, |memory| memory.dsm().counters())
    }

    /// Whether a service lets a thread finish an access for a moment more.
    pub(crate) fn is_holding(&self) -> bool {
        self.shared_memory().is_some_and(|memory| memory.dsm().poll_hold().is_some())
    }

    /// When this driver must be polled at `place` even if nobody rings, on the monotonic clock.
    pub(crate) fn next_deadline(&mut self, place: Place) -> Option<u64> {
        // The page-fault handler carries out nothing of imports.
        self.at(place, |driver| driver.node.poll_at())
    }

    /// Carries out what the shared memory asks for, and sends what came of it.
    #[inline]
    pub(crate) fn serve_shared(&mut self) {
        if self.node.has_asks() && self.serve_services() {
            self.transmit();
            self.transmit_datagrams();
            self.ask_for_attention();
        }
    }

    /// The NIC: counters, translation, memory.
    #[must_use]
    pub fn nic(&self) -> &Interface {
        self.node.nic()
    }

    /// The NIC's memory by structure.
    #[must_use]
    pub fn nic_memory(&self) -> MemoryBreakdown {
        self.node.nic().memory()
    }

    /// Check misses, pins, unpins and pinned pages.
    #[must_use]
    pub fn page_counters(&self) -> Counters {
        self.node.page_counters(PROCESS)
    }

    /// The application chooses what is unpinned from here on; false when pages are pinned already.
    pub fn set_chooser(&mut self, chooser: Box<dyn ChooseVictims>) -> bool {
        self.node.set_chooser(PROCESS, chooser)
    }

    /// Takes what `peer` has sent. Whether anything had come.
    #[inline]
    pub(crate) fn take_news(&mut self, peer: NodeId) -> bool {
        if self.fabric.is_far(peer) {
            self.look_far();
        }
        let has_come = self.fabric.has_next(peer) || self.node.has_left();
        if has_come {
            self.take_all(peer);
        }
        has_come
    }

    #[cold]
    fn take_all(&mut self, peer: NodeId) {
        // A turn may serve other peers first.
        for _ in 0..NEWS_TURNS {
            self.poll();
            if !self.fabric.has_next(peer) {
                break;
            }
        }
        if self.owes_program() {
            self.bells.wake(self.me, Wake::Service);
        }
    }

    /// What was noted of sends by an import that were dropped after their command was done; notes afresh.
    pub fn take_refused(&mut self, import: mapwire_wire::ImportId) -> mapwire_nic::RefusedStores {
        self.node.take_refused(import)
    }

    /// Notifications that were dropped, since too many of their sender waited for the program.
    #[must_use]
    pub fn dropped_notices(&self) -> u64 {
        self.teller.dropped_notices
    }

    /// Messages of this process that a peer refused after they had left: a revocation crossed them.
    #[must_use]
    pub fn refused_stores(&self) -> u64 {
        self.teller.refused_stores
    }
}

/// A key from the operating system's entropy.
pub(crate) fn job_key() -> Result<Key, DriverError> {
    let mut key = Key::ZERO;
    let flags = GetRandomFlags::empty();
    // Up to 256 bytes come whole.
    retry_on_intr(|| getrandom(&mut key.0, flags)).map_err(|errno| DriverError::Entropy(errno.into()))?;
    Ok(key)
}
