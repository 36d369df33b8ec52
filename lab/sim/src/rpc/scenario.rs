//! A run of calls that a seed names.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use mapwire_rpc::Config;
use mapwire_wire::{CHUNK_BYTES, NodeId};

use super::running::{Call, event_of_call};
use super::{Programs, RpcError, RpcOutcome, RpcSeen};
use crate::canary::RpcCanary;
use crate::checks::restarts::Restarts;
use crate::cluster::{Cluster, ClusterConfig, ClusterError, Delivery, Interrupt};
use crate::random::Random;
use crate::rules::{Rule, Shape};

/// How many nodes may call each other here.
pub const NODES: RangeInclusive<u16> = 2..=256;
/// Calls are made for so long after the last fault has ended, in parts of the time before.
const AFTER_HEALING: u64 = 4;
/// When the last fault ends, at the latest.
const LONGEST_NS: u64 = 60_000_000;
/// Bytes of a message besides arguments or results.
const HEADER_BYTES: u64 = 128;

/// What a run is to be like. What is `None` is drawn from the seed.
#[derive(Clone, Debug, Default)]
pub struct RpcWanted {
    /// Nodes: 2 to 256.
    pub nodes: Option<u16>,
    /// Rules; empty: no faults.
    pub rules: Vec<Rule>,
    /// Whether the transport may lose packets.
    pub lossy: Option<bool>,
    /// Calls of all programs.
    pub calls: Option<u32>,
    /// The bug to put in.
    pub canary: Option<RpcCanary>,
}

/// A run as it was drawn.
#[derive(Debug)]
pub struct RpcScenario {
    /// Its seed.
    pub seed: u64,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// What each node takes.
    pub config: Config,
    /// Rules by name.
    pub rules: Vec<Rule>,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
    /// Calls of all programs.
    pub calls: u32,
    /// Of 100 calls, those without an answer.
    pub one_way_percent: u64,
    /// Of 100 calls, those before which the caller ends its connection.
    pub close_percent: u64,
    /// How long calls wait at most.
    pub timeout_ns: u64,
    /// The bug that is put in.
    pub canary: Option<RpcCanary>,
    random: Random,
}

impl RpcScenario {
    /// Draws a run.
    #[must_use]
    pub fn draw(seed: u64, wanted: &RpcWanted) -> Self {
        let mut random = Random::new(seed);
        let by_canary = wanted.canary.and_then(RpcCanary::of_cluster);
        let lossy = wanted.lossy.or(by_canary.and_then(crate::Canary::is_lossy));
        let cluster = ClusterConfig::drawn_for_service(&mut random, wanted.nodes, lossy);
        let is_lossy = cluster.delivery != Delivery::Lossless;
        let config = Config {
            window: *random.pick(&[1, 4, 256]),
            max_in_progress: *random.pick(&[1, 8, 1024]),
            cache_bytes: *random.pick(&[0, 1 << 10, 1 << 16]),
            welcomes: true,
            ..Config::default()
        };
        let calls = random.spread(100, 1_500) as u32;
        let calls = wanted.calls.unwrap_or(calls);
        let between_ns = random.spread(1_000, 40_000);
        Self {
            seed,
            cluster,
            config,
            rules: wanted
                .rules
                .iter()
                .filter(|rule| (is_lossy || !rule.is_lossy) && rule.name != "forge")
                .copied()
                .collect(),
            heal_ns: (u64::from(calls) * between_ns).clamp(1_000_000, LONGEST_NS),
            calls,
            one_way_percent: *random.pick(&[0, 10, 50]),
            timeout_ns: random.spread(500_000, 1_000_000_000),
            // Apart, so that seeds draw all else as they always did.
            close_percent: *Random::new(!seed).pick(&[0, 0, 5]),
            canary: wanted.canary,
            random,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The cluster cannot be made.
    pub fn run(&self) -> Result<RpcOutcome, RpcError> {
        self.run_until(&Interrupt::default())
    }

    /// Runs it, unless it is interrupted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(&self, interrupt: &Interrupt) -> Result<RpcOutcome, RpcError> {
        let nodes = self.cluster.nodes;
        if !NODES.contains(&nodes) {
            return Err(RpcError::Cluster(ClusterError::Size {
                what: "nodes",
                given: nodes.into(),
                least: (*NODES.start()).into(),
                most: (*NODES.end()).into(),
            }));
        }
        let mut random = self.random.clone();
        let mut cluster = Cluster::new(self.cluster.clone(), Random::new(self.seed ^ 0x5eed))?;
        let heal_ns = self.heal_ns;
        let shape = Shape { nodes, heal_ns };
        let faults = self.rules.iter().flat_map(|rule| (rule.draw)(&mut random, &shape));
        cluster.set_faults(faults.collect());
        cluster.set_canary(self.canary.and_then(RpcCanary::of_cluster));
        let most_bytes = self.cluster.max_payload_bytes.min(CHUNK_BYTES);
        let longest_bytes = most_bytes as u64 - HEADER_BYTES;
        let mut programs = Programs {
            nodes,
            config: self.config,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            next_event: self.calls,
            mixes_up: self.canary == Some(RpcCanary::OtherReply),
            close_percent: self.close_percent,
            closed: 0,
            owed: BTreeMap::new(),
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
        let mut calls = Vec::new();
        for number in 0..self.calls {
            let node = random.below(nodes.into()) as u16;
            // Any other node.
            let to = (node + 1 + random.below(u64::from(nodes) - 1) as u16) % nodes;
            cluster.schedule(random.below(end_ns), event_of_call(number));
            let most_bytes = match random.chance(10) {
                true => longest_bytes,
                false => 40,
            };
            calls.push(Call {
                node: NodeId(node),
                to: NodeId(to),
                bytes: random.below(most_bytes),
                timeout_ns: random.within(self.timeout_ns / 10, self.timeout_ns),
                is_one_way: random.chance(self.one_way_percent),
                tries: 0,
            });
        }
        cluster.set_interrupt(interrupt);
        let is_whole = programs.run(&mut cluster, &mut calls);
        let totals = cluster.totals();
        let mut coverage = cluster.coverage();
        programs.seen.cover(&mut coverage);
        Ok(RpcOutcome {
            coverage,
            is_whole,
            violation: programs.violation,
            events: totals.events,
            packets: totals.packets,
            seen: programs.seen,
        })
    }
}

impl fmt::Display for RpcScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, config) = (&self.cluster, &self.config);
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "  nodes {}", cluster.nodes)?;
        let (link, bytes) = (cluster.link, cluster.max_payload_bytes);
        writeln!(
            f,
            "  link {} ns, {} bit/s, {} packets, payloads up to {bytes} B, {}",
            link.latency_ns, link.bits_per_second, link.queue_packets, cluster.delivery
        )?;
        writeln!(
            f,
            "  {} calls, {} % without an answer, {} % after the end of a connection, timeouts up to {} ns",
            self.calls, self.one_way_percent, self.close_percent, self.timeout_ns
        )?;
        writeln!(
            f,
            "  a window of {} calls, {} of a caller in hand at once, {} B of replies kept",
            config.window, config.max_in_progress, config.cache_bytes
        )?;
        writeln!(f, "  rules {}, healed at {} ns", crate::rules::names(&self.rules), self.heal_ns)?;
        match self.canary {
            Some(canary) => writeln!(f, "  with a bug put in: {canary:?}"),
            None => Ok(()),
        }
    }
}
