//! Nodes with frames whose contents are numbers, and a network that keeps the order of each pair only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mapwire_gms::{
    Config, FRAME_BYTES, GetPage, Gms, MAX_MESSAGE_BYTES, Message, NodeSet, Outcome, PageName,
    PutPage, SpaceId,
};
use mapwire_service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

use crate::random::Random;

/// What a seed decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: u16,
    /// Of them, those that are members at the start.
    pub(crate) members: u16,
    pub(crate) pool_frames: u32,
    pub(crate) pages: u64,
    pub(crate) shared_pages: u64,
    pub(crate) directory_bytes: usize,
    pub(crate) steps: u32,
    /// Deaths, at most.
    pub(crate) crashes: u32,
    /// Of 100 steps, those in which a message is delivered.
    pub(crate) deliver_percent: u64,
    pub(crate) on_disk_percent: u64,
    /// Stores land as they are asked for, rather than in order with messages.
    pub(crate) is_mapped: bool,
    /// Nodes join and leave.
    pub(crate) moves: bool,
    pub(crate) epoch_ms: u32,
}

impl Shape {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let nodes = 2 + random.below(6) as u16;
        Self {
            nodes,
            members: 1 + random.below(u64::from(nodes)) as u16,
            pool_frames: [4, 16, 64][random.below(3) as usize],
            pages: 1 + random.below(12),
            shared_pages: 1 + random.below(6),
            directory_bytes: [256, 2048, 1 << 16][random.below(3) as usize],
            steps: 400 + random.below(1200) as u32,
            crashes: [0, 0, 1, 3][random.below(4) as usize],
            deliver_percent: [40, 70, 90][random.below(3) as usize],
            on_disk_percent: [0, 50, 100][random.below(3) as usize],
            is_mapped: random.chance(50),
            moves: random.chance(60),
            epoch_ms: [1, 20, 5_000][random.below(3) as usize],
        }
    }
}

/// What happened, so that a test that shows nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) pages: u64,
    pub(crate) here: u64,
    pub(crate) absent: u64,
    pub(crate) stored: u64,
    pub(crate) stored_twice: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    pub(crate) shrunk: u64,
    pub(crate) joined: u64,
    pub(crate) left: u64,
    pub(crate) crashed: u64,
    pub(crate) moved: u64,
    pub(crate) epochs: u64,
    pub(crate) maps: u64,
}

impl Seen {
    fn counts(&self) -> [u64; 14] {
        [
            self.pages,
            self.here,
            self.absent,
            self.stored,
            self.stored_twice,
            self.refused,
            self.dropped,
            self.shrunk,
            self.joined,
            self.left,
            self.crashed,
            self.moved,
            self.epochs,
            self.maps,
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums = self.counts();
        let mut sums = sums.iter().zip(other.counts()).map(|(a, b)| a + b);
        let mut next = || sums.next().unwrap();
        *self = Self {
            pages: next(),
            here: next(),
            absent: next(),
            stored: next(),
            stored_twice: next(),
            refused: next(),
            dropped: next(),
            shrunk: next(),
            joined: next(),
            left: next(),
            crashed: next(),
            moved: next(),
            epochs: next(),
            maps: next(),
        };
    }

    /// All of it happened.
    pub(crate) fn check(&self) {
        assert!(self.counts().iter().all(|&count| count > 0), "{self:?}");
    }
}

/// What an operation of a program is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Get {
        name: PageName,
        frame: u32,
        keep: bool,
    },
    Put {
        name: PageName,
        frame: u32,
        version: u32,
        on_disk: bool,
    },
}

enum Packet {
    Contents {
        frame: usize,
        contents: u64,
    },
    /// Contents of the sender's frame that its network interface reads as late as it may.
    LateContents {
        frame: usize,
        from: usize,
    },
    Message(Vec<u8>),
    /// The sender is dead.
    Gone(NodeId),
}

pub(crate) struct Host {
    pub(crate) gms: Gms,
    pub(crate) memory: Vec<u64>,
    pub(crate) operations: BTreeMap<u64, Operation>,
    /// Frames of the program that no operation uses.
    pub(crate) spare: Vec<u32>,
    pub(crate) is_dead: bool,
    pub(crate) is_leaving: bool,
    pub(crate) has_joined: bool,
    pub(crate) told_gone: BTreeSet<NodeId>,
}

/// What is known of a page, across all nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Truth {
    /// Newest version that was written.
    pub(crate) version: u32,
    /// It was stored, not on disk, and nothing has happened since that could lose it.
    pub(crate) must_be_there: bool,
    /// An operation of the owner is under way.
    pub(crate) is_busy: bool,
    /// The newest version that was discarded.
    pub(crate) discarded: u32,
}

pub(crate) struct Cluster {
    pub(crate) shape: Shape,
    pub(crate) hosts: Vec<Host>,
    network: BTreeMap<(NodeId, NodeId), VecDeque<Packet>>,
    pub(crate) truths: BTreeMap<PageName, Truth>,
    random: Random,
    pub(crate) now_ns: u64,
    pub(crate) steps: u64,
    tag: u64,
    crashes: u32,
    pub(crate) seen: Seen,
}

/// Frames that a program uses.
const OWN_FRAMES: u32 = 8;

/// What a frame holds with this version of a page.
pub(crate) fn contents(name: PageName, version: u32) -> u64 {
    name.space ^ name.page.rotate_left(32) ^ u64::from(version).rotate_left(16)
}

fn checksum(contents: u64) -> u32 {
    (contents ^ (contents >> 32)) as u32
}

impl Cluster {
    pub(crate) fn new(shape: Shape, mut random: Random) -> Self {
        let members: NodeSet = (0..shape.members).map(NodeId).collect();
        let host = |node: u16| {
            let config = Config {
                directory_bytes: shape.directory_bytes,
                row_size: mapwire_gms::RowSize::Eight,
                requests: 4,
                epoch_ms: shape.epoch_ms,
                nodes: (0..shape.nodes).map(NodeId).collect(),
                ..Config::new(
                    NodeId(node),
                    members,
                    OWN_FRAMES + shape.pool_frames,
                    shape.pool_frames,
                )
            };
            Host {
                gms: Gms::new(config).unwrap(),
                memory: vec![0; (OWN_FRAMES + shape.pool_frames) as usize],
                operations: BTreeMap::new(),
                spare: (0..OWN_FRAMES).collect(),
                is_dead: false,
                is_leaving: false,
                has_joined: node < shape.members,
                told_gone: BTreeSet::new(),
            }
        };
        let mut cluster = Self {
            shape,
            hosts: (0..shape.nodes).map(host).collect(),
            network: BTreeMap::new(),
            truths: BTreeMap::new(),
            now_ns: 1 + random.below(1_000_000),
            random,
            steps: 0,
            tag: 0,
            crashes: 0,
            seen: Seen::default(),
        };
        for node in 0..shape.nodes {
            if cluster.random.chance(80) {
                cluster.donate(node);
            }
        }
        cluster
    }

    /// Random operations, then quiet: everything under way must end, and everything must fit together.
    pub(crate) fn run(&mut self) {
        for _ in 0..self.shape.steps {
            self.steps += 1;
            self.now_ns += self.random.below(200_000);
            if self.random.chance(self.shape.deliver_percent) {
                self.deliver_any();
            } else {
                self.act();
            }
            if self.random.chance(10) {
                self.tick();
            }
        }
        self.calm();
        self.check();
        self.read_all();
        self.calm();
        self.check();
        for host in &self.hosts {
            let counters = host.gms.counters();
            self.seen.moved += counters.moved;
            self.seen.epochs += counters.epochs;
            self.seen.maps += counters.maps;
        }
    }

    /// Delivers all, and lets time pass a few times: epochs go on for ever, all else must end.
    fn calm(&mut self) {
        self.deliver_all();
        for _ in 0..20 {
            self.now_ns += 30_000_000;
            self.tick();
            self.deliver_all();
        }
    }

    fn deliver_all(&mut self) {
        for _ in 0..100_000 {
            self.steps += 1;
            if !self.deliver_any() {
                return;
            }
        }
        for host in self.hosts.iter().filter(|host| !host.is_dead) {
            let sent = host.gms.counters().messages;
            let kinds = (1..).zip(&sent[1..]).filter(|&(_, &count)| count > 0);
            let names = kinds.map(|(kind, count)| (Message::kind_name(kind), count));
            println!(
                "{}: {:?}",
                host.gms.config().node,
                names.collect::<Vec<_>>()
            );
        }
        panic!("messages go on for ever");
    }

    fn deliver_any(&mut self) -> bool {
        let ready = self
            .network
            .iter()
            .filter(|(_, packets)| !packets.is_empty());
        let ready: Vec<_> = ready.map(|(&pair, _)| pair).collect();
        if ready.is_empty() {
            return false;
        }
        let (from, to) = ready[self.random.below(ready.len() as u64) as usize];
        let packet = self
            .network
            .get_mut(&(from, to))
            .and_then(VecDeque::pop_front);
        let host = &mut self.hosts[usize::from(to.0)];
        if host.is_dead {
            return true;
        }
        match packet {
            None => {}
            Some(Packet::Contents { frame, contents }) => host.memory[frame] = contents,
            Some(Packet::LateContents { frame, from: place }) => {
                let contents = self.hosts[usize::from(from.0)].memory[place];
                self.hosts[usize::from(to.0)].memory[frame] = contents;
            }
            Some(Packet::Gone(node)) => {
                host.told_gone.insert(node);
                host.gms.handle_peer_gone(self.now_ns, node);
                self.drain(to);
            }
            Some(Packet::Message(bytes)) => {
                let taken = host
                    .gms
                    .handle_message(self.now_ns, Endpoint::first_of(from), &bytes);
                assert_eq!(taken, Ok(()), "{to} blames {from} for {bytes:?}");
                self.drain(to);
            }
        }
        true
    }

    fn tick(&mut self) {
        for node in 0..self.shape.nodes {
            let host = &mut self.hosts[usize::from(node)];
            let is_due = host.gms.poll_at().is_some_and(|at_ns| at_ns <= self.now_ns);
            if is_due && !host.is_dead {
                host.gms.handle_time(self.now_ns);
                self.drain(NodeId(node));
            }
        }
    }

    /// Carries out what a node asks for, and tells its program how operations ended.
    fn drain(&mut self, node: NodeId) {
        loop {
            let host = &mut self.hosts[usize::from(node.0)];
            let (to, message, stored) = match host.gms.poll_action() {
                None => break,
                Some(Action::Send { to, message }) => (to, message.to_vec(), None),
                Some(Action::Store {
                    to,
                    region,
                    at,
                    message,
                }) => {
                    assert_eq!((region.bytes, at % FRAME_BYTES), (FRAME_BYTES, 0));
                    let from = (region.offset / FRAME_BYTES) as usize;
                    let frame = (at / FRAME_BYTES) as usize;
                    let contents = host.memory[from];
                    (to, message.to_vec(), Some((from, frame, contents)))
                }
                Some(other) => panic!("{other:?}"),
            };
            assert!(to.node != node && message.len() <= MAX_MESSAGE_BYTES);
            if let Some((from, frame, contents)) = stored {
                if self.shape.is_mapped {
                    let peer = &mut self.hosts[usize::from(to.node.0)];
                    if !peer.told_gone.contains(&node) {
                        peer.memory[frame] = contents;
                    }
                } else if self.random.chance(50) {
                    self.send(node, to.node, Packet::LateContents { frame, from });
                } else {
                    self.send(node, to.node, Packet::Contents { frame, contents });
                }
            }
            self.send(node, to.node, Packet::Message(message));
        }
        while let Some(outcome) = self.hosts[usize::from(node.0)].gms.poll_outcome() {
            self.hear(node, outcome);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, packet: Packet) {
        self.network
            .entry((from, to))
            .or_default()
            .push_back(packet);
    }

    fn donate(&mut self, node: u16) {
        let frames = self.random.below(u64::from(self.shape.pool_frames) + 1) as u32;
        if self.hosts[usize::from(node)]
            .gms
            .donate(self.now_ns, frames)
            .is_ok()
        {
            self.drain(NodeId(node));
        }
    }

    /// A program does something, or a node joins, leaves or dies.
    fn act(&mut self) {
        let node = NodeId(self.random.below(u64::from(self.shape.nodes)) as u16);
        let at = usize::from(node.0);
        if self.hosts[at].is_dead {
            return;
        }
        match self.random.below(100) {
            0..=39 => self.put(node),
            40..=79 => self.get(node),
            80..=84 => self.discard(node),
            85..=92 if self.random.chance(40) => self.donate(node.0),
            93..=95 if self.shape.moves => self.join_or_leave(node),
            96 if self.crashes < self.shape.crashes => self.crash(node),
            _ => {}
        }
        self.drain(node);
    }

    fn join_or_leave(&mut self, node: NodeId) {
        let host = &mut self.hosts[usize::from(node.0)];
        if !host.has_joined {
            host.has_joined = host.gms.join(self.now_ns).is_ok();
        } else if self.random.chance(20) && host.gms.map().members().contains(node) {
            host.is_leaving |= host.gms.leave(self.now_ns).is_ok();
        }
    }

    /// The node is dead at once. What it has sent arrives, or is lost from some point on; then its peers hear of it.
    fn crash(&mut self, node: NodeId) {
        self.crashes += 1;
        self.seen.crashed += 1;
        self.hosts[usize::from(node.0)].is_dead = true;
        for peer in (0..self.shape.nodes)
            .map(NodeId)
            .filter(|&peer| peer != node)
        {
            let packets = self.network.entry((node, peer)).or_default();
            let left = self.random.below(packets.len() as u64 + 1) as usize;
            packets.truncate(left);
            packets.push_back(Packet::Gone(node));
        }
        // Pages may be lost with it.
        self.truths
            .values_mut()
            .for_each(|truth| truth.must_be_there = false);
    }

    /// A page that belongs to a node, or one that all share.
    fn choose(&mut self, node: NodeId) -> PageName {
        let shared = SpaceId::File {
            device: 1,
            inode: 2,
            generation: 3,
        };
        if self.random.chance(30) {
            PageName::new(&shared, self.random.below(self.shape.shared_pages))
        } else {
            own_page(node, self.random.below(self.shape.pages))
        }
    }

    fn put(&mut self, node: NodeId) {
        let name = self.choose(node);
        let is_own = is_own(node, name);
        let truth = self.truths.entry(name).or_default();
        if is_own && truth.is_busy {
            return;
        }
        let host = &mut self.hosts[usize::from(node.0)];
        let Some(frame) = host.spare.pop() else {
            return;
        };
        // A private page is written before it is put; a shared one is as it is on disk.
        let version = if is_own { truth.version + 1 } else { 1 };
        let on_disk = !is_own || self.random.chance(self.shape.on_disk_percent);
        let contents = contents(name, version);
        host.memory[frame as usize] = contents;
        let tag = self.tag + 1;
        let put = PutPage {
            name,
            version,
            frame,
            tag,
            checksum: checksum(contents),
            age_ms: self.random.below(100) as u32,
            on_disk,
            copies: 1 + self.random.below(2) as u8,
            to: None,
        };
        if host.gms.put(self.now_ns, put).is_err() {
            host.spare.push(frame);
            return;
        }
        let operation = Operation::Put {
            name,
            frame,
            version,
            on_disk,
        };
        host.operations.insert(tag, operation);
        truth.version = version;
        truth.is_busy |= is_own;
        truth.must_be_there = false;
        self.tag = tag;
    }

    fn get(&mut self, node: NodeId) {
        let name = self.choose(node);
        self.get_page(node, name, None);
    }

    pub(crate) fn get_page(&mut self, node: NodeId, name: PageName, keep: Option<bool>) {
        let is_own = is_own(node, name);
        let truth = self.truths.entry(name).or_default();
        let host = &mut self.hosts[usize::from(node.0)];
        if is_own && truth.is_busy {
            return;
        }
        let Some(frame) = host.spare.pop() else {
            return;
        };
        let keep = keep.unwrap_or_else(|| self.random.chance(50));
        let tag = self.tag + 1;
        let get = GetPage {
            name,
            frame,
            tag,
            keep,
        };
        if host.gms.get(self.now_ns, get).is_err() {
            host.spare.push(frame);
            return;
        }
        host.operations
            .insert(tag, Operation::Get { name, frame, keep });
        truth.is_busy |= is_own;
        self.tag = tag;
    }

    fn discard(&mut self, node: NodeId) {
        let name = self.choose(node);
        let truth = self.truths.entry(name).or_default();
        if is_own(node, name)
            && self.hosts[usize::from(node.0)]
                .gms
                .discard(self.now_ns, name, truth.version)
                .is_ok()
        {
            truth.must_be_there = false;
            truth.discarded = truth.version;
        }
    }

    /// A program hears how an operation ended.
    fn hear(&mut self, node: NodeId, outcome: Outcome) {
        let at = usize::from(node.0);
        let (tag, read) = match outcome {
            Outcome::Page {
                tag,
                frame,
                version,
                checksum,
                ..
            } => {
                self.seen.pages += 1;
                (tag, Some((frame, version, checksum)))
            }
            Outcome::Here {
                tag,
                frame,
                version,
                checksum,
                ..
            } => {
                self.seen.here += 1;
                (tag, Some((frame, version, checksum)))
            }
            Outcome::Absent { tag } => (tag, None),
            Outcome::Stored { tag, copies } => {
                self.seen.stored += 1;
                self.seen.stored_twice += u64::from(copies == 2);
                (tag, None)
            }
            Outcome::Refused { tag, .. } => {
                self.seen.refused += 1;
                (tag, None)
            }
            Outcome::Dropped { tag } => {
                self.seen.dropped += 1;
                (tag, None)
            }
            Outcome::Shrunk { serving } => {
                self.seen.shrunk += 1;
                assert!(serving <= self.shape.pool_frames);
                return;
            }
            Outcome::Joined => {
                self.seen.joined += 1;
                return;
            }
            Outcome::Left => {
                self.seen.left += 1;
                self.hosts[at].is_leaving = false;
                self.hosts[at].has_joined = false;
                assert_eq!(self.hosts[at].gms.pages().count(), 0);
                return;
            }
        };
        let host = &mut self.hosts[at];
        let operation = host.operations.remove(&tag).expect("it ended once already");
        match operation {
            Operation::Get { name, frame, keep } => {
                host.spare.push(frame);
                let truth = self.truths.get_mut(&name).unwrap();
                truth.is_busy &= !is_own(node, name);
                if let Some((place, version, sum)) = read {
                    let is = host.memory[place as usize];
                    assert_eq!(is, contents(name, version), "{node} reads other bytes");
                    assert_eq!(sum, checksum(is));
                    if is_own(node, name) {
                        // A directory node that dies may take the last word about a discarded version with it.
                        let is_old = version < truth.version && self.crashes == 0;
                        assert!(!is_old, "{node} reads version {version} of {name:?}");
                        assert!(version <= truth.version);
                    }
                    if !keep {
                        truth.must_be_there = false;
                    }
                    if place != frame {
                        let _ = host.gms.copied(self.now_ns, tag);
                        self.drain(node);
                    }
                } else {
                    self.seen.absent += 1;
                    assert!(
                        !truth.must_be_there,
                        "{node}: {name:?} was stored and is absent"
                    );
                }
            }
            Operation::Put {
                name,
                frame,
                version,
                on_disk,
            } => {
                host.spare.push(frame);
                // The frame is used for something else at once.
                host.memory[frame as usize] = u64::MAX;
                if is_own(node, name) {
                    let truth = self.truths.get_mut(&name).unwrap();
                    truth.is_busy = false;
                    let is_stored = matches!(outcome, Outcome::Stored { .. });
                    let is_safe =
                        self.shape.crashes == 0 && !on_disk && self.shape.directory_bytes > 2048;
                    truth.must_be_there = is_stored && is_safe && truth.discarded < version;
                }
            }
        }
    }

    /// Every owner reads its pages.
    fn read_all(&mut self) {
        for node in (0..self.shape.nodes).map(NodeId) {
            if self.hosts[usize::from(node.0)].is_dead {
                continue;
            }
            for page in 0..self.shape.pages {
                self.get_page(node, own_page(node, page), Some(true));
                self.drain(node);
                self.deliver_all();
            }
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.network.values().all(VecDeque::is_empty)
    }
}

fn own_page(node: NodeId, page: u64) -> PageName {
    let space = SpaceId::Anonymous {
        node: node.0,
        incarnation: 1,
        region: 0,
    };
    PageName::new(&space, page)
}

/// Whether a page belongs to this node alone.
pub(crate) fn is_own(node: NodeId, name: PageName) -> bool {
    own_page(node, name.page) == name
}
