//! A run of calls that a seed names.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use mapwire_rpc::Config;
use mapwire_wire::{CHUNK_BYTES, NodeId};

use super::running::{Call, EVENTS_A_CALL, event_of_call};
use super::{Programs, RpcSeen};
use crate::canary::RpcCanary;
use crate::checks::restarts::Restarts;
use crate::cluster::{ClusterConfig, Delivery, Interrupt};
use crate::random::Random;
use crate::rules::Rule;
use crate::run::{self, AFTER_HEALING, Outcome, RunError, ServiceWanted, Workload, borne, check_size};

/// How many nodes may call each other here.
pub const NODES: RangeInclusive<u16> = 2..=256;
/// When the last fault ends, at the latest.
const LONGEST_NS: u64 = 60_000_000;
/// Bytes of a message besides arguments or results.
const HEADER_BYTES: u64 = 128;

pub type RpcWanted = ServiceWanted<RpcCanary>;

/// A run as it was drawn.
#[derive(Debug)]
pub struct RpcScenario {
    pub seed: u64,
    pub cluster: ClusterConfig,
    pub config: Config,
    pub rules: Vec<Rule>,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
    pub calls: u32,
    /// Of 100 calls, those without an answer.
    pub one_way_percent: u64,
    /// Of 100 calls, those before which the caller ends its connection.
    pub close_percent: u64,
    /// How long calls wait at most.
    pub timeout_ns: u64,
    pub canary: Option<RpcCanary>,
    random: Random,
}

impl Workload for RpcScenario {
    type Wanted = RpcWanted;
    type Seen = RpcSeen;

    fn draw(seed: u64, wanted: &RpcWanted) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let by_canary = wanted.canary.and_then(RpcCanary::of_cluster);
        let lossy = wanted.lossy.or(by_canary.and_then(crate::Canary::is_lossy));
        let cluster = ClusterConfig::drawn_for_service(&mut random, wanted.nodes, lossy);
        let is_lossy = cluster.delivery != Delivery::Lossless;
        let config = Config {
            window: *random.pick(&[1, 4, 256]),
            max_in_progress: *random.pick(&[1, 8, 1024]),
            ..Config::default()
        };
        let calls = random.spread(100, 1_500) as u32;
        let calls = wanted.calls.unwrap_or(calls);
        let between_ns = random.spread(1_000, 40_000);
        Ok(Self {
            seed,
            cluster,
            config,
            rules: borne(&wanted.rules, is_lossy, false, &["forge"]),
            heal_ns: (u64::from(calls) * between_ns).clamp(1_000_000, LONGEST_NS),
            calls,
            one_way_percent: *random.pick(&[0, 10, 50]),
            timeout_ns: random.spread(500_000, 1_000_000_000),
            // Apart, so that seeds draw all else as they always did.
            close_percent: *Random::new(!seed).pick(&[0, 0, 5]),
            canary: wanted.canary,
            random,
        })
    }

    fn run_until(&self, interrupt: &Interrupt) -> Result<Outcome<RpcSeen>, RunError> {
        let nodes = self.cluster.nodes;
        check_size("nodes", nodes, NODES)?;
        let mut random = self.random.clone();
        let heal_ns = self.heal_ns;
        let mut cluster = run::cluster(self.seed, &self.cluster, (&self.rules, heal_ns), &mut random)?;
        cluster.set_canary(self.canary.and_then(RpcCanary::of_cluster));
        let most_bytes = self.cluster.max_payload_bytes.min(CHUNK_BYTES);
        let longest_bytes = most_bytes as u64 - HEADER_BYTES;
        let mut programs = Programs {
            calls: Vec::new(),
            nodes,
            config: self.config,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            next_event: self.calls,
            canary: self.canary,
            loans: BTreeMap::new(),
            ended_ns: heal_ns,
            greeted_ns: BTreeMap::new(),
            imports: Vec::new(),
            close_percent: self.close_percent,
            closed: 0,
            carried_out: BTreeMap::new(),
            dead: vec![false; nodes.into()],
            anew: Vec::new(),
            incarnations: 0,
            restarts: Restarts::default(),
            random: Random::new(random.next()),
            seen: RpcSeen::default(),
            violation: None,
        };
        for node in programs.all() {
            programs.put(&mut cluster, node)?;
        }
        let end_ns = heal_ns + heal_ns / AFTER_HEALING;
        for number in 0..self.calls {
            let node = random.below(nodes.into()) as u16;
            // Any other node.
            let to = (node + 1 + random.below(u64::from(nodes) - 1) as u16) % nodes;
            cluster.schedule(random.below(end_ns), event_of_call(number));
            let most_bytes = if random.chance(10) { longest_bytes } else { 40 };
            programs.calls.push(Call {
                node: NodeId(node),
                to: NodeId(to),
                bytes: random.below(most_bytes),
                timeout_ns: random.within(self.timeout_ns / 10, self.timeout_ns),
                is_one_way: random.chance(self.one_way_percent),
                tries: 0,
                apart_since_ns: None,
            });
        }
        cluster.set_interrupt(interrupt);
        let most_events = EVENTS_A_CALL * (u64::from(self.calls) + 50);
        let is_whole = run::drive(&mut cluster, &mut programs, most_events);
        let Programs { violation, seen, .. } = programs;
        Ok(Outcome::new(&cluster, is_whole, violation, seen, |coverage| seen.cover(coverage)))
    }
}

impl fmt::Display for RpcScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, config) = (&self.cluster, &self.config);
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "  nodes {}", cluster.nodes)?;
        let bytes = cluster.max_payload_bytes;
        writeln!(f, "  {}, payloads up to {bytes} B, {}", run::links(cluster), cluster.delivery)?;
        writeln!(
            f,
            "  {} calls, {} % without an answer, {} % after the end of a connection, timeouts up to {} ns",
            self.calls, self.one_way_percent, self.close_percent, self.timeout_ns
        )?;
        writeln!(f, "  a window of {} calls, {} of a caller in hand at once", config.window, config.max_in_progress)?;
        run::print_end(f, &self.rules, self.heal_ns, self.canary)
    }
}
