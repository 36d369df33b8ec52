//! A run of the shared memory that a seed names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mapwire_dsm::{Config, Dsm, MAX_RANKS, PAGE_BYTES};
use mapwire_node::SharedMemory;
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_wire::{Endpoint, MAX_PAYLOAD_BYTES, NodeId, ProcessId};

use super::litmus::{Tests, VARIABLES};
use super::{Doing, MOST_EVENTS, PAGES, Program, Programs, SHARED, SharedError, SharedOutcome, SharedShape};
use crate::canary::SharedCanary;
use crate::cluster::{
    Cluster, ClusterConfig, ClusterError, Delivery, EARLY_PACKETS, FIRST_ADDRESS, Interrupt, LinkConfig, Step,
};
use crate::coverage::Coverage;
use crate::random::Random;
use crate::rules::{Rule, Shape, names};
use crate::segments::Segments;

/// What a run is to be like. What is `None` is drawn from the seed.
#[derive(Clone, Debug, Default)]
pub struct SharedWanted {
    /// Nodes: 2 to 1,024.
    pub nodes: Option<u16>,
    /// Rules; empty: no faults. Crashes and restarts end a shared memory, and are left out.
    pub rules: Vec<Rule>,
    /// Whether the transport may lose packets; `None`: if a rule needs it.
    pub lossy: Option<bool>,
    /// Programs are litmus tests.
    pub litmus: bool,
    /// The bug to put in.
    pub canary: Option<SharedCanary>,
}

/// A run as it was drawn.
#[derive(Debug)]
pub struct SharedScenario {
    /// Its seed.
    pub seed: u64,
    /// The programs.
    pub shape: SharedShape,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Rules by name.
    pub rules: Vec<Rule>,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
    /// Programs are litmus tests.
    pub litmus: bool,
    /// Minipages are stores of the network interfaces; otherwise each rank has mapped the memory of the others.
    pub stores_by_nic: bool,
    /// The bug that is put in.
    pub canary: Option<SharedCanary>,
    /// Draws faults and programs.
    random: Random,
}

impl SharedScenario {
    /// Draws a run.
    #[must_use]
    pub fn draw(seed: u64, wanted: &SharedWanted) -> Self {
        let mut random = Random::new(seed);
        let nodes = random.spread(2, 8) as u16;
        let nodes = wanted.nodes.unwrap_or(nodes);
        let processes = match random.spread(1, 2) as u16 {
            2 if nodes <= MAX_RANKS / 2 => 2,
            _ => 1,
        };
        let threads = random.spread(1, 4) as u16;
        let locks = random.within(1, 4) as u32;
        let variables = match wanted.litmus {
            true => VARIABLES.into(),
            false => random.within(1, 12) as u32,
        };
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
        let stays = |rule: &&Rule| {
            let is_borne = is_lossy || !rule.is_lossy;
            // Pages that a store needs must be had.
            let is_had = !stores_by_nic || rule.name != "refuse-pins";
            is_borne && is_had && !["crash", "restart", "forge"].contains(&rule.name)
        };
        // Drawn last, so that seeds draw all else as they always did.
        let heal_ns = random.spread(500_000, 10_000_000);
        shape.lock_passes = *random.pick(&[0, 4, 4]);
        Self {
            seed,
            shape,
            cluster,
            rules: wanted.rules.iter().filter(stays).copied().collect(),
            heal_ns,
            litmus: wanted.litmus,
            stores_by_nic,
            canary: wanted.canary,
            random,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The cluster or its shared memory cannot be made.
    pub fn run(&self) -> Result<SharedOutcome, SharedError> {
        self.run_until(&Interrupt::default())
    }

    /// Runs it, unless it is interrupted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(&self, interrupt: &Interrupt) -> Result<SharedOutcome, SharedError> {
        let (mut shape, mut random) = (self.shape, self.random.clone());
        let (processes, locks) = (shape.processes, shape.locks);
        if !(2..=MAX_RANKS).contains(&shape.ranks) {
            return Err(SharedError::Cluster(ClusterError::Size {
                what: "ranks",
                given: shape.ranks.into(),
                least: 2,
                most: MAX_RANKS.into(),
            }));
        }
        let mut cluster = Cluster::new(self.cluster.clone(), Random::new(self.seed ^ 0x5eed))?;
        let faults = Shape { nodes: self.cluster.nodes, heal_ns: self.heal_ns };
        let faults = self.rules.iter().flat_map(|rule| (rule.draw)(&mut random, &faults));
        cluster.set_faults(faults.collect());
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
        match self.stores_by_nic {
            true => programs.ask_imports(&mut cluster),
            false => cluster.schedule(0, 0),
        }
        let mut is_whole = true;
        while programs.violation.is_none() {
            match cluster.step(&mut programs) {
                Step::Inside => {}
                Step::Program(who) => {
                    let at = programs.programs[who as usize].at;
                    let busy_ns = cluster.busy_until_ns(at.node);
                    if busy_ns > cluster.now_ns() {
                        cluster.schedule(busy_ns, who);
                    } else {
                        programs.go(&mut cluster, who as usize);
                    }
                }
                Step::Rest => {
                    programs.check_rest(cluster.now_ns());
                    break;
                }
                Step::Interrupted => {
                    is_whole = false;
                    break;
                }
            }
            programs.follow_up(&mut cluster);
            if cluster.totals().events > MOST_EVENTS * threads as u64 {
                let text = "things still happen after millions of events".to_owned();
                programs.fail(cluster.now_ns(), "liveness", text);
            }
        }
        let mut coverage = cluster.coverage();
        coverage.add(&programs.coverage);
        Ok(SharedOutcome {
            coverage,
            is_whole,
            shape,
            violation: programs.violation,
            packets: cluster.totals().packets,
            seen: programs.tests.map_or_else(Vec::new, |tests| tests.seen),
        })
    }
}

impl fmt::Display for SharedScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedShape { ranks, processes, threads, allocations, locks, phases, steps, hold_ns, lock_passes } =
            self.shape;
        let ClusterConfig { nodes, link, .. } = self.cluster;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "  nodes {nodes}, processes of each {processes}: {ranks} ranks, threads of each {threads}")?;
        writeln!(
            f,
            "  link {} ns, {} bit/s, {} packets, {}",
            link.latency_ns, link.bits_per_second, link.queue_packets, self.cluster.delivery
        )?;
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
        writeln!(f, "  rules {}, healed at {} ns", names(&self.rules), self.heal_ns)?;
        match self.canary {
            Some(canary) => writeln!(f, "  with a bug put in: {canary:?}"),
            None => Ok(()),
        }
    }
}
