//! A run of the shared memory that a seed names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mapwire_dsm::{Config, Dsm, MAX_RANKS, PAGE_BYTES};
use mapwire_node::SharedMemory;
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, MAX_PAYLOAD_BYTES, NodeId, ProcessId};

use super::buggy::Buggy;
use super::litmus::{Seen, Tests, VARIABLES};
use super::{Doing, MOST_EVENTS, PAGES, Program, Programs, SHARED, SharedShape};
use crate::canary::Canary;
use crate::cluster::{ClusterConfig, Delivery, EARLY_PACKETS, FIRST_ADDRESS, LinkConfig};
use crate::coverage::Coverage;
use crate::hardware::node::check_size;
use crate::random::Random;
use crate::run::{Drawn, Outcome, Part, RunError, Wanted, Workload, drive};
use crate::segments::Segments;

/// A run as it was drawn.
#[derive(Debug)]
pub struct SharedScenario {
    pub drawn: Drawn,
    pub shape: SharedShape,
    pub litmus: bool,
    /// Minipages are stores of the network interfaces; otherwise each rank has mapped the memory of the others.
    pub stores_by_nic: bool,
}

impl SharedScenario {
    fn threads(&self) -> usize {
        usize::from(self.shape.ranks) * usize::from(self.shape.threads)
    }
}

impl Workload for SharedScenario {
    /// What the loads of litmus tests gave.
    type Seen = Vec<Seen>;

    fn draw(seed: u64, wanted: &Wanted) -> Result<Self, RunError> {
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
            units: 0,
            locks,
            phases: random.within(1, 5) as u32,
            steps: random.spread(1, 40) as u32,
            hold_ns: random.spread(2_000, 20_000),
            lock_passes: 0,
            // From another source, which leaves the rest of the run as it is. Bugs of locks are those of numbered ones.
            mutexes: wanted.canary.is_none() && Random::new(!seed).chance(40),
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
        shape.units = *random.pick(&[0, 12, 48]);
        match wanted.litmus {
            true => shape.units = shape.units.min(variables),
            false => shape.allocations += shape.units,
        }
        let rules = Drawn::bears(&wanted.rules, is_lossy, stores_by_nic, &["crash", "restart", "forge"]);
        let drawn = Drawn { seed, cluster, rules, heal_ns, canary: wanted.canary, random };
        Ok(Self { drawn, shape, litmus: wanted.litmus, stores_by_nic })
    }

    fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    /// Steps of all threads, or litmus tests.
    fn calls(&self) -> usize {
        match self.litmus {
            true => Tests::draw(&mut self.draw_faults().1, self.threads()).len(),
            false => self.threads() * (self.shape.phases * self.shape.steps) as usize,
        }
    }

    fn run_some(&self, part: Part<'_>) -> Result<Outcome<Vec<Seen>>, RunError> {
        let mut shape = self.shape;
        let (processes, locks) = (shape.processes, shape.locks);
        check_size("ranks", shape.ranks.into(), (2, MAX_RANKS.into()))?;
        let (mut cluster, mut random) = self.begin(part)?;
        let threads = self.threads();
        let mut tests = self.litmus.then(|| Tests::draw(&mut random, threads));
        if let Some(tests) = &mut tests {
            tests.keep(part.has_call);
            shape.phases = tests.barriers() as u32;
        }
        let steps = if self.litmus { 0 } else { self.calls() };
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
                lock_local_passes: match self.drawn.canary {
                    Some(Canary::KeptLock) => u8::MAX,
                    _ => shape.lock_passes,
                },
                participants: shape.threads,
                ..Config::new(rank, shape.ranks, shape.threads, PAGES, if shape.units == 0 { 8 } else { 64 })
            })?;
            let mut shared = SharedMemory::new(dsm, processes);
            for other in 0..shape.ranks {
                shared.hear(endpoint(other));
            }
            let random_of_bug = Random::new(self.drawn.seed ^ u64::from(rank));
            let shared = Buggy::new(shared, self.drawn.canary, random_of_bug);
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
                walk: 0,
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
            canary: self.drawn.canary,
            tests,
            random: Random::new(random.next()),
            left_out: (0..steps).map(|step| !(part.has_call)(step)).collect(),
            violation: None,
        };
        if self.stores_by_nic {
            programs.ask_imports(&mut cluster)
        } else {
            cluster.schedule(0, 0)
        }
        Ok(drive(cluster, programs, (MOST_EVENTS * threads as u64, u64::MAX)))
    }
}

impl fmt::Display for SharedScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedShape {
            ranks,
            processes,
            threads,
            allocations,
            units,
            locks,
            phases,
            steps,
            hold_ns,
            lock_passes,
            mutexes,
        } = self.shape;
        let ClusterConfig { nodes, delivery, .. } = self.drawn.cluster;
        writeln!(f, "seed {}", self.drawn.seed)?;
        writeln!(f, "  nodes {nodes}, processes of each {processes}: {ranks} ranks, threads of each {threads}")?;
        writeln!(f, "  {}, {delivery}", self.drawn.links())?;
        if self.stores_by_nic {
            writeln!(f, "  minipages are stores of the network interfaces")?;
        }
        match self.litmus {
            true => writeln!(f, "  litmus tests, rights are held for {hold_ns} ns")?,
            false => writeln!(
                f,
                "  {allocations} allocations, of which {units} share a page and are read in order, {locks} locks, {phases} barriers with {steps} operations before each, rights are held for {hold_ns} ns, locks handed on in a rank {lock_passes} times"
            )?,
        }
        if mutexes {
            writeln!(f, "  locks are mutexes that ranks keep")?;
        }
        self.drawn.print_end(f)
    }
}
