//! A cluster in virtual time: real nodes, simulated computers and links, one agenda of events.
//!
//! Processing takes time of a computer's processor, and what comes meanwhile waits. Within one event nothing else happens: moves of
//! memory are done at once, and their time is charged.

mod agenda;
mod datagrams;
mod host;
mod link;
mod memory;

use mapwire_nic::{BufferId, Config, Dma, NicError, Source, Verdict};
use mapwire_node::{Act, Ask, Breach, NoPayload, Node, NodeConfig, Told};
use mapwire_translation::{AnyDesign, CacheError, DesignConfig, PinRules};
use mapwire_wire::{
    Atomic, CommandRepr, Endpoint, HEADER_BYTES, Header, ImportId, Key, MAX_PAYLOAD_BYTES, NodeId,
    ProcessId, SignalOp, WireError, link::LINK_HEADER_BYTES,
};
use thiserror::Error;

use crate::canary::Canary;
use crate::random::Random;
use crate::rules::{Effect, Fault};
use crate::scenario::MOST_NODES;
use agenda::Agenda;
use host::{Clock, Commands, Host};
use link::Link;

pub use datagrams::Delivery;
pub use link::LinkConfig;
pub use memory::{BadAccess, FIRST_ADDRESS, Memory, POISON, PinRefused};

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

/// Room for a payload that a packet keeps for the next that takes its place.
const KEPT_BYTES: usize = 512;

/// What a cluster is made with.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Nodes: 1 to 4,096.
    pub nodes: u16,
    /// Processes of each node: 1 to 64.
    pub processes: u16,
    /// All links.
    pub link: LinkConfig,
    /// Whether they may lose packets.
    pub delivery: Delivery,
    /// How the network interfaces translate.
    pub design: DesignConfig,
    /// What each process may pin.
    pub pin_rules: PinRules,
    /// Completion words of each process.
    pub words: u32,
    /// Memory of a network interface.
    pub nic_memory_bytes: u64,
    /// The longest payload of a packet.
    pub max_payload_bytes: usize,
}

/// Why there is no such cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// Too few or too many nodes or processes.
    #[error("invalid number of {what} `{given}`: expected {least} to {most}")]
    Size {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        given: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Its network interfaces.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// Their caches.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A violation of what the project promises, with the checker that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker.
    pub check: &'static str,
    /// What happened.
    pub text: String,
}

/// A packet under way.
#[derive(Clone, Debug)]
struct Packet {
    from: NodeId,
    to: NodeId,
    form: Form,
    /// That of a datagram is within its payload.
    header: Header,
    payload: Vec<u8>,
    /// Changed on the way: the transport's checksum does not fit.
    is_damaged: bool,
    /// Set while the source has not been read, by a canary only.
    late: Option<Source>,
}

/// What a packet under way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A packet of a lossless transport.
    Plain,
    /// A datagram of one that may lose it.
    Datagram,
    /// A packet that came in a datagram before its turn.
    Early,
}

impl Packet {
    const NONE: Self = Self {
        from: NodeId(0),
        to: NodeId(0),
        form: Form::Plain,
        header: Header::ZERO,
        payload: Vec::new(),
        is_damaged: false,
        late: None,
    };

    /// What it carries behind its headers.
    fn body(&self) -> &[u8] {
        let start = match self.form {
            Form::Plain => 0,
            Form::Datagram => LINK_HEADER_BYTES + HEADER_BYTES,
            Form::Early => HEADER_BYTES,
        };
        self.payload.get(start..).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(u32),
    Run(NodeId),
    Room(NodeId),
    Timer(NodeId),
    Gone {
        at: NodeId,
        of: NodeId,
        incarnation: u32,
    },
    FaultBegins(u32),
    FaultEnds(u32),
    Program(u32),
}

/// One part of a move of memory, as an observer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// Whose memory.
    pub at: Endpoint,
    /// Who sent the packet.
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
    Nothing {
        /// What it is told.
        is_claimed: bool,
    },
    /// In place: the peer's memory is mapped here, and the region begins at this address there as here.
    Place(u64),
    /// By the network interface, through this import of the memory of which the region begins at this address here.
    Import(ImportId, u64),
}

/// Sees all that happens in a cluster.
pub trait Observer {
    /// Memory was moved.
    fn moved(&mut self, now_ns: u64, moved: Moved<'_>);
    /// A node told something.
    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told);
    /// A node asks for something.
    fn asked(&mut self, now_ns: u64, at: NodeId, ask: &Ask);
    /// A service asks for bytes to be stored in a peer's memory.
    fn store(&mut self, _now_ns: u64, _at: NodeId, _ask: &Ask) -> StoreBy {
        StoreBy::Nothing { is_claimed: false }
    }
    /// A page of a process was unpinned.
    fn unpinned(&mut self, now_ns: u64, at: Endpoint, page: u64);
    /// A node has crashed.
    fn crashed(&mut self, now_ns: u64, node: NodeId);
    /// It has started again.
    fn restarted(&mut self, _now_ns: u64, _node: NodeId) {}
    /// Something happened that must not, whatever the programs do.
    fn violated(&mut self, now_ns: u64, violation: Violation);
}

/// What has happened in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something within the cluster.
    Inside,
    /// The time of a program's event has come, with its number.
    Program(u32),
    /// Nothing is left to happen.
    Rest,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events.
    pub events: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    now_ns: u64,
    hosts: Vec<Host>,
    /// How often each node has restarted.
    incarnations: Vec<u32>,
    /// By sender, then receiver.
    links: Vec<Link>,
    agenda: Agenda<Event>,
    packets: Vec<Packet>,
    free_packets: Vec<u32>,
    faults: Vec<Box<dyn Fault>>,
    /// Those that are in force, by number.
    active: Vec<u32>,
    random: Random,
    canary: Option<Canary>,
    totals: Totals,
}

impl Cluster {
    /// A cluster whose processes are open, and whose clocks and keys `random` draws.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn new(config: ClusterConfig, mut random: Random) -> Result<Self, ClusterError> {
        let check = |what, given: u16, most| match (1..=most).contains(&u64::from(given)) {
            true => Ok(()),
            false => Err(ClusterError::Size {
                what,
                given: given.into(),
                least: 1,
                most,
            }),
        };
        check("nodes", config.nodes, MOST_NODES.into())?;
        check("processes of a node", config.processes, 64)?;
        let count = usize::from(config.nodes);
        let mut hosts = Vec::with_capacity(count);
        for number in 0..config.nodes {
            hosts.push(Self::host(&config, NodeId(number), 0, &mut random)?);
        }
        Ok(Self {
            now_ns: 0,
            hosts,
            incarnations: vec![0; count],
            links: vec![Link::default(); count * count],
            agenda: Agenda::new(),
            packets: Vec::new(),
            free_packets: Vec::new(),
            faults: Vec::new(),
            active: Vec::new(),
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
    ) -> Result<Host, ClusterError> {
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
            delivery: config.delivery.of_nic(config, number, incarnation),
        };
        let mut node = Node::new(
            NodeConfig { nic, uid: 1000 },
            AnyDesign::new(&config.design)?,
        )?;
        let words = config.words as usize;
        for process in 0..config.processes {
            node.open_process(ProcessId(process), config.pin_rules, words)?;
        }
        let mut commands = Vec::new();
        commands.resize_with(usize::from(config.processes), Commands::default);
        Ok(Host {
            node,
            memory: Memory::new(config.processes),
            commands,
            clock: Clock {
                offset_ns: random.below(1 << 40),
                drift_ppb: random.below(100_000),
            },
            inbox: Default::default(),
            free_at_ns: 0,
            is_scheduled: false,
            port_free_ns: 0,
            timer_ns: None,
            has_room_event: false,
            slowness: 1,
            is_alive: true,
            tries: 0,
        })
    }

    /// Puts a bug in.
    pub fn set_canary(&mut self, canary: Option<Canary>) {
        self.canary = canary;
    }

    /// The bug that was put in.
    #[must_use]
    pub fn canary(&self) -> Option<Canary> {
        self.canary
    }

    /// Lets faults happen at their times.
    pub fn set_faults(&mut self, faults: Vec<Box<dyn Fault>>) {
        for (number, fault) in (0..).zip(&faults) {
            let window = fault.window();
            self.agenda
                .enter(window.begin_ns, Event::FaultBegins(number));
            self.agenda.enter(window.end_ns, Event::FaultEnds(number));
        }
        self.faults = faults;
    }

    /// Enters an event of a program.
    pub fn schedule(&mut self, at_ns: u64, number: u32) {
        self.agenda.enter(at_ns, Event::Program(number));
    }

    /// Virtual time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// What a node's clock shows.
    #[must_use]
    pub fn clock_ns(&self, node: NodeId) -> u64 {
        self.hosts[usize::from(node.0)].clock.shows(self.now_ns)
    }

    /// What it is made with.
    #[must_use]
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// Counters.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether a node has not crashed.
    #[must_use]
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.hosts[usize::from(node.0)].is_alive
    }

    /// A node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> &Node<AnyDesign> {
        &self.hosts[usize::from(node.0)].node
    }

    /// A node and its memory, for calls of its programs. Call [`settle`](Self::settle) afterwards.
    pub fn parts(&mut self, node: NodeId) -> (&mut Node<AnyDesign>, &mut Memory) {
        let host = &mut self.hosts[usize::from(node.0)];
        (&mut host.node, &mut host.memory)
    }

    /// Until when a node's processor has other things to do.
    #[must_use]
    pub fn busy_until_ns(&self, node: NodeId) -> u64 {
        self.hosts[usize::from(node.0)].free_at_ns
    }

    /// Commands that wait in the queue of a process.
    #[must_use]
    pub fn queued_commands(&self, of: Endpoint) -> usize {
        self.hosts[usize::from(of.node.0)].commands[usize::from(of.process.0)].len()
    }

    /// Puts a command into the queue of a process. Call [`settle`](Self::settle) afterwards.
    ///
    /// # Errors
    /// It is not a legal command.
    pub fn submit(
        &mut self,
        of: Endpoint,
        command: &CommandRepr,
        data: &[u8],
    ) -> Result<(), WireError> {
        let host = &mut self.hosts[usize::from(of.node.0)];
        host.commands[usize::from(of.process.0)].submit(command, data)
    }

    /// Lets the next thing happen.
    #[inline]
    pub fn step(&mut self, observer: &mut impl Observer) -> Step {
        let Some((at_ns, event)) = self.agenda.pop() else {
            return Step::Rest;
        };
        debug_assert!(at_ns >= self.now_ns);
        self.now_ns = at_ns;
        self.totals.events += 1;
        match event {
            Event::Arrive(packet) => self.arrive(packet, observer),
            Event::Run(node) => self.run(node, observer),
            Event::Room(node) => self.room(node, observer),
            Event::Timer(node) => self.timer(node, observer),
            Event::Gone {
                at,
                of,
                incarnation,
            } if incarnation == self.incarnations[usize::from(of.0)] => self.gone(at, of, observer),
            Event::Gone { .. } => {}
            Event::FaultBegins(number) => self.fault_begins(number, observer),
            Event::FaultEnds(number) => self.fault_ends(number, observer),
            Event::Program(number) => return Step::Program(number),
        }
        Step::Inside
    }

    fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        &mut self.links[usize::from(from.0) * usize::from(self.config.nodes) + usize::from(to.0)]
    }

    /// A packet is at its receiver's port.
    fn arrive(&mut self, packet: u32, observer: &mut impl Observer) {
        let Packet { to, is_damaged, .. } = self.packets[packet as usize];
        let host = &mut self.hosts[usize::from(to.0)];
        let is_dropped = is_damaged && self.canary != Some(Canary::UncheckedSum);
        if !host.is_alive || is_dropped {
            self.let_go(packet);
            return;
        }
        host.inbox.push_back(packet);
        if host.is_scheduled {
            return;
        }
        if host.free_at_ns <= self.now_ns {
            self.run(to, observer);
        } else {
            host.is_scheduled = true;
            self.agenda.enter(host.free_at_ns, Event::Run(to));
        }
    }

    /// The packet has been taken, or is lost with its receiver.
    fn let_go(&mut self, packet: u32) {
        let Packet { from, to, form, .. } = self.packets[packet as usize];
        self.recycle(packet);
        if form == Form::Early {
            return;
        }
        let now_ns = self.now_ns;
        let link = self.link(from, to);
        link.queued -= 1;
        if link.is_full {
            link.is_full = false;
            let host = &mut self.hosts[usize::from(from.0)];
            if host.is_alive && !host.has_room_event {
                host.has_room_event = true;
                self.agenda.enter(now_ns + 1, Event::Room(from));
            }
        }
    }

    /// The place of a packet may be used again.
    fn recycle(&mut self, packet: u32) {
        let payload = &mut self.packets[packet as usize].payload;
        payload.clear();
        payload.shrink_to(KEPT_BYTES);
        self.free_packets.push(packet);
    }

    /// A place for a packet, empty.
    fn slot(packets: &mut Vec<Packet>, free: &mut Vec<u32>) -> u32 {
        let index = free.pop().unwrap_or_else(|| {
            packets.push(Packet::NONE);
            packets.len() as u32 - 1
        });
        let slot = &mut packets[index as usize];
        (slot.is_damaged, slot.late) = (false, None);
        index
    }

    /// The processor takes the next packet.
    fn run(&mut self, number: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        host.is_scheduled = false;
        if !host.is_alive {
            return;
        }
        if host.free_at_ns > self.now_ns {
            host.is_scheduled = true;
            self.agenda.enter(host.free_at_ns, Event::Run(number));
            return;
        }
        let Some(&packet) = host.inbox.front() else {
            return;
        };
        self.read_late(packet, observer);
        let host = &mut self.hosts[usize::from(number.0)];
        let taken = &self.packets[packet as usize];
        let (from, payload, buffer) = (taken.from, taken.body(), BufferId(packet));
        let clock_ns = host.clock.shows(self.now_ns);
        let verdict = match taken.form {
            Form::Datagram => {
                let datagram = &taken.payload[..];
                host.node.handle_datagram(clock_ns, from, datagram, buffer)
            }
            Form::Plain | Form::Early => {
                host.node
                    .handle_packet(from, &taken.header, &payload, buffer)
            }
        };
        let is_datagram = taken.form == Form::Datagram;
        let bytes = payload.len() as u64;
        host.free_at_ns = self.now_ns + (PACKET_NS + bytes * BYTE_PS / 1000) * host.slowness;
        if verdict == Verdict::Wait {
            host.tries += 1;
            if host.tries > MAX_TRIES {
                let text = format!("{number} never takes a packet of {from}: {MAX_TRIES} tries");
                let check = "liveness";
                observer.violated(self.now_ns, Violation { check, text });
                host.is_alive = false;
                return;
            }
            host.is_scheduled = true;
            self.settle(number, observer);
            let host = &self.hosts[usize::from(number.0)];
            let at_ns = host.free_at_ns.max(self.now_ns + 1);
            self.agenda.enter(at_ns, Event::Run(number));
            return;
        }
        host.tries = 0;
        host.inbox.pop_front();
        self.totals.packets += 1;
        self.totals.bytes += bytes + HEADER_BYTES as u64;
        Self::moves(
            self.now_ns,
            number,
            host,
            &self.packets,
            self.canary,
            observer,
        );
        loop {
            while let Some(told) = host.node.poll_told(&payload, || clock_ns) {
                Self::tell(
                    self.now_ns,
                    number,
                    self.canary,
                    &mut self.random,
                    &told,
                    observer,
                );
            }
            if !host.node.end_packet(from) {
                break;
            }
        }
        self.let_go(packet);
        if is_datagram {
            self.take_early(number, from);
        }
        let host = &mut self.hosts[usize::from(number.0)];
        if !host.inbox.is_empty() {
            host.is_scheduled = true;
        }
        self.settle(number, observer);
        let host = &mut self.hosts[usize::from(number.0)];
        if !host.inbox.is_empty() {
            self.agenda.enter(host.free_at_ns, Event::Run(number));
        }
    }

    fn tell(
        now_ns: u64,
        at: NodeId,
        canary: Option<Canary>,
        random: &mut Random,
        told: &Told,
        observer: &mut impl Observer,
    ) {
        if let Some(canary) = canary {
            let is_hit = match canary {
                Canary::ToldTwice => matches!(told, Told::Done { .. }),
                Canary::LostCompletion => matches!(told, Told::Done { .. }),
                Canary::LostNotification => matches!(told, Told::Notified { .. }),
                _ => false,
            };
            if is_hit && random.chance(5) {
                if canary != Canary::ToldTwice {
                    return;
                }
                observer.told(now_ns, at, told);
            }
        }
        observer.told(now_ns, at, told);
    }

    /// Does the moves that a node asks for.
    fn moves(
        now_ns: u64,
        number: NodeId,
        host: &mut Host,
        packets: &[Packet],
        canary: Option<Canary>,
        observer: &mut impl Observer,
    ) {
        while let Some(dma) = host.node.poll_move() {
            let packet = &packets[dma.buffer.0 as usize];
            let done = Self::make_move(
                now_ns,
                number,
                &mut host.memory,
                packet,
                &dma,
                canary,
                observer,
            );
            let old = done.unwrap_or_else(|BadAccess(text)| {
                let check = "pinned pages";
                observer.violated(now_ns, Violation { check, text });
                0
            });
            host.node.handle_moved(&dma, old);
        }
    }

    fn make_move(
        now_ns: u64,
        number: NodeId,
        memory: &mut Memory,
        packet: &Packet,
        dma: &Dma,
        canary: Option<Canary>,
        observer: &mut impl Observer,
    ) -> Result<u64, BadAccess> {
        let process = dma.process.0;
        let bytes = &packet.body()[dma.at as usize..][..dma.piece.length as usize];
        memory.scatter(process, dma.piece, bytes)?;
        let word = |memory: &mut Memory, piece| {
            let mut bytes = Vec::with_capacity(8);
            memory.gather(process, piece, &mut bytes)?;
            bytes.resize(8, 0);
            let bytes: [u8; 8] = bytes.try_into().unwrap_or_default();
            Ok(u64::from_le_bytes(bytes))
        };
        let mut signal = None;
        if let Some(write) = dma.signal
            && canary != Some(Canary::LostSignal)
        {
            let old: u64 = word(memory, write.piece)?;
            let new = match write.op {
                SignalOp::Set => write.value,
                SignalOp::Add => old.wrapping_add(write.value),
                SignalOp::Or => old | write.value,
            };
            memory.scatter(process, write.piece, &new.to_le_bytes())?;
            signal = Some((memory.address_of(write.piece), write.value, write.op));
        }
        let mut old = 0;
        let mut update = None;
        if let Some(wanted) = dma.update {
            old = word(memory, wanted.piece)?;
            let mut new = wanted.atomic.result(old);
            if canary == Some(Canary::AtomicTwice) && old % 4 == 3 {
                new = wanted.atomic.result(new);
            }
            let length = wanted.piece.length as usize;
            memory.scatter(process, wanted.piece, &new.to_le_bytes()[..length])?;
            update = Some((memory.address_of(wanted.piece), wanted.atomic));
        }
        let moved = Moved {
            at: Endpoint {
                node: number,
                process: dma.process,
            },
            from: packet.from,
            address: memory.address_of(dma.piece),
            bytes,
            signal,
            update,
        };
        observer.moved(now_ns, moved);
        Ok(old)
    }

    /// Reads the source of a packet that a canary has let out too early.
    fn read_late(&mut self, packet: u32, observer: &mut impl Observer) {
        let packet = &mut self.packets[packet as usize];
        let Some(source) = packet.late.take() else {
            return;
        };
        let memory = &mut self.hosts[usize::from(packet.from.0)].memory;
        packet.payload.clear();
        if let Err(BadAccess(text)) = read_source(memory, &source, &mut packet.payload) {
            let check = "pinned pages";
            observer.violated(self.now_ns, Violation { check, text });
            packet
                .payload
                .resize(packet.header.payload_bytes() as usize, POISON);
        }
    }

    /// A transport that was full has room.
    fn room(&mut self, number: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        host.has_room_event = false;
        if host.is_alive && self.canary != Some(Canary::NeverRetried) {
            host.node.retry_blocked();
            self.settle(number, observer);
        }
    }

    fn timer(&mut self, number: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(number.0)];
        if !host.is_alive || host.timer_ns != Some(self.now_ns) {
            return;
        }
        host.timer_ns = None;
        if host.free_at_ns > self.now_ns {
            host.timer_ns = Some(host.free_at_ns);
            self.agenda.enter(host.free_at_ns, Event::Timer(number));
            return;
        }
        if self.canary == Some(Canary::LostTimer) {
            return;
        }
        host.node.handle_time(host.clock.shows(self.now_ns));
        self.settle(number, observer);
    }

    fn gone(&mut self, at: NodeId, of: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(at.0)];
        if host.is_alive && self.canary != Some(Canary::UntoldCrash) {
            host.node
                .handle_peer_gone(host.clock.shows(self.now_ns), of);
            self.settle(at, observer);
        }
    }

    fn fault_begins(&mut self, number: u32, observer: &mut impl Observer) {
        let fault = &self.faults[number as usize];
        let (effect, end_ns) = (fault.begin(), fault.window().end_ns);
        match effect {
            Effect::Packets => self.active.push(number),
            Effect::Pause(node) => {
                let host = &mut self.hosts[usize::from(node.0)];
                host.free_at_ns = host.free_at_ns.max(end_ns);
            }
            Effect::Slow(node, factor) => self.hosts[usize::from(node.0)].slowness = factor.max(1),
            Effect::RefusePins(node, calls) => {
                self.hosts[usize::from(node.0)].memory.refuse_pins(calls);
            }
            Effect::Crash(node) => self.crash(node, observer),
            Effect::Restart(node) => {
                if self.is_alive(node) {
                    self.crash(node, observer);
                    self.active.push(number);
                }
            }
        }
    }

    fn fault_ends(&mut self, number: u32, observer: &mut impl Observer) {
        match self.faults[number as usize].begin() {
            Effect::Packets => self.active.retain(|active| *active != number),
            Effect::Restart(node) if self.active.contains(&number) => {
                self.active.retain(|active| *active != number);
                self.restart(node, observer);
            }
            Effect::Slow(node, _) => self.hosts[usize::from(node.0)].slowness = 1,
            Effect::RefusePins(node, _) => self.hosts[usize::from(node.0)].memory.refuse_pins(0),
            Effect::Pause(_) | Effect::Crash(_) | Effect::Restart(_) => {}
        }
    }

    /// A computer stops for good; the others learn of it some time later.
    pub fn crash(&mut self, node: NodeId, observer: &mut impl Observer) {
        let host = &mut self.hosts[usize::from(node.0)];
        if !core::mem::replace(&mut host.is_alive, false) {
            return;
        }
        while let Some(packet) = self.hosts[usize::from(node.0)].inbox.pop_front() {
            self.let_go(packet);
        }
        observer.crashed(self.now_ns, node);
        if let Delivery::Lossy {
            tells_of_crashes: false,
            ..
        } = self.config.delivery
        {
            return;
        }
        let incarnation = self.incarnations[usize::from(node.0)];
        for other in 0..self.config.nodes {
            let at_ns = self.now_ns + DETECTION_NS + self.random.below(DETECTION_NS);
            let event = Event::Gone {
                at: NodeId(other),
                of: node,
                incarnation,
            };
            if other != node.0 {
                self.agenda.enter(at_ns, event);
            }
        }
    }

    /// Carries out what a node asks for, until it asks for nothing more.
    pub fn settle(&mut self, number: NodeId, observer: &mut impl Observer) {
        loop {
            let mut did = self.serve_commands(number);
            did |= self.drain(number, observer);
            did |= self.transmit(number, observer);
            did |= self.serve_misses(number);
            // A command may have failed as it was cut.
            did |= self.hosts[usize::from(number.0)].node.has_told();
            if !did {
                break;
            }
        }
        let now_ns = self.now_ns;
        let host = &mut self.hosts[usize::from(number.0)];
        if host.node.owes_pages() {
            host.node.reclaim(&mut host.memory, |_| {});
        }
        let costs = host.memory.take_costs();
        let cost_ns = costs.calls * PIN_CALL_NS + costs.pages * PIN_PAGE_NS;
        host.free_at_ns = host.free_at_ns.max(now_ns) + cost_ns * host.slowness;
        while let Some((process, page)) = host.memory.take_unpinned() {
            let at = Endpoint {
                node: number,
                process: ProcessId(process),
            };
            observer.unpinned(now_ns, at, page);
        }
        if let Some(at) = host.node.poll_at() {
            let at_ns = host.clock.time_of(at).max(now_ns + 1);
            if host.timer_ns.is_none_or(|timer| timer > at_ns) {
                host.timer_ns = Some(at_ns);
                self.agenda.enter(at_ns, Event::Timer(number));
            }
        }
    }

    fn serve_commands(&mut self, number: NodeId) -> bool {
        let host = &mut self.hosts[usize::from(number.0)];
        let mut served = 0;
        for (process, commands) in (0..).zip(&mut host.commands) {
            served += commands.serve(&mut host.node, ProcessId(process));
        }
        host.free_at_ns = host.free_at_ns.max(self.now_ns) + served * PACKET_NS * host.slowness;
        served > 0
    }

    fn drain(&mut self, number: NodeId, observer: &mut impl Observer) -> bool {
        let mut did = false;
        let host = &mut self.hosts[usize::from(number.0)];
        let clock_ns = host.clock.shows(self.now_ns);
        Self::moves(
            self.now_ns,
            number,
            host,
            &self.packets,
            self.canary,
            observer,
        );
        while let Some(told) = host.node.poll_told(&NoPayload, || clock_ns) {
            did = true;
            Self::tell(
                self.now_ns,
                number,
                self.canary,
                &mut self.random,
                &told,
                observer,
            );
        }
        let mut stored = Vec::new();
        while let Some(ask) = host.node.poll_ask() {
            did = true;
            if let Act::Store { to, region, .. } = ask.act {
                match observer.store(self.now_ns, number, &ask) {
                    StoreBy::Nothing { is_claimed } => {
                        host.node.handle_stored(ask.process, is_claimed);
                    }
                    StoreBy::Place(address) => {
                        let mut bytes = vec![0; region.bytes as usize];
                        host.memory.read(ask.process.0, address, &mut bytes);
                        host.node.handle_stored(ask.process, true);
                        stored.push((to, address, bytes));
                    }
                    StoreBy::Import(import, address) => {
                        let memory = &mut host.memory;
                        // The service is told if it fails.
                        let _ = host
                            .node
                            .store_by_import(ask.process, memory, import, address);
                    }
                }
            }
            observer.asked(self.now_ns, number, &ask);
        }
        // Nothing that was sent behind them has left yet.
        for (to, address, bytes) in stored {
            let peer = &mut self.hosts[usize::from(to.node.0)];
            peer.memory.write(to.process.0, address, &bytes);
        }
        did
    }

    fn serve_misses(&mut self, number: NodeId) -> bool {
        let host = &mut self.hosts[usize::from(number.0)];
        host.node.has_misses()
            && self.canary != Some(Canary::UnservedMiss)
            && host.node.serve_misses(&mut host.memory, |_| {})
    }

    /// Sends what a node has to send. Whether there was anything.
    fn transmit(&mut self, number: NodeId, observer: &mut impl Observer) -> bool {
        if self.config.delivery != Delivery::Lossless {
            return self.transmit_datagrams(number, observer);
        }
        let mut sent = false;
        let nodes = usize::from(self.config.nodes);
        loop {
            let host = &mut self.hosts[usize::from(number.0)];
            let Some(packet) = host.node.poll_transmit() else {
                return sent;
            };
            sent = true;
            let to = packet.to;
            let link = &mut self.links[usize::from(number.0) * nodes + usize::from(to.0)];
            if link.queued >= self.config.link.queue_packets {
                link.is_full = true;
                host.node.handle_transmit_blocked(to);
                continue;
            }
            link.queued += 1;
            let index = Self::slot(&mut self.packets, &mut self.free_packets);
            let slot = &mut self.packets[index as usize];
            (slot.from, slot.to, slot.form) = (number, to, Form::Plain);
            slot.header = packet.header;
            match (self.canary, &packet.source) {
                (Some(Canary::EarlyTransmitted), Source::Memory { .. }) => {
                    slot.late = Some(packet.source.clone());
                    slot.payload
                        .resize(packet.header.payload_bytes() as usize, 0);
                }
                (_, source) => {
                    if let Err(BadAccess(text)) =
                        read_source(&mut host.memory, source, &mut slot.payload)
                    {
                        let check = "pinned pages";
                        observer.violated(self.now_ns, Violation { check, text });
                        let bytes = packet.header.payload_bytes() as usize;
                        slot.payload.resize(bytes, POISON);
                    }
                }
            }
            host.node.handle_transmitted(to);
            self.send(index);
        }
    }

    /// Puts a packet on its link.
    fn send(&mut self, index: u32) {
        let Packet {
            from, to, payload, ..
        } = &self.packets[index as usize];
        let (from, to) = (*from, *to);
        let bytes = (payload.len() + HEADER_BYTES) as u64;
        let host = &mut self.hosts[usize::from(from.0)];
        // The processor copies; the port sends when it has sent what came before.
        host.free_at_ns =
            host.free_at_ns.max(self.now_ns) + (PACKET_NS + bytes * BYTE_PS / 1000) * host.slowness;
        let start_ns = host.port_free_ns.max(host.free_at_ns);
        host.port_free_ns = start_ns + self.config.link.serialization_ns(bytes);
        let mut arrival_ns = host.port_free_ns + self.config.link.latency_ns;
        for &fault in &self.active {
            let fault = &self.faults[fault as usize];
            arrival_ns += fault.delay_ns(self.now_ns, from, to, &mut self.random);
        }
        let link = self.link(from, to);
        arrival_ns = arrival_ns.max(link.last_arrival_ns);
        link.last_arrival_ns = arrival_ns;
        match self.canary {
            None => self.agenda.enter(arrival_ns, Event::Arrive(index)),
            Some(canary) => self.send_badly(canary, index, arrival_ns),
        }
    }

    /// As a canary has it.
    #[cold]
    fn send_badly(&mut self, canary: Canary, index: u32, arrival_ns: u64) {
        let is_hit = self.random.chance(2);
        let packet = &mut self.packets[index as usize];
        match canary {
            Canary::LostPacket if is_hit => return self.let_go(index),
            Canary::RepeatedPacket if is_hit => {
                let copy = packet.clone();
                let (from, to) = (copy.from, copy.to);
                self.packets.push(copy);
                self.link(from, to).queued += 1;
                let copy = self.packets.len() as u32 - 1;
                self.agenda.enter(arrival_ns, Event::Arrive(copy));
            }
            Canary::Overtaking if is_hit => {
                return self.agenda.enter(arrival_ns + 3_000, Event::Arrive(index));
            }
            Canary::ReusedSequence if is_hit => {
                let sequence = packet.header.sequence.get();
                packet.header.sequence.set(sequence.wrapping_sub(1));
            }
            Canary::ChangedByte if is_hit => {
                if let Some(last) = packet.payload.last_mut() {
                    *last ^= 0x40;
                }
            }
            _ => {}
        }
        self.agenda.enter(arrival_ns, Event::Arrive(index));
    }
}

/// Appends what a packet carries.
fn read_source(
    memory: &mut Memory,
    source: &Source,
    payload: &mut Vec<u8>,
) -> Result<(), BadAccess> {
    match source {
        Source::Inline { bytes, length } => {
            payload.extend_from_slice(&bytes[..usize::from(*length)]);
        }
        Source::Message(bytes) => payload.extend_from_slice(bytes),
        Source::Memory {
            process,
            piece,
            trailer,
            ..
        } => {
            memory.gather(process.0, *piece, payload)?;
            payload.extend(trailer.iter().flatten());
        }
    }
    Ok(())
}

/// What a node says against a peer, if it does.
pub(crate) fn breach_of(told: &Told) -> Option<(NodeId, Breach)> {
    match *told {
        Told::PeerBroken { node, breach } => Some((node, breach)),
        _ => None,
    }
}
