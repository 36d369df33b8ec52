//! A run of calls that a seed names.

use std::fmt;

use mapwire_rpc::Config;
use mapwire_wire::{CHUNK_BYTES, NodeId};

use super::running::{EVENTS_A_CALL, event_of_call};
use super::{Call, Programs, RpcSeen};
use crate::canary::Canary;
use crate::cluster::{ClusterConfig, Delivery};
use crate::hardware::node::check_size;
use crate::random::Random;
use crate::run::{AFTER_HEALING, Drawn, Outcome, Part, RunError, Wanted, Workload, drive};

/// How many nodes may call each other here.
const NODES: (u64, u64) = (2, 256);
/// When the last fault ends, at the latest.
const LONGEST_NS: u64 = 60_000_000;
/// Bytes of a message besides arguments or results.
const HEADER_BYTES: u64 = 128;

/// A run as it was drawn.
#[derive(Debug)]
pub struct RpcScenario {
    pub drawn: Drawn,
    pub config: Config,
    pub calls: u32,
    /// Of 100 calls, those without an answer.
    pub one_way_percent: u64,
    /// Of 100 calls, those before which the caller ends its connection.
    pub close_percent: u64,
    /// How long calls wait at most.
    pub timeout_ns: u64,
}

impl Workload for RpcScenario {
    type Seen = RpcSeen;

    fn draw(seed: u64, wanted: &Wanted) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let by_canary = wanted.canary.and_then(Canary::of_cluster);
        let lossy = wanted.lossy.or(by_canary.and_then(Canary::is_lossy));
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
        let one_way_percent = *random.pick(&[0, 10, 50]);
        let timeout_ns = random.spread(500_000, 1_000_000_000);
        // Apart, so that seeds draw all else as they always did.
        let close_percent = *Random::new(!seed).pick(&[0, 0, 5]);
        let rules = Drawn::bears(&wanted.rules, is_lossy, false, &["forge"]);
        let heal_ns = (u64::from(calls) * between_ns).clamp(1_000_000, LONGEST_NS);
        let drawn = Drawn { seed, cluster, rules, heal_ns, canary: wanted.canary, random };
        Ok(Self { drawn, config, calls, one_way_percent, close_percent, timeout_ns })
    }

    fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    fn calls(&self) -> usize {
        self.calls as usize
    }

    fn run_some(&self, part: Part<'_>) -> Result<Outcome<RpcSeen>, RunError> {
        let Drawn { cluster: ClusterConfig { nodes, max_payload_bytes, .. }, heal_ns, canary, .. } = self.drawn;
        check_size("nodes", nodes.into(), NODES)?;
        let (mut cluster, mut random) = self.begin(part)?;
        let most_bytes = max_payload_bytes.min(CHUNK_BYTES);
        let longest_bytes = most_bytes as u64 - HEADER_BYTES;
        let mut programs = Programs {
            nodes,
            config: self.config,
            next_event: self.calls,
            canary,
            ended_ns: heal_ns,
            close_percent: self.close_percent,
            dead: vec![false; nodes.into()],
            random: Random::new(random.next()),
            ..Programs::default()
        };
        for node in programs.all() {
            programs.put(&mut cluster, node)?;
        }
        let end_ns = heal_ns + heal_ns / AFTER_HEALING;
        for number in 0..self.calls {
            let node = random.below(nodes.into()) as u16;
            // Any other node.
            let to = (node + 1 + random.below(u64::from(nodes) - 1) as u16) % nodes;
            let at_ns = random.below(end_ns);
            if (part.has_call)(number as usize) {
                cluster.schedule(at_ns, event_of_call(number));
            }
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
        let most_events = EVENTS_A_CALL * (u64::from(self.calls) + 50);
        Ok(drive(cluster, programs, (most_events, u64::MAX)))
    }
}

impl fmt::Display for RpcScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cluster, config) = (&self.drawn.cluster, &self.config);
        writeln!(f, "seed {}", self.drawn.seed)?;
        writeln!(f, "  nodes {}", cluster.nodes)?;
        let bytes = cluster.max_payload_bytes;
        writeln!(f, "  {}, payloads up to {bytes} B, {}", self.drawn.links(), cluster.delivery)?;
        writeln!(
            f,
            "  {} calls, {} % without an answer, {} % after the end of a connection, timeouts up to {} ns",
            self.calls, self.one_way_percent, self.close_percent, self.timeout_ns
        )?;
        writeln!(f, "  a window of {} calls, {} of a caller in hand at once", config.window, config.max_in_progress)?;
        self.drawn.print_end(f)
    }
}
