//! What nodes promise each other, in virtual time: over links that lose nothing, and over others, plain and sealed, which harm
//! datagrams in every way.

use mapwire_node::Told;
use mapwire_node::conformance::{self, Heard, Refused, TALKER, Talker, World};
use mapwire_sim::rules::{Effect, Fault, Harm, Shape, Window};
use mapwire_sim::{
    Canary, Cluster, ClusterConfig, Delivery, LinkConfig, Observer, Random, Step, Violation, parse_rules,
};
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_wire::{NodeId, ProcessId};

/// Virtual time in which anything awaited has come.
const PATIENCE_NS: u64 = 100_000_000_000;
/// Virtual time between two looks at what nodes have heard.
const LOOK_NS: u64 = 100_000;
/// Faults that are drawn strike until then: while the first messages are under way.
const HEAL_NS: u64 = 20_000_000;
/// Virtual time in which whatever is under way arrives.
const REST_NS: u64 = 2_000_000_000;

/// Panics at what must not happen.
#[derive(Debug)]
struct Watch;

impl Observer for Watch {
    fn told(&mut self, _: u64, _: NodeId, _: &Told) {}
    fn violated(&mut self, _: u64, violation: Violation) {
        panic!("{}: {}", violation.check, violation.text);
    }
}

/// Strikes some of the datagrams as long as the cluster lasts.
#[derive(Debug)]
struct Harms;

impl Fault for Harms {
    fn rule(&self) -> &'static str {
        "a test's own"
    }

    fn window(&self) -> Window {
        Window { begin_ns: 0, end_ns: PATIENCE_NS }
    }

    fn begin(&self) -> Effect {
        Effect::Packets
    }

    fn harm(&self, _: NodeId, _: NodeId, _: u8, random: &mut Random) -> Option<Harm> {
        match random.below(100) {
            0..3 => Some(Harm::Lose),
            3..6 => Some(Harm::Repeat),
            6..10 => Some(Harm::Late(random.below(300_000))),
            10..12 => Some(Harm::Damage),
            _ => None,
        }
    }
}

struct Simulated(Cluster);

impl Simulated {
    fn new(nodes: u16, delivery: Delivery, rules: &str, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let config = ClusterConfig {
            nodes,
            processes: 1,
            delivery,
            link: LinkConfig::TEN_GIGABIT,
            design: DesignConfig::default(),
            pin_rules: PinRules::default(),
            words: 4,
            nic_memory_bytes: 16 << 20,
            max_payload_bytes: 5000,
        };
        let mut cluster = Cluster::new(config, random.clone()).unwrap();
        let shape = Shape { nodes, heal_ns: HEAL_NS };
        let rules = parse_rules(rules).unwrap();
        let faults = rules.iter().flat_map(|rule| (rule.draw)(&mut random, &shape));
        let harms: Box<dyn Fault> = Box::new(Harms);
        cluster.set_faults(faults.chain([harms]).collect());
        for node in (0..nodes).map(NodeId) {
            let talker = Box::new(Talker::default());
            let (node, _) = cluster.parts(node);
            node.register(ProcessId(0), TALKER, talker).unwrap();
        }
        Self(cluster)
    }

    /// Lets so much time pass.
    fn pass(&mut self, ns: u64) {
        self.0.schedule(self.0.now_ns() + ns, 0);
        while !matches!(self.0.step(&mut Watch), Step::Program(_)) {}
    }
}

impl World for Simulated {
    fn max_bytes(&self) -> usize {
        self.0.node(NodeId(0)).nic().max_message_bytes()
    }

    fn keeps_last_words(&self) -> bool {
        // What waits at a port ends with its node.
        false
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &[u8]) -> Result<(), Refused> {
        let settle = |cluster: &mut Cluster| cluster.settle(from, &mut Watch);
        Talker::send(&mut self.0, |it| it.parts(from).0, settle, to, message)
    }

    fn hear(&mut self, at: NodeId) -> Option<Heard> {
        if self.0.is_alive(at) { Talker::hear(self.0.parts(at).0) } else { None }
    }

    fn go_on(&mut self) -> bool {
        self.pass(LOOK_NS);
        self.0.now_ns() < PATIENCE_NS
    }

    fn rest(&mut self) {
        self.pass(REST_NS);
    }

    fn end(&mut self, node: NodeId) {
        self.0.crash(node, &mut Watch);
    }

    fn give_up(&mut self, at: NodeId, peer: NodeId) {
        let now_ns = self.0.clock_ns(at);
        self.0.parts(at).0.handle_peer_gone(now_ns, peer);
        self.0.settle(at, &mut Watch);
    }
}

const fn lossy(is_sealed: bool, tells_of_crashes: bool) -> Delivery {
    Delivery::Lossy { paths: 2, dead_after_ns: 5_000_000_000, tells_of_crashes, early_packets: 64, is_sealed }
}

#[test]
fn what_a_transport_or_a_link_does_wrong_is_noticed() {
    let none = lossy(false, true);
    let run = |canary, delivery, rules| {
        conformance::run(&mut |nodes| {
            let mut world = Simulated::new(nodes, delivery, rules, 3);
            world.0.set_canary(canary);
            Box::new(world)
        });
    };
    // Nothing but the canary is what fails.
    run(None, Delivery::Lossless, "delay");
    run(None, none, "delay");
    for (canary, delivery, rules) in [
        (Canary::LostPacket, Delivery::Lossless, "delay"),
        (Canary::RepeatedPacket, Delivery::Lossless, "delay"),
        (Canary::Overtaking, Delivery::Lossless, "delay"),
        (Canary::ChangedByte, Delivery::Lossless, "delay"),
        (Canary::UncheckedSum, none, "delay"),
        (Canary::LostEarly, none, "delay"),
    ] {
        let fails = std::panic::catch_unwind(|| run(Some(canary), delivery, rules));
        assert!(fails.is_err(), "{canary:?}");
    }
}

#[test]
fn simulated_nodes_conform_over_links_that_lose_nothing() {
    for seed in 0..2 {
        conformance::run(&mut |nodes| {
            let rules = "delay,pause,slow";
            Box::new(Simulated::new(nodes, Delivery::Lossless, rules, seed))
        });
    }
}

fn conform_over_links_that_do_everything(seed: u64, delivery: Delivery) {
    let rules = "drop,duplicate,reorder,corrupt,delay,pause,slow,path";
    conformance::run(&mut |nodes| Box::new(Simulated::new(nodes, delivery, rules, seed)));
}

#[test]
fn simulated_nodes_conform_over_links_that_lose_repeat_overtake_and_damage() {
    conform_over_links_that_do_everything(0, lossy(false, true));
}

#[test]
fn they_conform_over_such_links_that_seal_and_do_not_tell_of_crashes() {
    conform_over_links_that_do_everything(1, lossy(true, false));
}
