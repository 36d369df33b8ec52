//! A run of the lazily consistent shared memory that a seed names.

use std::collections::BTreeMap;
use std::fmt;

use mapwire_dsm::{Config, Counters, Dsm, MAX_RANKS, ObjectKind, PAGE_BYTES, Protocol};
use mapwire_node::SharedMemory;
use mapwire_translation::{DesignConfig, PinRules};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, MAX_PAYLOAD_BYTES, NodeId, ProcessId};

use super::rounds::{self, LOCKS};
use super::{Doing, LazySeen, Program, Programs};
use crate::checks::happens_before::Oracle;
use crate::cluster::{ClusterConfig, Delivery, EARLY_PACKETS, FIRST_ADDRESS, LinkConfig};
use crate::coverage::Coverage;
use crate::hardware::node::check_size;
use crate::random::Random;
use crate::run::{Drawn, Outcome, Part, RunError, Wanted, Workload, drive};
use crate::segments::Segments;
use crate::shared::buggy::Buggy;
use crate::shared::{MOST_EVENTS, SHARED};

/// Pages of the shared memory; the last one is never allocated.
const PAGES: u32 = 32;

#[derive(Clone, Copy, Debug)]
pub struct LazyShape {
    pub ranks: u16,
    pub processes: u16,
    pub threads: u16,
    /// Time between two operations of a thread, at most.
    pub think_ns: u64,
    pub twins: u32,
    pub notices: u32,
    pub home_moves_after: u16,
    pub lock_passes: u8,
    /// Races are looked for.
    pub finds_races: bool,
    /// What each lock is, and the barriers: objects of a kind, or numbered.
    pub locks: [Option<ObjectKind>; LOCKS as usize],
    pub barriers: Option<ObjectKind>,
}

/// What locks and barriers can be.
const LOCK_KINDS: [Option<ObjectKind>; 5] =
    [None, Some(ObjectKind::Mutex), Some(ObjectKind::RwLock), Some(ObjectKind::Semaphore), Some(ObjectKind::Once)];
const BARRIER_KINDS: [Option<ObjectKind>; 4] =
    [None, Some(ObjectKind::Flag), Some(ObjectKind::Barrier), Some(ObjectKind::Reduction)];

/// A run as it was drawn.
#[derive(Debug)]
pub struct LazyScenario {
    pub drawn: Drawn,
    pub shape: LazyShape,
    /// Diffs and fetches are stores and fetches of the network interfaces; otherwise each rank has mapped the memory of the others.
    pub stores_by_nic: bool,
}

impl LazyScenario {
    fn threads(&self) -> usize {
        usize::from(self.shape.ranks) * usize::from(self.shape.threads)
    }

    fn draw_rounds(&self, random: &mut Random) -> Vec<rounds::Round> {
        rounds::draw(random, self.threads(), self.shape.threads.into())
    }
}

impl Workload for LazyScenario {
    type Seen = LazySeen;

    fn draw(seed: u64, wanted: &Wanted) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let drawn_nodes = random.spread(2, 6) as u16;
        let nodes = wanted.nodes.unwrap_or(drawn_nodes);
        let processes = match random.spread(1, 2) as u16 {
            2 if nodes <= MAX_RANKS / 2 => 2,
            _ => 1,
        };
        let threads = random.spread(1, 3) as u16;
        let least_twins = 2 * u32::from(threads) + 2;
        // From another source, which leaves the rest of the run as it is.
        let mut kinds = Random::new(!seed);
        let shape = LazyShape {
            ranks: nodes.saturating_mul(processes),
            processes,
            threads,
            think_ns: random.spread(50, 50_000),
            twins: *random.pick(&[least_twins, 64]),
            notices: 128 + 4 * u32::from(nodes.saturating_mul(processes)) + random.below(2) as u32 * 1_000,
            home_moves_after: random.below(4) as u16,
            lock_passes: *random.pick(&[0, 4]),
            finds_races: random.chance(30),
            locks: [(); LOCKS as usize].map(|()| *kinds.pick(&LOCK_KINDS)),
            barriers: *kinds.pick(&BARRIER_KINDS),
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
        let stores_by_nic = is_lossy || random.chance(70);
        let heal_ns = random.spread(500_000, 10_000_000);
        let rules = Drawn::bears(&wanted.rules, is_lossy, stores_by_nic, &["crash", "restart", "forge"]);
        let drawn = Drawn { seed, cluster, rules, heal_ns, canary: wanted.canary, random };
        Ok(Self { drawn, shape, stores_by_nic })
    }

    fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    /// Rounds, of which each is a litmus test or drawn.
    fn calls(&self) -> usize {
        self.draw_rounds(&mut self.draw_faults().1).len()
    }

    fn run_some(&self, part: Part<'_>) -> Result<Outcome<LazySeen>, RunError> {
        let shape = self.shape;
        let LazyShape { ranks, processes, threads, twins, notices, home_moves_after, lock_passes, finds_races, .. } =
            shape;
        check_size("ranks", ranks.into(), (2, MAX_RANKS.into()))?;
        let (mut cluster, mut random) = self.begin(part)?;
        let mut rounds = self.draw_rounds(&mut random);
        let mut number = 0..;
        rounds.retain(|_| number.next().is_some_and(part.has_call));
        let bytes = PAGES as usize * PAGE_BYTES as usize;
        let endpoint = |rank: u16| Endpoint { node: NodeId(rank / processes), process: ProcessId(rank % processes) };
        let segments = Segments::new(SHARED, FIRST_ADDRESS, bytes as u64, self.stores_by_nic).with_fetches();
        let mut programs = Vec::new();
        for rank in 0..ranks {
            let at = endpoint(rank);
            let dsm = Dsm::new(Config {
                protocol: Protocol::Hlrc,
                twins,
                notices,
                home_moves_after,
                finds_races,
                locks: LOCKS,
                barriers: 3,
                chunk_pages: 2,
                lock_local_passes: lock_passes,
                participants: threads,
                ..Config::new(rank, ranks, threads, PAGES, 1)
            })?;
            let mut shared = SharedMemory::new(dsm, processes);
            for other in 0..ranks {
                shared.hear(endpoint(other));
            }
            let shared = Buggy::new(shared, self.drawn.canary, Random::new(random.next()));
            let (node, _) = cluster.parts(at.node);
            node.register(at.process, SHARED, Box::new(shared))?;
            // The memory of a cluster that has just been made has room for all of it.
            let _ = segments.export(&mut cluster, at);
            programs.extend((0..threads).map(|_| Program {
                at,
                doing: Doing::Nothing,
                is_pending: false,
                next: (0, 0),
                barriers: 0,
                random: Random::new(random.next()),
            }));
        }
        let count = self.threads();
        let mut programs = Programs {
            shape,
            programs,
            start: None,
            oracle: Oracle::new(bytes, count),
            last: BTreeMap::new(),
            lock_clocks: vec![vec![0; count]; LOCKS as usize],
            holders: vec![None; LOCKS as usize],
            readers: [0; LOCKS as usize],
            arrived: vec![(0, vec![0; count]); rounds::barriers(&rounds)],
            rounds,
            rights: BTreeMap::new(),
            segments,
            canary: self.drawn.canary,
            late: Vec::new(),
            coverage: Coverage::default(),
            loads: 0,
            races: 0,
            counters: Counters::default(),
            violation: None,
        };
        if self.stores_by_nic {
            programs.ask_imports(&mut cluster)
        } else {
            cluster.schedule(0, 0)
        }
        Ok(drive(cluster, programs, (MOST_EVENTS * count as u64, u64::MAX)))
    }
}

impl fmt::Display for LazyScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LazyShape {
            ranks,
            processes,
            threads,
            think_ns,
            twins,
            notices,
            home_moves_after,
            lock_passes,
            finds_races,
            locks,
            barriers,
        } = self.shape;
        let ClusterConfig { nodes, delivery, .. } = self.drawn.cluster;
        writeln!(f, "seed {}", self.drawn.seed)?;
        writeln!(f, "  nodes {nodes}, processes of each {processes}: {ranks} ranks, threads of each {threads}")?;
        writeln!(f, "  {}, {delivery}", self.drawn.links())?;
        if self.stores_by_nic {
            writeln!(f, "  diffs and fetches are made by the network interfaces")?;
        }
        writeln!(
            f,
            "  litmus tests of release consistency with {think_ns} ns between operations, {twins} twins, {notices} notices, homes that move after {home_moves_after} intervals (0: never), locks handed on in a rank {lock_passes} times"
        )?;
        let name = |kind: Option<ObjectKind>| kind.map_or("numbered", ObjectKind::name);
        writeln!(f, "  locks: {}; barriers: {}", locks.map(name).join(", "), name(barriers))?;
        if finds_races {
            writeln!(f, "  races are looked for")?;
        }
        self.drawn.print_end(f)
    }
}
