//! A service of one file in a simulated cluster.

#[path = "../../../tests/counter.rs"]
mod counter;

use counter::{COUNTER, Counter};
use mapwire_node::Told;
use mapwire_sim::rules::Shape;
use mapwire_sim::{Cluster, ClusterConfig, Delivery, LinkConfig, Observer, Random, Step, Violation};
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_wire::{Endpoint, NodeId, ProcessId};

/// Takes note of what must not happen.
#[derive(Default)]
struct Watch(Vec<String>);

impl Observer for Watch {
    fn told(&mut self, _: u64, at: NodeId, told: &Told) {
        if !matches!(told, Told::PathChanged { .. }) {
            self.0.push(format!("{at}: {told:?}"));
        }
    }
    fn violated(&mut self, _: u64, violation: Violation) {
        self.0.push(violation.text);
    }
}

fn config(nodes: u16, processes: u16, delivery: Delivery) -> ClusterConfig {
    ClusterConfig {
        nodes,
        processes,
        delivery,
        link: LinkConfig::TEN_GIGABIT,
        design: DesignConfig::default(),
        pin_rules: PinRules::default(),
        words: 4,
        nic_memory_bytes: 16 << 20,
        max_payload_bytes: 4096,
    }
}

/// Every process adds 1 to the counter of every other, `rounds` times, while packets are late and hosts pause.
fn count(seed: u64, rounds: u64, delivery: Delivery, rules: &str) {
    let (nodes, processes) = (3, 2);
    let mut random = Random::new(seed);
    let mut cluster = Cluster::new(config(nodes, processes, delivery), random.clone()).unwrap();
    let shape = Shape { nodes, heal_ns: 1_000_000 };
    let rules = mapwire_sim::parse_rules(rules).unwrap();
    let faults = rules.iter().flat_map(|rule| (rule.draw)(&mut random, &shape));
    cluster.set_faults(faults.collect());
    let mut watch = Watch::default();
    let of = |index: u16| Endpoint { node: NodeId(index / processes), process: ProcessId(index % processes) };
    let count = nodes * processes;
    for index in 0..count {
        let (node, _) = cluster.parts(of(index).node);
        let counter = Box::new(Counter::default());
        node.register(of(index).process, COUNTER, counter).unwrap();
        for _ in 0..rounds {
            cluster.schedule(random.below(shape.heal_ns), index.into());
        }
    }
    loop {
        match cluster.step(&mut watch) {
            Step::Inside => {}
            Step::Program(index) => {
                let at = of(index as u16);
                let (node, _) = cluster.parts(at.node);
                let add = |counter: &mut Counter| {
                    for other in (0..count).map(of) {
                        counter.add(other, 1);
                    }
                };
                node.call(at.process, COUNTER, add).unwrap();
                cluster.settle(at.node, &mut watch);
            }
            Step::Rest => break,
            Step::Interrupted => unreachable!("nobody interrupts it"),
        }
    }
    assert!(watch.0.is_empty(), "seed {seed}: {:?}", watch.0);
    let mut answers = vec![];
    for at in (0..count).map(of) {
        let counter: &Counter = cluster.node(at.node).service(at.process, COUNTER).unwrap();
        assert_eq!(counter.value(), rounds * u64::from(count), "seed {seed}");
        assert!(counter.gone().is_empty());
        answers.extend_from_slice(counter.answers());
    }
    // Every counter has answered each of its values once.
    answers.sort_unstable();
    let each = (0..rounds * u64::from(count)).flat_map(|value| vec![value; usize::from(count)]);
    assert_eq!(answers, each.collect::<Vec<_>>(), "seed {seed}");
}

#[test]
fn every_addition_to_a_remote_counter_is_done_and_answered_once() {
    let rules = "delay,partition,path,pause,slow";
    for seed in 0..20 {
        let lossy = Delivery::Lossy {
            paths: 2,
            dead_after_ns: 1_000_000_000,
            tells_of_crashes: true,
            early_packets: 64,
            is_sealed: seed % 2 == 1,
        };
        count(seed, 10, Delivery::Lossless, rules);
        let more = format!("{rules},drop,duplicate,reorder,corrupt");
        count(seed, 10, lossy, &more);
    }
}
