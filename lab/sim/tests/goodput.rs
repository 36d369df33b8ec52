//! Goodput of whole nodes over a line of 10 Gb/s and 10 µs that loses a share of all datagrams.

use mapwire_node::{Act, Ask, ExportRequest, Told};
use mapwire_sim::cluster::FIRST_ADDRESS;
use mapwire_sim::rules::{Effect, Fault, Harm, Window};
use mapwire_sim::{Cluster, ClusterConfig, Delivery, LinkConfig, Observer, Random, Step, Violation};
use mapwire_translation::{DesignConfig, PageRange, PinRules};
use mapwire_vmmc::Importers;
use mapwire_wire::{CommandRepr, Endpoint, Key, NodeId, Rights};

const COMMAND_BYTES: u64 = 256 << 10;
/// Commands under way at a time.
const WORDS: u32 = 8;
const COMMANDS: u32 = 48;
const RATE: u64 = LinkConfig::TEN_GIGABIT.bits_per_second;

#[derive(Default)]
struct Watch {
    imported: bool,
    free: Vec<u32>,
    done: u32,
    wrong: Vec<String>,
}

impl Observer for Watch {
    fn told(&mut self, _: u64, at: NodeId, told: &Told) {
        match *told {
            Told::Done { completion, .. } => {
                self.free.push(completion);
                self.done += 1;
            }
            _ => self.wrong.push(format!("{at}: {told:?}")),
        }
    }
    fn asked(&mut self, _: u64, _: NodeId, ask: &Ask) {
        self.imported |= matches!(ask.act, Act::ImportOver { .. });
    }
    fn violated(&mut self, _: u64, violation: Violation) {
        self.wrong.push(violation.text);
    }
}

/// Loses a share of all datagrams, for ever.
#[derive(Debug)]
struct Losses(u64);

impl Fault for Losses {
    fn rule(&self) -> &'static str {
        "a test's own"
    }

    fn window(&self) -> Window {
        Window { begin_ns: 0, end_ns: u64::MAX }
    }
    fn begin(&self) -> Effect {
        Effect::Packets
    }
    fn harm(&self, _: NodeId, _: NodeId, _: u8, random: &mut Random) -> Option<Harm> {
        random.chance(self.0).then_some(Harm::Lose)
    }
}

/// Goodput of long sends from node 0 to node 1, in percent of the line.
fn goodput(seed: u64, loss_percent: u64) -> f64 {
    let config = ClusterConfig {
        nodes: 2,
        processes: 1,
        delivery: Delivery::Lossy {
            paths: 1,
            dead_after_ns: 10_000_000_000,
            tells_of_crashes: true,
            early_packets: 64,
            is_sealed: false,
        },
        link: LinkConfig::TEN_GIGABIT,
        design: DesignConfig::default(),
        pin_rules: PinRules::default(),
        words: WORDS,
        nic_memory_bytes: 64 << 20,
        max_payload_bytes: 8192 + 16,
    };
    let mut cluster = Cluster::new(config, Random::new(seed)).unwrap();
    cluster.set_faults(vec![Box::new(Losses(loss_percent))]);
    let mut watch = Watch::default();
    let [sender, receiver] = [0, 1].map(|node| Endpoint::first_of(NodeId(node)));
    let (node, memory) = cluster.parts(receiver.node);
    let request = ExportRequest {
        name: "sink".into(),
        key: Key([7; 16]),
        address: FIRST_ADDRESS,
        length: COMMAND_BYTES,
        rights: Rights::ALL,
        importers: Importers::Job,
        direct: None,
        pins_late: false,
    };
    node.export(receiver.process, memory, request).unwrap();
    let now_ns = cluster.clock_ns(sender.node);
    let (node, memory) = cluster.parts(sender.node);
    memory.write(0, FIRST_ADDRESS, &vec![0x5a; COMMAND_BYTES as usize]);
    let timeout_ns = 10_000_000_000;
    let asked = node.ask_import(now_ns, sender.process, receiver, "sink", Rights::ALL, None, timeout_ns);
    let request = asked.unwrap();
    cluster.settle(sender.node, &mut watch);
    while !watch.imported {
        assert_ne!(cluster.step(&mut watch), Step::Rest, "seed {seed}");
    }
    let (node, _) = cluster.parts(sender.node);
    let (import, _) = node.enter_import(sender.process, request).unwrap().unwrap();
    watch.free = (0..WORDS).collect();
    let (begin_ns, mut submitted) = (cluster.now_ns(), 0);
    while watch.done < COMMANDS {
        while submitted < COMMANDS
            && let Some(word) = watch.free.pop()
        {
            let range = PageRange::covering(FIRST_ADDRESS, COMMAND_BYTES).unwrap();
            let (node, memory) = cluster.parts(sender.node);
            node.hold(sender.process, memory, word, range).unwrap();
            let command = CommandRepr::LongSend {
                import,
                offset: 0,
                address: FIRST_ADDRESS,
                length: COMMAND_BYTES,
                notify: false,
                signal: None,
                completion: word,
            };
            cluster.submit(sender, &command, &[]).unwrap();
            submitted += 1;
        }
        cluster.settle(sender.node, &mut watch);
        assert_ne!(cluster.step(&mut watch), Step::Rest, "seed {seed}");
    }
    assert!(watch.wrong.is_empty(), "seed {seed}: {:?}", watch.wrong);
    let bits = COMMAND_BYTES * u64::from(COMMANDS) * 8;
    let line_ns = bits as f64 * 1e9 / RATE as f64;
    100.0 * line_ns / (cluster.now_ns() - begin_ns) as f64
}

#[test]
fn goodput_over_10_gigabit_and_10_us_under_loss() {
    for (loss_percent, least) in [(0, 95.0), (1, 80.0), (5, 50.0), (30, 10.0)] {
        let figures: Vec<f64> = (0..16).map(|seed| goodput(seed, loss_percent)).collect();
        let worst = figures.iter().copied().fold(f64::MAX, f64::min);
        let mean = figures.iter().sum::<f64>() / figures.len() as f64;
        println!("{loss_percent} % loss: worst {worst:.1} %, mean {mean:.1} % of the line");
        assert!(worst >= least, "{loss_percent} % loss: {figures:.1?}");
    }
}
