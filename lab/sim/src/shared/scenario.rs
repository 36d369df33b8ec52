//! A run of the shared memory that a seed names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mapwire_dsm::{Config, Dsm, MAX_RANKS, PAGE_BYTES};
use mapwire_node::SharedMemory;
use mapwire_service::Service;
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_wire::{Endpoint, MAX_PAYLOAD_BYTES, NodeId, ProcessId};

use super::litmus::{Seen, Tests, VARIABLES};
use super::{Doing, MOST_EVENTS, PAGES, Program, Programs, SHARED, SharedShape};
use crate::canary::SharedCanary;
use crate::cluster::{ClusterConfig, Delivery, EARLY_PACKETS, FIRST_ADDRESS, Interrupt, LinkConfig};
use crate::coverage::Coverage;
use crate::random::Random;
use crate::rules::Rule;
use crate::run::{self, Outcome, RunError, ServiceWanted, Workload, borne, check_size};
use crate::segments::Segments;

pub type SharedWanted = ServiceWanted<SharedCanary>;

/// A run as it was drawn.
#[derive(Debug)]
pub struct SharedScenario {
    pub seed: u64,
    pub shape: SharedShape,
    pub cluster: ClusterConfig,
    pub rules: Vec<Rule>,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
    pub litmus: bool,
    /// Minipages are stores of the network interfaces; otherwise each rank has mapped the memory of the others.
    pub stores_by_nic: bool,
    pub canary: Option<SharedCanary>,
    random: Random,
}

impl Workload for SharedScenario {
    type Wanted = SharedWanted;
    /// What the loads of litmus tests gave.
    type Seen = Vec<Seen>;

    fn draw(seed: u64, wanted: &SharedWanted) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let nodes = random.spread(2, 8) as u16;
        let nodes = wanted.nodes.unwrap_or(nodes);
        let processes = match random.spread(1, 2) as u16 {
            2 if nodes <= MAX_RANKS / 2 => 2,
            _ => 1,
        };
        let threads = random.spread(1, 4) as u16;
        let locks = random.within(1, 4) as u32;
        let variables = if wanted.litmus { VARIABLES.into() } else { random.within(1, 12) as u32 };
        let mut shape = SharedShape {
            ranks: nodes * processes,
            processes,
            threads,
            allocations: locks + variables,
            locks,
            phases: random.within(1, 5) as u32,
            steps: random.spread(1, 40) as u32,
            hold_ns: random.spread(2_000, 20_000),
            lock_passes: 0,
        };
        let is_lossy = wanted.lossy.unwrap_or_else(|| wanted.rules.iter().any(|rule| rule.is_lossy));
        let delivery = match is_lossy {
            false => Delivery::Lossless,
            true => Delivery::Lossy {
                paths: random.within(1, 3) as u8,
                dead_after_ns: 1_000_000_000,
                tells_of_crashes: true,
                early_packets: EARLY_PACKETS,
                is_sealed: random.chance(25),
            },
        };
        let cluster = ClusterConfig {
            nodes,
            processes,
            delivery,
            link: LinkConfig {
                latency_ns: random.spread(500, 50_000),
                bits_per_second: 100_000_000_000,
                queue_packets: random.spread(16, 256) as u32,
            },
            design: DesignConfig::default(),
            pin_rules: PinRules::default(),
            words: 1,
            nic_memory_bytes: 64 << 20,
            max_payload_bytes: MAX_PAYLOAD_BYTES,
        };
        let stores_by_nic = is_lossy || random.chance(50);
        // Drawn last, so that seeds draw all else as they always did.
        let heal_ns = random.spread(500_000, 10_000_000);
        shape.lock_passes = *random.pick(&[0, 4, 4]);
        Ok(Self {
            seed,
            shape,
            cluster,
            rules: borne(&wanted.rules, is_lossy, stores_by_nic, &["crash", "restart", "forge"]),
            heal_ns,
            litmus: wanted.litmus,
            stores_by_nic,
            canary: wanted.canary,
            random,
        })
    }

    fn run_until(&self, interrupt: &Interrupt) -> Result<Outcome<Vec<Seen>>, RunError> {
        let (mut shape, mut random) = (self.shape, self.random.clone());
        let (processes, locks) = (shape.processes, shape.locks);
        check_size("ranks", shape.ranks, 2..=MAX_RANKS)?;
        let mut cluster = run::cluster(self.seed, &self.cluster, (&self.rules, self.heal_ns), &mut random)?;
        let threads = usize::from(shape.ranks) * usize::from(shape.threads);
        let tests = self.litmus.then(|| Tests::draw(&mut random, threads));
        if let Some(tests) = &tests {
            shape.phases = tests.barriers() as u32;
        }
        let bytes = PAGES as usize * PAGE_BYTES as usize;
        let endpoint = |rank: u16| Endpoint { node: NodeId(rank / processes), process: ProcessId(rank % processes) };
        let segments = Segments::new(SHARED, FIRST_ADDRESS, bytes as u64, self.stores_by_nic);
        let mut programs = Vec::new();
        for rank in 0..shape.ranks {
            let at = endpoint(rank);
            let dsm = Dsm::new(Config {
                locks,
                barriers: 3,
                chunk_pages: 2,
                hold_ns: shape.hold_ns,
                lock_local_passes: match self.canary {
                    Some(SharedCanary::KeptLock) => u8::MAX,
                    _ => shape.lock_passes,
                },
                participants: shape.threads,
                ..Config::new(rank, shape.ranks, shape.threads, PAGES, 8)
            })?;
            let mut shared = SharedMemory::new(dsm, processes);
            for other in 0..shape.ranks {
                shared.hear(endpoint(other));
            }
            let (node, _) = cluster.parts(at.node);
            node.register(at.process, SHARED, Box::new(shared))?;
            // The memory of a cluster that has just been made has room for all of it.
            let _ = segments.export(&mut cluster, at);
            programs.extend((0..shape.threads).map(|_| Program {
                at,
                doing: Doing::Nothing,
                is_pending: false,
                steps_left: shape.steps,
                phase: 0,
                random: Random::new(random.next()),
            }));
        }
        let mut programs = Programs {
            shape,
            programs,
            truth: vec![0; bytes],
            writers: vec![None; shape.allocations as usize],
            coverage: Coverage::default(),
            allocations: Vec::new(),
            rights: BTreeMap::new(),
            holders: vec![None; locks as usize],
            handed: vec![(0, 0); locks as usize],
            asked: 0,
            additions: vec![0; locks as usize],
            arrived: vec![BTreeSet::new(); shape.phases as usize],
            segments,
            canary: self.canary,
            tests,
            random: Random::new(random.next()),
            violation: None,
        };
        cluster.set_canary(self.canary.and_then(SharedCanary::of_cluster));
        cluster.set_interrupt(interrupt);
        if self.stores_by_nic {
            programs.ask_imports(&mut cluster)
        } else {
            cluster.schedule(0, 0)
        }
        let is_whole = run::drive(&mut cluster, &mut programs, MOST_EVENTS * threads as u64);
        let Programs { violation, coverage, tests, .. } = programs;
        let seen = tests.map_or_else(Vec::new, |tests| tests.seen);
        Ok(Outcome::new(&cluster, is_whole, violation, seen, |all| all.add(&coverage)))
    }
}

impl fmt::Display for SharedScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedShape { ranks, processes, threads, allocations, locks, phases, steps, hold_ns, lock_passes } =
            self.shape;
        let ClusterConfig { nodes, delivery, .. } = self.cluster;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "  nodes {nodes}, processes of each {processes}: {ranks} ranks, threads of each {threads}")?;
        writeln!(f, "  {}, {delivery}", run::links(&self.cluster))?;
        if self.stores_by_nic {
            writeln!(f, "  minipages are stores of the network interfaces")?;
        }
        match self.litmus {
            true => writeln!(f, "  litmus tests, rights are held for {hold_ns} ns")?,
            false => writeln!(
                f,
                "  {allocations} allocations, {locks} locks, {phases} barriers with {steps} operations before each, rights are held for {hold_ns} ns, locks handed on in a rank {lock_passes} times"
            )?,
        }
        run::print_end(f, &self.rules, self.heal_ns, self.canary)
    }
}
