//! Nodes with frames whose contents are numbers, and a network that keeps the order of each pair only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mapwire_gms::{Config, FRAME_BYTES, Gms, MAX_MESSAGE_BYTES, Message, NodeSet, PageName, SpaceId};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

use crate::random::Random;
use crate::shape::{Seen, Shape};

/// What an operation of a program is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Get { name: PageName, frame: u32, keep: bool },
    Put { name: PageName, frame: u32, version: u32, on_disk: bool },
}

pub(crate) enum Packet {
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
    pub(crate) network: BTreeMap<(NodeId, NodeId), VecDeque<Packet>>,
    pub(crate) truths: BTreeMap<PageName, Truth>,
    pub(crate) random: Random,
    pub(crate) now_ns: u64,
    pub(crate) steps: u64,
    pub(crate) tag: u64,
    pub(crate) crashes: u32,
    pub(crate) seen: Seen,
}

/// Frames that a program uses.
const OWN_FRAMES: u32 = 8;

/// What a frame holds with this version of a page.
pub(crate) fn contents(name: PageName, version: u32) -> u64 {
    name.space ^ name.page.rotate_left(32) ^ u64::from(version).rotate_left(16)
}

pub(crate) fn checksum(contents: u64) -> u32 {
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
                ..Config::new(NodeId(node), members, OWN_FRAMES + shape.pool_frames, shape.pool_frames)
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

    pub(crate) fn deliver_all(&mut self) {
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
            println!("{}: {:?}", host.gms.config().node, names.collect::<Vec<_>>());
        }
        panic!("messages go on for ever");
    }

    fn deliver_any(&mut self) -> bool {
        let ready = self.network.iter().filter(|(_, packets)| !packets.is_empty());
        let ready: Vec<_> = ready.map(|(&pair, _)| pair).collect();
        if ready.is_empty() {
            return false;
        }
        let (from, to) = ready[self.random.below(ready.len() as u64) as usize];
        let packet = self.network.get_mut(&(from, to)).and_then(VecDeque::pop_front);
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
                let taken = host.gms.handle_message(self.now_ns, Endpoint::first_of(from), &bytes);
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
    pub(crate) fn drain(&mut self, node: NodeId) {
        loop {
            let host = &mut self.hosts[usize::from(node.0)];
            let (to, message, stored) = match host.gms.poll_action() {
                None => break,
                Some(Action::Send { to, message }) => (to, message.to_vec(), None),
                Some(Action::Store { to, region, at, message }) => {
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
        self.network.entry((from, to)).or_default().push_back(packet);
    }

    pub(crate) fn donate(&mut self, node: u16) {
        let frames = self.random.below(u64::from(self.shape.pool_frames) + 1) as u32;
        if self.hosts[usize::from(node)].gms.donate(self.now_ns, frames).is_ok() {
            self.drain(NodeId(node));
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.network.values().all(VecDeque::is_empty)
    }
}

pub(crate) fn own_page(node: NodeId, page: u64) -> PageName {
    let space = SpaceId::Anonymous { node: node.0, incarnation: 1, region: 0 };
    PageName::new(&space, page)
}

/// Whether a page belongs to this node alone.
pub(crate) fn is_own(node: NodeId, name: PageName) -> bool {
    own_page(node, name.page) == name
}
