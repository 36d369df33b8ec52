//! What nodes promise each other, by drivers of one process: over rings, and over UDP, plain and sealed, with and without faults.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mapwire_node::conformance::{self, Heard, Refused, TALKER, Talker, World};
use mapwire_transport::net::{Net, NetConfig};
use mapwire_transport::rendezvous::Secret;
use mapwire_transport::shm::ShmTransport;
use mapwire_transport::shm::channel::{Channel, Side};
use mapwire_transport::shm::ring::RingConfig;
use mapwire_transport::transport::Transport;
use mapwire_wire::NodeId;

use super::super::Driver;
use super::bare_fabric::{Bare, Queues};
use crate::completions::CompletionWords;
use crate::config::DriverConfig;
use crate::ids::PROCESS;
use crate::peer_words::PeerWords;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a peer over UDP may be silent that is awaited. One thread runs all nodes, some of them not at all while another sends.
const SILENCE: Duration = Duration::from_secs(6);
/// More than a page, and more than a frame of Ethernet.
const MAX_BYTES: usize = 5000;

/// Drivers that send each other messages of the suite's service.
struct Drivers<T: Transport + Debug + Send + 'static> {
    /// `None`: has ended.
    drivers: Vec<Option<Driver<Bare<T>>>>,
    keeps_last_words: bool,
    start: Instant,
}

impl<T: Transport + Debug + Send + 'static> Drivers<T> {
    fn new(fabrics: Vec<Bare<T>>, keeps_last_words: bool) -> Self {
        let nodes = fabrics.len();
        let driver = |fabric| {
            let config = DriverConfig { timeout: SILENCE, ..DriverConfig::default() };
            let peers = PeerWords::new(nodes).unwrap();
            let words = Arc::new(CompletionWords::new());
            let mut driver = Driver::new(&config, fabric, peers, words).unwrap();
            let talker = Box::new(Talker::default());
            driver.local.node.register(PROCESS, TALKER, talker).unwrap();
            Some(driver)
        };
        Self { drivers: fabrics.into_iter().map(driver).collect(), keeps_last_words, start: Instant::now() }
    }

    fn driver(&mut self, node: NodeId) -> &mut Driver<Bare<T>> {
        let driver = self.drivers[usize::from(node.0)].as_mut();
        driver.expect("a node that has not ended")
    }

    /// One turn of each. Whether anything was done.
    fn turn(&mut self) -> bool {
        let drivers = self.drivers.iter_mut().flatten();
        drivers.fold(false, |worked, driver| driver.poll() | worked)
    }
}

impl<T: Transport + Debug + Send + 'static> World for Drivers<T> {
    fn max_bytes(&self) -> usize {
        MAX_BYTES
    }

    fn keeps_last_words(&self) -> bool {
        self.keeps_last_words
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &[u8]) -> Result<(), Refused> {
        let settle = |driver: &mut Driver<Bare<T>>| {
            driver.poll();
        };
        Talker::send(self.driver(from), |it| &mut it.local.node, settle, to, message)
    }

    fn hear(&mut self, at: NodeId) -> Option<Heard> {
        let driver = self.drivers[usize::from(at.0)].as_mut()?;
        Talker::hear(&mut driver.local.node)
    }

    fn go_on(&mut self) -> bool {
        if !self.turn() {
            std::thread::sleep(Duration::from_micros(20));
        }
        self.start.elapsed() < PATIENCE
    }

    fn rest(&mut self) {
        let end = Instant::now() + Duration::from_millis(50);
        while self.turn() || Instant::now() < end {
            std::thread::yield_now();
        }
    }

    fn end(&mut self, node: NodeId) {
        self.drivers[usize::from(node.0)] = None;
    }

    fn give_up(&mut self, at: NodeId, peer: NodeId) {
        let driver = self.driver(at);
        driver.paths.handle_gone(&mut driver.local, peer);
    }
}

fn over_rings(nodes: u16) -> Box<dyn World> {
    let config = RingConfig::default();
    let mut rings: Vec<_> = (0..nodes).map(|_| ShmTransport::new(&config)).collect();
    for lower in 0..nodes {
        for higher in lower + 1..nodes {
            let fd = Channel::create(&config).unwrap();
            for (node, side, peer) in [(lower, Side::Lower, higher), (higher, Side::Higher, lower)] {
                let channel = Channel::open(&fd, side, &config).unwrap();
                rings[usize::from(node)].connect(NodeId(peer), channel);
            }
        }
    }
    let fabrics = (0..nodes).zip(rings);
    let fabrics = fabrics.map(|(me, rings)| Bare::new(rings, None, NodeId(me), nodes));
    Box::new(Drivers::new(fabrics.collect(), true))
}

/// Over the loopback address. Faults strike by seed, and each receiver by others.
fn over_udp(nodes: u16, insecure: bool, faults: Option<&str>) -> Box<dyn World> {
    let secret = Secret([7; 32]);
    let config = NetConfig { insecure, loss: faults.map(|faults| faults.parse().unwrap()), ..NetConfig::default() };
    let open = |me| Net::open(&config, NodeId(me), nodes.into(), secret).unwrap();
    let mut nets: Vec<Net> = (0..nodes).map(open).collect();
    let cards: Vec<_> = nets.iter().map(Net::card).collect();
    let mut reached = Vec::new();
    for (me, net) in (0..nodes).zip(&mut nets) {
        for (peer, card) in (0..nodes).zip(&cards).filter(|(peer, _)| *peer != me) {
            let bytes = net.introduce(NodeId(peer), card).unwrap();
            reached.push((NodeId(me), NodeId(peer), bytes));
        }
    }
    let fabrics = (0..nodes).zip(nets).map(|(me, net)| {
        let me = NodeId(me);
        Bare::new(Queues::alone(me), Some(net), me, nodes)
    });
    let mut drivers = Drivers::new(fabrics.collect(), false);
    for (me, peer, bytes) in reached {
        let driver = drivers.driver(me);
        driver.paths.handle_reached(&mut driver.local.node, peer, bytes);
    }
    Box::new(drivers)
}

#[test]
fn nodes_over_rings_conform() {
    conformance::run(&mut over_rings);
}

#[test]
fn nodes_over_plain_udp_conform() {
    conformance::run(&mut |nodes| over_udp(nodes, true, None));
}

#[test]
fn nodes_over_sealed_udp_conform() {
    conformance::run(&mut |nodes| over_udp(nodes, false, None));
}

#[test]
fn nodes_conform_over_udp_that_loses_repeats_and_overtakes() {
    let faults = "loss=2%,duplicate=2%,reorder=4%,seed=7";
    conformance::run(&mut |nodes| over_udp(nodes, true, Some(faults)));
}

#[test]
fn nodes_conform_over_sealed_udp_that_damages_too() {
    let faults = "loss=2%,duplicate=2%,reorder=4%,corrupt=2%,seed=8";
    conformance::run(&mut |nodes| over_udp(nodes, false, Some(faults)));
}
