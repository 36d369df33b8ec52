//! A node between hostile peers and programs, one of which keeps to the rules, while exports, processes, services and peers go.
//!
//! [`Attack::act`] does one thing that is drawn, and checks what must hold at every moment; [`Attack::finish`] checks that every
//! operation ends.

#[path = "../../../../tests/counter.rs"]
pub(crate) mod counter;
#[path = "../../../../tests/hostile.rs"]
mod hostile;
#[path = "memory.rs"]
mod memory;
#[path = "../../../dsm/tests/hostile/messages.rs"]
mod messages;
#[path = "peers.rs"]
mod peers;
#[path = "programs.rs"]
mod programs;
#[path = "../../../../tests/random.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};

use mapwire_dsm::{Config as DsmConfig, Dsm, Minipage};
use mapwire_nic::link::LinkConfig;
use mapwire_nic::{BufferId, Config, Datagram, DatagramBody, Delivery, Piece, Source, Verdict};
use mapwire_node::{Act, Ask, NoPayload, Node, NodeConfig, SharedMemory, Told};
use mapwire_translation::{
    AnyDesign, CacheConfig, DesignConfig, DynamicHandleConfig, InterruptConfig, PerProcessConfig, PinLimit, PinRules,
};
use mapwire_vmmc::service::Service;
use mapwire_vmmc::{Grant, RequestId};
use mapwire_wire::link::{LINK_HEADER_BYTES, LinkHeader, LinkKind, MAX_ACK_BYTES};
use mapwire_wire::{
    Endpoint, ExportId, HEADER_BYTES, HandlerId, Header, ImportId, Key, NodeId, Packet, ProcessId, Rights,
};

use crate::allocations;
use counter::{COUNTER, Counter};
use hostile::Known;
use memory::Memory;
use peers::Peer;
pub(crate) use random::Random;

const NODES: u16 = 3;
const VICTIM: NodeId = NodeId(1);
/// The program that keeps to the rules, and the one that writes anything into its command queue.
const FAIR: ProcessId = ProcessId(0);
const WILD: ProcessId = ProcessId(1);
const SHARED: HandlerId = HandlerId(1);
const BUFFER: BufferId = BufferId(7);
/// Where the shared memory of the fair program lies.
const SEGMENT: u64 = 0x80_0000;
/// What the NIC's tables may take, and the node with all that it keeps.
const NIC_BYTES: u64 = 4 << 20;
const NODE_BYTES: i64 = 12 << 20;
/// Imports of one export that may be held.
const MOST_HOLDERS: usize = 3 * 1024;

/// All designs, with little NIC memory.
fn designs() -> [DesignConfig; 5] {
    let cache = CacheConfig::default().with_entries(64);
    [
        DesignConfig::Hierarchical(cache.into()),
        DesignConfig::SharedCache(cache.into()),
        DesignConfig::PerProcess(PerProcessConfig::default().with_entries(64)),
        DesignConfig::Interrupt(InterruptConfig::default().with_cache(cache)),
        DesignConfig::DynamicHandle(DynamicHandleConfig::default()),
    ]
}

/// An export that stands.
#[derive(Clone, Debug)]
struct Exported {
    process: ProcessId,
    id: ExportId,
    key: Key,
    address: u64,
    length: u64,
    rights: Rights,
    /// Where it was ever redirected to.
    landings: Vec<u64>,
}

pub(crate) struct Attack {
    random: Random,
    node: Node<AnyDesign>,
    memory: Memory,
    now_ns: u64,
    /// The transport may lose packets.
    lossy: bool,
    limit: PinRules,
    is_confined: bool,
    /// How often, in 100, a bit of what peers send is wrong.
    flips: u64,
    peers: [Peer; NODES as usize],
    exports: Vec<Exported>,
    imports: Vec<(ProcessId, ImportId, Grant)>,
    /// Imports that were asked for; then those that have their outcome.
    asked: BTreeSet<(ProcessId, RequestId)>,
    over: Vec<(ProcessId, RequestId)>,
    /// Buffers of commands of the fair program, by completion word.
    pending: BTreeMap<u32, (u64, u64)>,
    /// Entries that the wild program wrote into its queue, and words that it was told.
    written: u64,
    told: u64,
    minipages: Vec<Minipage>,
    node_bytes: i64,
}

impl Attack {
    pub(crate) fn new(mut random: Random) -> Self {
        let lossy = random.chance(40);
        let flips = [0, 0, 1, 3][random.below(4) as usize];
        let design = designs()[random.below(5) as usize];
        let limit = match random.chance(30) {
            true => PinLimit::Unlimited,
            false => PinLimit::Pages(random.within(6, 40)),
        };
        let limit = PinRules::default().with_limit(limit).with_prepin_pages(2);
        let nic = Config {
            node: VICTIM,
            reply_keys: vec![Key([3; 16]); usize::from(NODES)],
            memory_bytes: NIC_BYTES,
            max_payload_bytes: 4096,
            delivery: match lossy {
                true => Delivery::Lossy(LinkConfig::new(5, 1 << 16)),
                false => Delivery::Lossless,
            },
        };
        let config = NodeConfig { nic, uid: 1000 };
        let peer = Peer { epoch: 1, ..Peer::default() };
        let mut attack = Self {
            node: Node::new(config, AnyDesign::new(&design).unwrap()).unwrap(),
            random,
            memory: Memory::default(),
            now_ns: 1,
            lossy,
            limit,
            is_confined: false,
            flips,
            peers: [peer; NODES as usize],
            exports: Vec::new(),
            imports: Vec::new(),
            asked: BTreeSet::new(),
            over: Vec::new(),
            pending: BTreeMap::new(),
            written: 0,
            told: 0,
            minipages: Vec::new(),
            node_bytes: 0,
        };
        for node in 0..NODES {
            attack.node.make_room(NodeId(node));
        }
        for process in [FAIR, WILD] {
            attack.node.open_process(process, limit, 8).unwrap();
        }
        attack.open_services();
        attack
    }

    /// Gives the fair program a shared memory and a counter of its own.
    fn open_services(&mut self) {
        let hold_ns = self.random.below(2) * 500;
        let protocol = mapwire_dsm::Protocol::ALL[self.random.below(2) as usize];
        self.on(|node, _| {
            node.deregister(FAIR, SHARED);
            let config = DsmConfig {
                locks: 3,
                barriers: 3,
                chunk_pages: 2,
                hold_ns,
                protocol,
                twins: 6,
                notices: 500,
                home_moves_after: 2,
                ..DsmConfig::new(VICTIM.0, NODES, messages::THREADS, messages::PAGES, messages::VIEWS)
            };
            let mut shared = SharedMemory::new(Dsm::new(config).unwrap(), 1);
            (0..NODES).for_each(|rank| shared.hear(Endpoint::first_of(NodeId(rank))));
            node.register(FAIR, SHARED, Box::new(shared)).unwrap();
            node.deregister(FAIR, COUNTER);
            node.register(FAIR, COUNTER, Box::new(Counter::default())).unwrap();
        });
        self.minipages.clear();
    }

    /// A call of the node, which gives nothing that it has allocated. While it is confined it neither allocates nor frees.
    fn on<R>(&mut self, call: impl FnOnce(&mut Node<AnyDesign>, &mut Memory) -> R) -> R {
        let (calls, bytes) = (allocations::calls(), allocations::bytes());
        let done = call(&mut self.node, &mut self.memory);
        self.node_bytes += allocations::bytes() - bytes;
        let calls = allocations::calls() - calls;
        assert!(!self.is_confined || calls == 0, "{calls} while confined");
        done
    }

    /// Whether the bytes that steer it are spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.random.is_spent()
    }

    /// Does one thing.
    pub(crate) fn act(&mut self) {
        match self.random.below(40) {
            0..8 => {
                let from = self.random.below(2) as u16 * 2;
                let export = self.some_export();
                let known = Known {
                    export: (export.id, export.key),
                    length: export.length,
                    asked: self.peers[usize::from(from)].asked,
                    flips: self.flips,
                };
                let repr = known.packet(&mut self.random);
                let due = self.peers[usize::from(from)].due;
                let (header, payload) = known.emit(&mut self.random, due, &repr);
                self.give(from, &header, &payload);
            }
            8..17 => {
                let from = self.random.below(2) as u16 * 2;
                let (message, bytes) = self.message(from);
                let times = if self.random.chance(2) { 300 } else { 1 };
                for _ in 0..times {
                    let (header, _) = message.emit(self.peers[usize::from(from)].due);
                    self.give(from, &header, &bytes);
                    if times > 1 {
                        self.transmit(1);
                    }
                }
            }
            17 | 18 if self.lossy => {
                let from = self.random.below(2) as u16 * 2;
                let bytes = self.peers[usize::from(from)].greeting(&mut self.random);
                let now_ns = self.now_ns;
                let _ = self.on(|node, _| node.handle_datagram(now_ns, NodeId(from), &bytes, BUFFER));
                self.drain(NodeId(from), &[]);
            }
            17..22 => {
                let most = self.random.below(20);
                self.transmit(most);
            }
            22 | 23 => self.pass_time(),
            24 if !self.lossy => self.confine(!self.is_confined),
            25 if self.random.chance(3) => {
                let (peer, now_ns) = (self.random.below(2) as u16 * 2, self.now_ns);
                self.on(|node, _| node.handle_peer_gone(now_ns, NodeId(peer)));
                self.drain(VICTIM, &[]);
            }
            26..29 => self.share(),
            _ => {
                self.confine(false);
                self.program();
            }
        }
        if self.is_confined {
            self.transmit(1_000);
        }
        self.check();
    }

    fn confine(&mut self, on: bool) {
        // What waits is transmitted before anything else happens. Over links a trace grows by that, also later.
        if self.lossy {
            self.on(|node, _| node.set_tracing(false));
        }
        self.transmit(1_000);
        self.is_confined = on;
        let now_ns = self.now_ns;
        self.on(|node, _| node.set_confined(on));
        if !on {
            self.on(|node, _| node.make_up(now_ns));
            self.drain(VICTIM, &[]);
        }
    }

    /// The node gets a packet of a peer.
    fn give(&mut self, from: u16, header: &Header, payload: &[u8]) {
        let peer = &mut self.peers[usize::from(from)];
        let datagram = self.lossy.then(|| peer.datagram(header, payload));
        if header.sequence.get() == peer.due {
            peer.due = peer.due.wrapping_add(1);
        }
        if self.is_confined && !self.node.may_take(header) {
            self.node.leave_for_later();
            self.confine(false);
        }
        let (from, now_ns) = (NodeId(from), self.now_ns);
        self.take(from, payload, |node| match &datagram {
            Some(bytes) => node.handle_datagram(now_ns, from, bytes, BUFFER),
            None => node.handle_packet(from, header, &payload, BUFFER),
        });
        self.take_early(from);
        if self.is_confined {
            self.transmit(1_000);
        }
    }

    /// The node takes what came before its turn.
    fn take_early(&mut self, from: NodeId) {
        while let Some(early) = self.node.poll_early(from) {
            self.node_bytes -= early.len() as i64;
            let packet = Packet::new_checked(&early[..]).expect("it was checked");
            let (header, payload) = (packet.header(), packet.payload());
            self.take(from, payload, |node| node.handle_packet(from, header, &payload, BUFFER));
        }
    }

    /// The node takes a packet, sooner or later.
    fn take(&mut self, from: NodeId, payload: &[u8], give: impl Fn(&mut Node<AnyDesign>) -> Verdict) {
        let mut tries = 0;
        while self.on(|node, _| give(node)) == Verdict::Wait {
            tries += 1;
            assert!(tries < 1_000, "a packet of {from} is never taken");
            if self.is_confined {
                self.node.leave_for_later();
                self.confine(false);
            }
            self.serve_misses();
        }
        self.drain(from, payload);
    }

    fn serve_misses(&mut self) {
        while self.on(|node, memory| node.serve_misses(memory, |_| {})) {}
    }

    /// Does what the node asks for, with the payload of the packet of `from` that it was given last.
    fn drain(&mut self, from: NodeId, payload: &[u8]) {
        while let Some(dma) = self.on(|node, _| node.poll_move()) {
            self.check_store(dma.process, &dma.piece);
            for piece in [dma.signal.map(|signal| signal.piece), dma.update.map(|update| update.piece)] {
                piece.inspect(|piece| self.check_store(dma.process, piece));
            }
            self.on(|node, _| node.handle_moved(&dma, 0));
        }
        let now_ns = self.now_ns;
        loop {
            let told = match payload.is_empty() {
                true => self.on(|node, _| node.poll_told(&NoPayload, || now_ns)),
                false => self.on(|node, _| node.poll_told(&payload, || now_ns)),
            };
            match told {
                Some(told) => self.hear(&told),
                None if self.on(|node, _| node.end_packet(from)) => {}
                None => break,
            }
        }
        while let Some(ask) = self.on(|node, _| node.poll_ask()) {
            self.obey(&ask);
        }
        if !self.is_confined {
            self.on(|node, memory| node.reclaim(memory, |_| {}));
        }
    }

    /// The node tells something.
    fn hear(&mut self, told: &Told) {
        match *told {
            Told::Done { process: FAIR, completion }
            | Told::Failed { process: FAIR, completion: Some(completion), .. } => {
                let pending = self.pending.remove(&completion);
                assert!(pending.is_some(), "word {completion} is not due: {told:?}");
            }
            Told::Done { process: WILD, .. } | Told::Failed { process: WILD, completion: Some(_), .. } => {
                self.told += 1
            }
            Told::PeerBroken { node, .. } | Told::PeerLeft { node } | Told::PeerSilent { node } => {
                assert!(node == VICTIM || self.node.is_gone(node), "{told:?}");
            }
            Told::PeerRestarted { node } => assert!(!self.node.is_gone(node)),
            _ => {}
        }
    }

    fn obey(&mut self, ask: &Ask) {
        match ask.act {
            Act::ImportOver { request } => {
                let request = (ask.process, request);
                assert!(self.asked.remove(&request), "{request:?} is not due");
                self.over.push(request);
            }
            Act::Protect { region, .. } => self.note_region(region),
            Act::Store { region, .. } => {
                self.note_region(region);
                let import = self.imports.first().map(|import| import.1);
                match (import, self.random.below(3)) {
                    (Some(import), 0) if !self.is_confined => self.on(|node, memory| {
                        let address = SEGMENT + region.offset;
                        let _ = node.store_by_import(ask.process, memory, import, address);
                    }),
                    (_, drawn) => self.on(|node, _| node.handle_stored(ask.process, drawn == 1)),
                }
            }
            Act::StoreChanges { region, .. } | Act::Fetch { region, .. } => {
                self.note_region(region);
                let is_over = self.random.chance(70);
                self.on(|node, _| node.handle_stored(ask.process, is_over));
            }
            Act::Change { .. } => {}
            Act::PassMemory { .. } | Act::GrantedApart { .. } | Act::Revoked { .. } | Act::Meet { .. } => {}
        }
    }

    /// A region lies within the shared memory.
    fn note_region(&mut self, region: mapwire_vmmc::service::Region) {
        let end = region.offset.checked_add(region.bytes).expect("it fits");
        assert!(region.view < messages::VIEWS && region.bytes > 0);
        assert!(end <= u64::from(messages::PAGES) * 4096, "{region:?}");
        let minipage = Minipage { view: region.view, offset_bytes: region.offset, length_bytes: region.bytes };
        if self.minipages.len() < 20 && !self.minipages.contains(&minipage) {
            self.minipages.push(minipage);
        }
    }

    /// The transport takes packets, or datagrams, at most so many.
    fn transmit(&mut self, most: u64) {
        for _ in 0..most {
            let sent = match self.lossy {
                true => self.transmit_datagram(),
                false => self.transmit_packet(),
            };
            if !sent {
                break;
            }
            self.drain(VICTIM, &[]);
        }
        if self.random.chance(50) {
            self.on(|node, _| node.retry_blocked());
        }
        if !self.is_confined {
            self.serve_misses();
        }
    }

    /// What the node gives to be sent is the transport's.
    fn given(&mut self, bytes: i64, source: &Source) {
        let cloned = match source {
            Source::Message(message) => message.len() as i64,
            _ => 0,
        };
        self.node_bytes += allocations::bytes() - bytes - cloned;
    }

    fn transmit_packet(&mut self) -> bool {
        let bytes = allocations::bytes();
        let Some(packet) = self.node.poll_transmit() else {
            return false;
        };
        let (to, header, source) = (packet.to, packet.header, packet.source.clone());
        self.given(bytes, &source);
        // A confined node leaves it to others to forget a peer.
        let may_go = self.is_confined || !self.node.is_gone(to);
        assert!(may_go, "sent to {to}, which is gone");
        let payload = self.read(&source);
        if self.random.chance(10) {
            self.on(|node, _| node.handle_transmit_blocked(to));
            return true;
        }
        self.on(|node, _| node.handle_transmitted(to));
        match to {
            VICTIM if self.is_confined && !self.node.may_take(&header) => self.confine(false),
            _ => {}
        }
        match to {
            VICTIM => self.take(to, &payload, |node| node.handle_packet(to, &header, &&payload[..], BUFFER)),
            _ => self.peers[usize::from(to.0)].learn(&header, &payload),
        }
        true
    }

    fn transmit_datagram(&mut self) -> bool {
        let bytes = allocations::bytes();
        let Some(Datagram { to, header, body }) = self.node.poll_datagram(self.now_ns) else {
            return false;
        };
        let mut datagram = header.emit().to_vec();
        let mut ack_bytes = [0; MAX_ACK_BYTES];
        match body {
            DatagramBody::None => {}
            DatagramBody::Ack(ack) => {
                let length = ack.emit(&mut ack_bytes);
                datagram.extend_from_slice(&ack_bytes[..length]);
            }
            DatagramBody::Packet(packet) => {
                let (packet, source) = (packet.header, packet.source.clone());
                self.given(bytes + datagram.capacity() as i64, &source);
                assert!(!self.node.is_gone(to), "sent to {to}, which is gone");
                let payload = self.read(&source);
                self.peers[usize::from(to.0)].learn(&packet, &payload);
                let packet: [u8; HEADER_BYTES] = zerocopy::transmute!(packet);
                datagram.extend_from_slice(&packet);
                datagram.extend_from_slice(&payload);
            }
        }
        if to != VICTIM {
            self.answer(to.0, &header);
        } else if self.random.chance(90) {
            let now_ns = self.now_ns;
            let payload = datagram.get(LINK_HEADER_BYTES + HEADER_BYTES..);
            self.take(to, payload.unwrap_or_default(), |node| node.handle_datagram(now_ns, to, &datagram, BUFFER));
            self.take_early(to);
        }
        true
    }

    /// A peer sees the header of a datagram.
    fn answer(&mut self, peer: u16, link: &LinkHeader) {
        let known = &mut self.peers[usize::from(peer)];
        known.of_node = link.epoch;
        match link.kind {
            LinkKind::Hello if self.random.chance(80) => {
                let mut welcome = known.link_header(LinkKind::Welcome);
                (welcome.number, welcome.expected, welcome.sequence) = (link.number, 0, 0);
                let (bytes, now_ns) = (welcome.emit(), self.now_ns);
                let _ = self.on(|node, _| node.handle_datagram(now_ns, NodeId(peer), &bytes, BUFFER));
            }
            LinkKind::Hello | LinkKind::Welcome => {}
            LinkKind::Data | LinkKind::Ack | LinkKind::Again => {
                known.due = link.expected;
                if link.kind == LinkKind::Data && link.sequence == known.expected {
                    known.expected = known.expected.wrapping_add(1);
                }
            }
        }
    }

    /// The transport reads what a packet carries; what is in memory is not looked at.
    fn read(&self, source: &Source) -> Vec<u8> {
        match source {
            Source::Inline { bytes, length } => bytes[..usize::from(*length)].to_vec(),
            Source::Message(bytes) => bytes.to_vec(),
            Source::Memory { process, piece, trailer, .. } => {
                for (address, bytes) in self.memory.parts(*process, piece, *process == FAIR) {
                    let is_fair = *process != FAIR || self.may_read(address, bytes);
                    assert!(is_fair, "{bytes} bytes at {address:#x} were read");
                }
                let mut bytes = vec![0; piece.length as usize];
                bytes.extend(trailer.iter().flatten());
                bytes
            }
        }
    }

    fn may_read(&self, address: u64, bytes: u64) -> bool {
        let within = |start: u64, length: u64| address >= start && address + bytes <= start + length;
        within(SEGMENT, u64::from(messages::PAGES) * 4096)
            || self.pending.values().any(|(start, length)| within(*start, *length))
            || self.is_exported(address, bytes, Rights::FETCH)
    }

    /// Whether the fair program exports the bytes with this right.
    fn is_exported(&self, address: u64, bytes: u64, right: Rights) -> bool {
        let within = |start: u64, length: u64| address >= start && address + bytes <= start + length;
        let mut exports = self.exports.iter();
        exports.any(|export| {
            let mut landings = export.landings.iter();
            export.process == FAIR
                && export.rights.contains(right)
                && (within(export.address, export.length) || landings.any(|landing| within(*landing, export.length)))
        })
    }

    /// Something is stored: in an export, or in the buffer of a command under way.
    fn check_store(&self, process: ProcessId, piece: &Piece) {
        for (address, bytes) in self.memory.parts(process, piece, true) {
            let mut buffers = self.pending.values();
            let is_due = process != FAIR
                || self.is_exported(address, bytes, Rights::STORE)
                || buffers.any(|(start, length)| address >= *start && address + bytes <= start + length.max(&8));
            assert!(is_due, "{bytes} bytes at {address:#x} were stored");
        }
    }

    /// What must hold at every moment.
    fn check(&self) {
        assert!(self.told <= self.written, "a command was told of twice");
        for process in [FAIR, WILD] {
            let pinned = self.node.page_counters(process).pinned_pages;
            assert_eq!(pinned, self.memory.pinned(process), "pages of {process}");
        }
        for export in &self.exports {
            let holders = self.node.holders(export.process, export.id);
            assert!(holders <= MOST_HOLDERS, "{holders} holders of {}", export.id);
        }
        let used = self.node.nic().memory().used_bytes();
        assert!(used <= NIC_BYTES, "{used} bytes of NIC memory are taken");
        let bytes = self.node_bytes;
        assert!(bytes <= NODE_BYTES, "the node has grown by {bytes} bytes");
    }

    /// Peers go, and all that is under way ends.
    pub(crate) fn finish(mut self) {
        self.confine(false);
        self.memory.refusals = 0;
        for peer in [0, 2] {
            let now_ns = self.now_ns;
            self.on(|node, _| node.handle_peer_gone(now_ns, NodeId(peer)));
            self.drain(VICTIM, &[]);
        }
        for _ in 0..200 {
            self.on(|node, _| node.retry_blocked());
            self.transmit(100);
            self.now_ns += 1 << 30;
            let now_ns = self.now_ns;
            self.on(|node, _| node.handle_time(now_ns));
            self.drain(VICTIM, &[]);
        }
        self.check();
        assert!(self.pending.is_empty(), "never told: {:?}", self.pending);
        assert!(self.asked.is_empty(), "never answered: {:?}", self.asked);
        while let Some(export) = self.exports.pop() {
            self.on(|node, _| node.unexport(export.process, export.id).unwrap());
        }
        // No transfer holds a page any more: as many others as are allowed can be pinned.
        if let PinLimit::Pages(pages) = self.limit.limit {
            let bytes = pages * 4096;
            let range = mapwire_translation::PageRange::covering(0x4000_0000, bytes).unwrap();
            let held = self.on(|node, memory| node.hold(FAIR, memory, 0, range).is_ok());
            assert!(held, "{pages} pages cannot be pinned: others are held");
        }
    }
}
