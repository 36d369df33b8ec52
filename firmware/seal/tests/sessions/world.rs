//! Two nodes and a network between them that loses, repeats, delays, reorders, changes and forges. Whatever happens, each sealed datagram
//! opens once or never, unchanged, and only at its receiver.

use std::collections::HashMap;

use mapwire_seal::{
    Config, Destination, JobSecret, NotReady, Opened, PublicKey, Rotation, SEALED_BACK_BYTES, SEALED_FRONT_BYTES,
    Sessions, StaticKey,
};
use mapwire_wire::NodeId;

#[path = "../../../../tests/random.rs"]
mod random;

pub(crate) use random::Random;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
/// Most memory that a node of two needs, whatever is sent to it.
const MOST_BYTES: usize = 40_000;
/// Most datagrams kept for replays.
const MOST_CAPTURED: usize = 2_000;

/// A datagram under way.
struct Flight {
    arrives_ns: u64,
    /// The sender's address.
    from: Vec<u8>,
    to: usize,
    bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) nodes: [Sessions; 2],
    pub(crate) random: Random,
    /// Source of the nodes' entropy: fixed, whatever the other choices.
    entropy: Random,
    contents: Random,
    keys: [StaticKey; 2],
    rotation: Rotation,
    flights: Vec<Flight>,
    captured: Vec<(usize, Vec<u8>)>,
    /// Sender of each payload, and how often it was opened.
    payloads: HashMap<Vec<u8>, (usize, u32)>,
    /// Lost datagrams, in percent.
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) most_delay_ns: u64,
    /// Type and destination node of datagrams that are all lost.
    pub(crate) blocked: Option<(usize, u8)>,
    pub(crate) opened: u64,
    /// Every datagram takes all of them.
    pub(crate) paths: usize,
}

pub(crate) fn address(node: usize) -> Vec<u8> {
    address_of_path(node, 0)
}

fn address_of_path(node: usize, path: usize) -> Vec<u8> {
    vec![10, path as u8, 0, node as u8, 0, 99]
}

pub(crate) fn key(random: &mut Random) -> StaticKey {
    let mut bytes = [0; 32];
    fill(random, &mut bytes);
    StaticKey::new(bytes)
}

pub(crate) fn fill(random: &mut Random, bytes: &mut [u8]) {
    bytes.fill_with(|| random.byte());
}

pub(crate) fn config(me: u16, key: StaticKey, rotation: Rotation) -> Config {
    Config { me: NodeId(me), nodes: 2, job: 77, secret: JobSecret::new([9; 32]), key, rotation }
}

impl World {
    pub(crate) fn new(random: Random, rotation: Rotation) -> Self {
        let mut entropy = Random::new(4711);
        let keys = [key(&mut entropy), key(&mut entropy)];
        let node = |me: usize, entropy: &mut Random| {
            let config = config(me as u16, keys[me].clone(), rotation);
            let mut node = Sessions::new(config, &mut |bytes| fill(entropy, bytes));
            node.set_peer(NodeId(1 - me as u16), keys[1 - me].public());
            node
        };
        Self {
            now_ns: 1,
            nodes: [node(0, &mut entropy), node(1, &mut entropy)],
            random,
            entropy,
            contents: Random::new(1147),
            rotation,
            keys,
            flights: Vec::new(),
            captured: Vec::new(),
            payloads: HashMap::new(),
            loss: 0,
            duplication: 0,
            most_delay_ns: MS / 10,
            blocked: None,
            opened: 0,
            paths: 1,
        }
    }

    pub(crate) fn is_ready(&self, node: usize) -> bool {
        self.nodes[node].is_ready(self.now_ns, NodeId(1 - node as u16))
    }

    pub(crate) fn public(&self, node: usize) -> PublicKey {
        self.keys[node].public()
    }

    /// Seals a new payload at `node` and transmits it, or requests a session.
    pub(crate) fn send(&mut self, node: usize) -> Result<(), NotReady> {
        let length = self.random.within(8, 90) as usize;
        let mut payload = vec![0; length];
        fill(&mut self.contents, &mut payload);
        let serial = self.payloads.len() as u64;
        payload[..8].copy_from_slice(&serial.to_le_bytes());
        let mut datagram = vec![0; SEALED_FRONT_BYTES];
        datagram.extend(&payload);
        datagram.extend([0; SEALED_BACK_BYTES]);
        let before = datagram.clone();
        let to = NodeId(1 - node as u16);
        let sealed = self.nodes[node].seal(self.now_ns, to, &mut datagram);
        match sealed {
            Ok(()) => {
                assert_ne!(datagram[SEALED_FRONT_BYTES..][..length], payload);
                self.payloads.insert(payload, (node, 0));
                self.fly(address(node), 1 - node, datagram);
            }
            Err(_) => assert_eq!(datagram, before, "nothing is written"),
        }
        self.drain(node);
        sealed
    }

    /// Transmits a datagram, which the network may lose or repeat.
    fn fly(&mut self, from: Vec<u8>, to: usize, bytes: Vec<u8>) {
        if self.captured.len() < MOST_CAPTURED {
            self.captured.push((to, bytes.clone()));
        }
        if self.random.chance(self.loss) || self.blocked == Some((to, bytes[0])) {
            return;
        }
        let copies = 1 + usize::from(self.random.chance(self.duplication));
        for _ in 0..copies {
            let delay_ns = self.random.within(1, self.most_delay_ns);
            self.flights.push(Flight {
                arrives_ns: self.now_ns + delay_ns,
                from: from.clone(),
                to,
                bytes: bytes.clone(),
            });
        }
    }

    /// Transmits what a node has to send.
    fn drain(&mut self, node: usize) {
        let entropy = &mut self.entropy;
        let mut out = Vec::new();
        while let Some(transmit) = self.nodes[node].poll_transmit(self.now_ns, &mut |bytes| fill(entropy, bytes)) {
            match transmit.to() {
                Destination::Node(node) => out.extend((0..self.paths).map(|path| {
                    let to = address_of_path(node.0.into(), path);
                    (to, transmit.bytes().to_vec())
                })),
                Destination::Address(address) => {
                    out.push((address.as_bytes().to_vec(), transmit.bytes().to_vec()));
                }
            }
            assert!(out.len() < 1_000, "a node sends without end");
        }
        for (to, bytes) in out {
            // Datagrams to nobody's address are lost.
            for path in (0..self.paths).filter(|path| to == address_of_path(1 - node, *path)) {
                self.fly(address_of_path(node, path), 1 - node, bytes.clone());
            }
        }
        assert!(self.nodes[node].bytes() < MOST_BYTES);
    }

    /// Delivers a datagram to a node, and checks the result.
    pub(crate) fn hand(&mut self, from: &[u8], to: usize, mut bytes: Vec<u8>) -> Opened {
        let entropy = &mut self.entropy;
        let (now_ns, node) = (self.now_ns, &mut self.nodes[to]);
        let all = |counted: &mapwire_seal::Counters| -> u64 {
            mapwire_seal::Cause::ALL.iter().map(|cause| counted.rejected(*cause)).sum()
        };
        let before = all(node.counters());
        let opened = node.handle(now_ns, from, &mut bytes, &mut |bytes| fill(entropy, bytes));
        let rejected = all(node.counters()) - before;
        assert_eq!(rejected, u64::from(matches!(opened, Opened::Rejected(_))));
        if let Opened::Data { from, bytes: range } = opened.clone() {
            let payload = &bytes[range];
            let Some((sender, times)) = self.payloads.get_mut(payload) else {
                panic!("node {to} opened what nobody sealed");
            };
            assert_eq!((from, 1 - to), (NodeId(*sender as u16), *sender));
            *times += 1;
            assert_eq!(*times, 1, "opened twice");
            self.opened += 1;
        }
        self.drain(to);
        opened
    }

    /// Advances to the next event, but not beyond `until_ns`.
    pub(crate) fn step(&mut self, until_ns: u64) -> bool {
        let timers = self.nodes.iter().filter_map(Sessions::poll_at);
        let flights = self.flights.iter().map(|flight| flight.arrives_ns);
        let Some(next_ns) = timers.chain(flights).min().filter(|at| *at <= until_ns) else {
            self.now_ns = self.now_ns.max(until_ns);
            return false;
        };
        self.now_ns = self.now_ns.max(next_ns);
        for node in 0..2 {
            self.nodes[node].handle_time(self.now_ns);
            self.drain(node);
            let next_ns = self.nodes[node].poll_at();
            assert!(next_ns.is_none_or(|at_ns| at_ns > self.now_ns));
        }
        let due = |flight: &Flight| flight.arrives_ns <= self.now_ns;
        if let Some(at) = self.flights.iter().position(due) {
            let flight = self.flights.swap_remove(at);
            self.hand(&flight.from, flight.to, flight.bytes);
        }
        true
    }

    /// Loses all datagrams under way.
    pub(crate) fn lose_flights(&mut self) {
        self.flights.clear();
    }

    pub(crate) fn run_for(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.step(until_ns) {}
    }

    /// Delivers every captured datagram once more to its receiver or its sender.
    pub(crate) fn replay_all(&mut self) {
        for at in 0..self.captured.len() {
            let (to, bytes) = self.captured[at].clone();
            self.hand(&address(1 - to), to, bytes.clone());
            self.hand(&address(to), 1 - to, bytes);
        }
    }

    /// The captured datagrams to a node.
    pub(crate) fn captured_to(&self, node: usize) -> Vec<Vec<u8>> {
        let to_node = self.captured.iter().filter(|(to, _)| *to == node);
        to_node.map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Restarts a node, with its key or another one.
    pub(crate) fn restart(&mut self, node: usize, new_key: bool) {
        if new_key {
            self.keys[node] = key(&mut self.entropy);
            let public = self.public(node);
            self.nodes[1 - node].set_peer(NodeId(node as u16), public);
        }
        let config = config(node as u16, self.keys[node].clone(), self.rotation);
        let entropy = &mut self.entropy;
        self.nodes[node] = Sessions::new(config, &mut |bytes| fill(entropy, bytes));
        let public = self.public(1 - node);
        self.nodes[node].set_peer(NodeId(1 - node as u16), public);
    }

    /// Does one thing, as the choices dictate.
    pub(crate) fn act(&mut self) {
        let node = self.random.below(2) as usize;
        match self.random.below(16) {
            0..=5 => {
                let _ = self.send(node);
            }
            6..=8 => {
                let ns = self.random.within(1, 4 * self.most_delay_ns);
                self.run_for(ns);
            }
            9 => {
                let ns = self.random.within(1, 3 * SECOND);
                self.run_for(ns);
            }
            10 => self.replay_one(),
            11 => self.forge(),
            12 => {
                self.loss = self.random.below(60);
                self.duplication = self.random.below(60);
                self.most_delay_ns = self.random.within(1, 50) * MS;
            }
            13 => {
                let new_key = self.random.chance(30);
                self.restart(node, new_key);
            }
            14 => {
                self.nodes[node].forget_peer(NodeId(1 - node as u16));
                let _ = self.send(node);
                let wanted = self.nodes[node].poll_wanted_key();
                assert_eq!(wanted, Some(NodeId(1 - node as u16)));
                let public = self.public(1 - node);
                self.nodes[node].set_peer(NodeId(1 - node as u16), public);
            }
            _ => {
                let ns = self.random.within(1, 2 * self.rotation.time_ns);
                self.run_for(ns);
            }
        }
    }

    fn replay_one(&mut self) {
        if self.captured.is_empty() {
            return;
        }
        let at = self.random.below(self.captured.len() as u64) as usize;
        let (to, bytes) = self.captured[at].clone();
        let from = self.random.below(3) as usize;
        self.hand(&address(from), to, bytes);
    }

    /// Alters a captured datagram, or makes one up.
    fn forge(&mut self) {
        let to = self.random.below(2) as usize;
        let mut bytes = vec![0; self.random.below(140) as usize];
        fill(&mut self.random, &mut bytes);
        if !self.captured.is_empty() && self.random.chance(70) {
            let at = self.random.below(self.captured.len() as u64) as usize;
            bytes = self.captured[at].1.clone();
            for _ in 0..self.random.within(1, 3) {
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
            }
            if self.random.chance(20) {
                bytes.truncate(self.random.below(140) as usize);
            }
        }
        let from = vec![7; self.random.below(25) as usize];
        self.hand(&from, to, bytes);
    }

    /// The network recovers, and both nodes communicate again.
    pub(crate) fn finish(&mut self) {
        (self.loss, self.duplication, self.most_delay_ns) = (0, 0, MS);
        self.run_for(60 * SECOND);
        self.converge(60 * SECOND);
        for node in [0, 1, 0, 1] {
            let before = self.opened;
            self.send(node).expect("both are ready");
            self.run_for(2 * MS);
            assert_eq!(self.opened, before + 1, "node {node} is heard");
        }
    }

    /// Both nodes send until each has opened a datagram of the other.
    pub(crate) fn converge(&mut self, within_ns: u64) {
        let end_ns = self.now_ns + within_ns;
        let mut heard = [false; 2];
        while heard != [true; 2] {
            assert!(self.now_ns < end_ns, "no session within {within_ns} ns");
            for (node, is_heard) in heard.iter_mut().enumerate() {
                let before = self.opened;
                let sent = self.send(node);
                self.run_for(50 * MS);
                *is_heard |= sent.is_ok() && self.opened > before;
            }
        }
    }
}
