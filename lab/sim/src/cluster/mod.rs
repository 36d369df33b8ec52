//! A cluster in virtual time: real nodes, simulated computers and links, one agenda of events.
//!
//! Processing takes time of a computer's processor, and what comes meanwhile waits. Within one event nothing else happens: moves of
//! memory are done at once, and their time is charged.

mod arrivals;
mod buggy;
mod datagrams;
mod departures;
mod drawing;
mod faults;
mod forging;
mod host;
mod interrupt;
mod link;
mod packets;
mod sealing;
mod settling;

use mapwire_nic::Config;
use mapwire_node::{Ask, Breach, Node, Told};
use mapwire_seal::PublicKey;
use mapwire_translation::{AnyDesign, DesignConfig, PinRules};
use mapwire_vmmc::service::Change;
use mapwire_wire::{Atomic, CommandRepr, Endpoint, ImportId, Key, MAX_PAYLOAD_BYTES, NodeId, SignalOp, WireError};

use crate::canary::Canary;
use crate::coverage::{Condition, Coverage};
use crate::hardware::Agenda;
use crate::hardware::memory::Memory;
use crate::hardware::node::{self, Command, Commands, ComputerError, check_size};
use crate::hardware::packets::Packet;
use crate::random::Random;
use crate::rules::Fault;
use forging::{Awaited, Forgeries};
use host::{Clock, Host};
use link::Link;
use sealing::Wrap;

pub use crate::checks::Violation;
pub use crate::hardware::memory::FIRST_ADDRESS;
pub use forging::Forgery;
pub use interrupt::Interrupt;
pub use link::{Delivery, EARLY_PACKETS, LinkConfig};

/// Nodes of a cluster at most.
pub const MOST_NODES: u16 = 4096;
/// Processor time of one packet or command.
const PACKET_NS: u64 = 150;
/// Processor time of one byte that is copied, in thousandths of a nanosecond.
const BYTE_PS: u64 = 50;
/// Processor time of a call of the pinner, and of each page.
const PIN_CALL_NS: u64 = 1_000;
const PIN_PAGE_NS: u64 = 100;
/// How long after its crash a node is known to be gone.
const DETECTION_NS: u64 = 200_000;
/// Tries of a packet that waits for misses, before that counts as a failure.
const MAX_TRIES: u32 = 10_000;

/// Stores that a processor takes at most before it tells of the first.
const MOST_UNTOLD: u64 = 8;
/// Events after which it is asked whether the run is to stop.
const INTERRUPT_EVENTS: u64 = 1024;

/// Room for a payload that a packet keeps for the next that takes its place.
const KEPT_BYTES: usize = 512;

#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Nodes: 1 to 4,096.
    pub nodes: u16,
    /// Processes of each node: 1 to 64.
    pub processes: u16,
    pub link: LinkConfig,
    /// Whether they may lose packets.
    pub delivery: Delivery,
    pub design: DesignConfig,
    pub pin_rules: PinRules,
    /// Completion words of each process.
    pub words: u32,
    /// Memory of a network interface.
    pub nic_memory_bytes: u64,
    /// The longest payload of a packet.
    pub max_payload_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(u32),
    Run(NodeId),
    Room(NodeId),
    Timer(NodeId),
    Gone { at: NodeId, of: NodeId, incarnation: u32 },
    FaultBegins(u32),
    FaultEnds(u32),
    Program(u32),
}

/// One part of a move of memory, as an observer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    pub at: Endpoint,
    pub from: NodeId,
    /// First address; `None`: the garbage frame.
    pub address: Option<u64>,
    /// The bytes that were stored there.
    pub bytes: &'a [u8],
    /// A signal that was written after them: address, value, operation.
    pub signal: Option<(Option<u64>, u64, SignalOp)>,
    /// A word that was updated.
    pub update: Option<(Option<u64>, Atomic)>,
}

/// How bytes that a service asks to be stored get into a peer's memory.
#[derive(Clone, Copy, Debug)]
pub enum StoreBy {
    /// They do not; the service is told that they do, or that they are lost.
    Nothing { is_claimed: bool },
    /// In place: the peer's memory is mapped here.
    Place {
        /// The region's first address here; of a fetch, where it goes.
        from: u64,
        /// Its first address in the peer's memory.
        to: u64,
    },
    /// By the network interface, through this import of the memory of which the region begins at this address here.
    Import(ImportId, u64),
}

/// Sees all that happens in a cluster.
pub trait Observer {
    fn moved(&mut self, _now_ns: u64, _moved: Moved<'_>) {}
    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told);
    /// A node asks for something.
    fn asked(&mut self, _now_ns: u64, _at: NodeId, _ask: &Ask) {}
    /// A service asks for bytes to be stored in a peer's memory.
    fn store(&mut self, _now_ns: u64, _at: NodeId, _ask: &Ask) -> StoreBy {
        StoreBy::Nothing { is_claimed: false }
    }
    /// A service asks for a change of its own memory: what is to be done.
    fn changes(&mut self, _at: Endpoint, change: Change) -> Vec<Change> {
        vec![change]
    }
    /// A page of a process was unpinned.
    fn unpinned(&mut self, _now_ns: u64, _at: Endpoint, _page: u64) {}
    fn crashed(&mut self, _now_ns: u64, _node: NodeId) {}
    fn restarted(&mut self, _now_ns: u64, _node: NodeId) {}
    /// Something happened that must not, whatever the programs do.
    fn violated(&mut self, now_ns: u64, violation: Violation);

    /// What a check promises does not hold.
    fn broke(&mut self, now_ns: u64, check: &'static str, text: String) {
        self.violated(now_ns, Violation { check, text });
    }

    /// Takes note of what was checked.
    fn note<T>(&mut self, now_ns: u64, checked: Result<T, Violation>) -> Option<T> {
        checked.map_err(|violation| self.violated(now_ns, violation)).ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Inside,
    /// The time of a program's event has come, with its number.
    Program(u32),
    /// Nothing is left to happen.
    Rest,
    /// The run is to stop, whatever is left.
    Interrupted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub events: u64,
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    now_ns: u64,
    hosts: Vec<Host>,
    /// Public keys by node, where datagrams are sealed.
    keys: Vec<PublicKey>,
    /// How often each node has restarted.
    incarnations: Vec<u32>,
    links: Vec<Link>,
    agenda: Agenda<Event>,
    packets: Vec<Packet>,
    free_packets: Vec<u32>,
    faults: Vec<Box<dyn Fault>>,
    fired: Vec<u64>,
    /// Those that are in force, by number.
    active: Vec<u32>,
    forgeries: Forgeries,
    coverage: Coverage,
    /// Packets that came early, kept by a bug.
    kept: Vec<(NodeId, Packet)>,
    interrupt: Interrupt,
    random: Random,
    canary: Option<Canary>,
    totals: Totals,
}

impl Cluster {
    /// A cluster whose processes are open, and whose clocks and keys `random` draws.
    pub fn new(config: ClusterConfig, mut random: Random) -> Result<Self, ComputerError> {
        check_size("nodes", config.nodes.into(), (1, MOST_NODES.into()))?;
        check_size("processes of a node", config.processes.into(), (1, 64))?;
        let count = usize::from(config.nodes);
        let mut hosts = Vec::with_capacity(count);
        for number in 0..config.nodes {
            hosts.push(Self::host(&config, NodeId(number), 0, &mut random)?);
        }
        Ok(Self {
            now_ns: 0,
            hosts,
            keys: sealing::keys(if config.delivery.is_sealed() { config.nodes } else { 0 }),
            incarnations: vec![0; count],
            links: vec![Link::default(); count * count],
            agenda: Agenda::new(),
            packets: Vec::new(),
            free_packets: Vec::new(),
            faults: Vec::new(),
            fired: Vec::new(),
            active: Vec::new(),
            forgeries: Forgeries::default(),
            coverage: Coverage::default(),
            kept: Vec::new(),
            interrupt: Interrupt::default(),
            random,
            canary: None,
            totals: Totals::default(),
            config,
        })
    }

    fn host(
        config: &ClusterConfig,
        number: NodeId,
        incarnation: u32,
        random: &mut Random,
    ) -> Result<Host, ComputerError> {
        let key = |_| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&(random.next() | 1).to_le_bytes());
            bytes[8..].copy_from_slice(&random.next().to_le_bytes());
            Key(bytes)
        };
        let nic = Config {
            node: number,
            reply_keys: (0..config.nodes).map(key).collect(),
            memory_bytes: config.nic_memory_bytes,
            max_payload_bytes: config.max_payload_bytes.min(MAX_PAYLOAD_BYTES),
            delivery: config.delivery.of_nic(config.max_payload_bytes, number, incarnation),
        };
        let node = node::node(nic, &config.design, (config.processes, config.words), config.pin_rules)?;
        let mut commands = Vec::new();
        commands.resize_with(usize::from(config.processes), Commands::default);
        let wrap = match config.delivery {
            Delivery::Lossless => None,
            Delivery::Lossy { is_sealed, .. } => Some(Wrap::new(is_sealed, config.nodes, number, random)),
        };
        Ok(Host {
            wrap,
            node,
            memory: Memory::scattered(config.processes),
            commands,
            clock: Clock { offset_ns: random.below(1 << 40), drift_ppb: random.below(100_000) },
            inbox: Default::default(),
            free_at_ns: 0,
            is_scheduled: false,
            port_free_ns: 0,
            timer_ns: None,
            has_room_event: false,
            slowness: 1,
            is_alive: true,
            forges: None,
            tries: 0,
        })
    }

    pub fn set_canary(&mut self, canary: Option<Canary>) {
        self.canary = canary;
        for host in &mut self.hosts {
            host.memory.hides_refusals = canary == Some(Canary::RefusedPin);
        }
    }

    /// The bug that was put in.
    pub fn canary(&self) -> Option<Canary> {
        self.canary
    }

    /// Lets faults happen at their times.
    pub fn set_faults(&mut self, faults: Vec<Box<dyn Fault>>) {
        for (number, fault) in (0..).zip(&faults) {
            let window = fault.window();
            self.agenda.enter(window.begin_ns, Event::FaultBegins(number));
            self.agenda.enter(window.end_ns, Event::FaultEnds(number));
        }
        self.fired = vec![0; faults.len()];
        self.faults = faults;
    }

    /// Ends the run as [`Step::Interrupted`] once the interrupt says so.
    pub fn set_interrupt(&mut self, interrupt: &Interrupt) {
        self.interrupt = interrupt.clone();
    }

    pub fn coverage(&self) -> Coverage {
        let mut coverage = self.coverage.clone();
        for (fault, fired) in self.faults.iter().zip(&self.fired) {
            coverage.note_rule(fault.rule(), *fired);
        }
        let healed = self.hosts.iter().map(|host| host.memory.healed_pins());
        coverage.note_many(Condition::PinsHealed, healed.sum());
        let dropped = self.hosts.iter().map(|host| host.node.nic()).map(|nic| nic.counters().early_dropped);
        coverage.note_many(Condition::EarlyDropped, dropped.sum());
        coverage
    }

    /// Enters an event of a program.
    pub fn schedule(&mut self, at_ns: u64, number: u32) {
        self.agenda.enter(at_ns, Event::Program(number));
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub fn clock_ns(&self, node: NodeId) -> u64 {
        self.hosts[usize::from(node.0)].clock.shows(self.now_ns)
    }

    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether a node has not crashed.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.hosts[usize::from(node.0)].is_alive
    }

    pub fn node(&self, node: NodeId) -> &Node<AnyDesign> {
        &self.hosts[usize::from(node.0)].node
    }

    /// A node and its memory, for calls of its programs. Call [`settle`](Self::settle) afterwards.
    pub fn parts(&mut self, node: NodeId) -> (&mut Node<AnyDesign>, &mut Memory) {
        let host = &mut self.hosts[usize::from(node.0)];
        (&mut host.node, &mut host.memory)
    }

    /// Calls that a node's pinner has refused since it started.
    pub fn refused_pins(&self, node: NodeId) -> u64 {
        self.hosts[usize::from(node.0)].memory.refused_pins()
    }

    /// Until when a node's processor has other things to do.
    pub fn busy_until_ns(&self, node: NodeId) -> u64 {
        self.hosts[usize::from(node.0)].free_at_ns
    }

    /// Commands that wait in the queue of a process.
    pub fn queued_commands(&self, of: Endpoint) -> usize {
        self.hosts[usize::from(of.node.0)].commands[usize::from(of.process.0)].len()
    }

    /// Puts a command into the queue of a process. Call [`settle`](Self::settle) afterwards.
    pub fn submit(&mut self, of: Endpoint, command: &CommandRepr, data: &[u8]) -> Result<(), WireError> {
        let host = &mut self.hosts[usize::from(of.node.0)];
        host.commands[usize::from(of.process.0)].push(Command::new(command, data)?);
        Ok(())
    }

    /// Lets the next thing happen.
    #[inline]
    pub fn step(&mut self, observer: &mut impl Observer) -> Step {
        if self.totals.events % INTERRUPT_EVENTS == INTERRUPT_EVENTS - 1 && self.interrupt.is_over() {
            return Step::Interrupted;
        }
        let Some((at_ns, event)) = self.agenda.pop() else { return Step::Rest };
        debug_assert!(at_ns >= self.now_ns);
        self.now_ns = at_ns;
        self.totals.events += 1;
        match event {
            Event::Arrive(packet) => self.arrive(packet, observer),
            Event::Run(node) => self.run(node, observer),
            Event::Room(node) => self.room(node, observer),
            Event::Timer(node) => self.timer(node, observer),
            Event::Gone { at, of, incarnation } if incarnation == self.incarnations[usize::from(of.0)] => {
                self.gone(at, of, observer)
            }
            Event::Gone { .. } => {}
            Event::FaultBegins(number) => self.fault_begins(number, observer),
            Event::FaultEnds(number) => self.fault_ends(number, observer),
            Event::Program(number) => return Step::Program(number),
        }
        Step::Inside
    }

    /// Whether programs of a node forge packets now.
    pub fn is_forging(&self, node: NodeId) -> bool {
        self.hosts[usize::from(node.0)].forges.is_some()
    }

    /// A fetch that `by` has asked `of` for and that is not answered yet, as `of` sees it.
    pub(crate) fn awaited(&self, by: NodeId, of: NodeId) -> Option<Awaited> {
        self.forgeries.awaited.get(&(by, of)).copied()
    }

    /// Has the packets of `from` to `to` that its firmware sends to `offset` of an export forged.
    pub fn forge(&mut self, from: NodeId, to: NodeId, offset: u64, forgery: Forgery) {
        if let Some(number) = self.hosts[usize::from(from.0)].forges {
            self.fired[number as usize] += 1;
        }
        self.forgeries.packets.insert((from, to, offset), forgery);
    }

    fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        &mut self.links[usize::from(from.0) * usize::from(self.config.nodes) + usize::from(to.0)]
    }
}

/// What a node says against a peer, if it does.
pub(crate) fn breach_of(told: &Told) -> Option<(NodeId, Breach)> {
    match *told {
        Told::PeerBroken { node, breach } => Some((node, breach)),
        _ => None,
    }
}
