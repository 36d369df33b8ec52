//! A run of global memory that a seed names.

use std::collections::BTreeMap;
use std::fmt;

use mapwire_gms::{Config, FRAME_BYTES, Gms, MAX_NODES, NodeSet, RowSize};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId};

use super::buggy::Buggy;
use super::donors::{self, DonorShape};
use super::running::EVENTS_A_CALL;
use super::seen::Seen;
use super::{
    Call, Ending, FRAMES_ADDRESS, GLOBAL, GlobalScenario, GlobalShape, OWN_FRAMES, PROCESS, Program, Programs,
};
use crate::canary::Canary;
use crate::cluster::{Cluster, ClusterConfig, Delivery};
use crate::hardware::node::check_size;
use crate::random::Random;
use crate::run::{AFTER_HEALING, Drawn, Outcome, Part, RunError, Wanted, Workload, drive};
use crate::segments::Segments;

/// How many nodes a global memory may have here.
const NODES: (u64, u64) = (2, MAX_NODES as u64);
/// When the last fault ends, at the latest: no link takes a node for dead by then.
const LONGEST_NS: u64 = 60_000_000;

impl Workload for GlobalScenario {
    type Seen = Seen;

    fn draw(seed: u64, wanted: &Wanted) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let by_canary = wanted.canary.and_then(Canary::of_cluster);
        let lossy = wanted.lossy.or(by_canary.and_then(Canary::is_lossy));
        // Apart, so that seeds draw all else as they always did.
        let mut apart = Random::new(!seed);
        let is_drawn = apart.chance(50);
        let is_of_donors = wanted.canary.map_or(is_drawn, Canary::is_of_client);
        let mut cluster = ClusterConfig::drawn_for_service(&mut random, wanted.nodes, lossy);
        if is_of_donors && wanted.nodes.is_none() {
            cluster.nodes = *apart.pick(&[2, 3, 3, 3, 4, 5]);
        }
        let (nodes, is_lossy) = (cluster.nodes, cluster.delivery != Delivery::Lossless);
        let shape = GlobalShape {
            nodes,
            members: random.within(u64::from(nodes).div_ceil(2), nodes.into()) as u16,
            pool_frames: *random.pick(&[4, 16, 64]),
            pages: random.within(1, 12),
            shared_pages: random.within(1, 6),
            requests: *random.pick(&[2, 4, 16]),
            directory_bytes: *random.pick(&[256, 2048, 1 << 16]),
            on_disk_percent: *random.pick(&[0, 50, 100]),
            moves_percent: *random.pick(&[0, 2, 10]),
            epoch_ms: *random.pick(&[5, 50, 1_000]),
        };
        let stores_by_nic = is_lossy || random.chance(50);
        let calls = random.spread(100, 2_000) as u32;
        let calls = wanted.calls.unwrap_or(calls);
        let between_ns = random.spread(1_000, 40_000);
        // Donors die by steps of the program.
        let not: &[&str] = if is_of_donors { &["restart", "forge", "crash"] } else { &["restart", "forge"] };
        let rules = Drawn::bears(&wanted.rules, is_lossy, stores_by_nic, not);
        let heal_ns = (u64::from(calls) * between_ns).clamp(1_000_000, LONGEST_NS);
        let drawn = Drawn { seed, cluster, rules, heal_ns, canary: wanted.canary, random };
        let donors = is_of_donors.then(|| DonorShape::draw(apart, nodes, wanted.calls));
        Ok(Self { drawn, shape, calls, stores_by_nic, donors })
    }

    fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    fn calls(&self) -> usize {
        self.donors.map_or(self.calls, |shape| shape.steps) as usize
    }

    fn run_some(&self, part: Part<'_>) -> Result<Outcome<Seen>, RunError> {
        let (shape, heal_ns) = (self.shape, self.drawn.heal_ns);
        check_size("nodes", shape.nodes.into(), NODES)?;
        if let Some(shape) = self.donors {
            return donors::run(self, shape, part);
        }
        let (mut cluster, mut random) = self.begin(part)?;
        let end_ns = heal_ns + heal_ns / AFTER_HEALING;
        let call = |_| Call {
            at_ns: random.below(end_ns),
            node: NodeId(random.below(shape.nodes.into()) as u16),
            seed: random.next(),
        };
        let calls: Vec<Call> = (0..self.calls).map(call).collect();
        let mut programs = self.put(&mut cluster, &mut random)?;
        for (number, call) in (0..).zip(&calls) {
            if (part.has_call)(number as usize) {
                cluster.schedule(call.at_ns, number);
            }
        }
        programs.calls = calls;
        programs.begin_ending(&mut cluster, end_ns);
        let most_events = EVENTS_A_CALL * (u64::from(self.calls) + 50);
        Ok(drive(cluster, programs, (most_events, u64::MAX)))
    }
}

impl GlobalScenario {
    /// Puts the global memory of each node there.
    fn put(&self, cluster: &mut Cluster, random: &mut Random) -> Result<Programs, RunError> {
        let shape = self.shape;
        let members: NodeSet = (0..shape.members).map(NodeId).collect();
        let frames = OWN_FRAMES + shape.pool_frames;
        let bytes = u64::from(frames) * FRAME_BYTES;
        let mut programs = Programs {
            calls: Vec::new(),
            ending: Ending::new(shape.pages),
            shape,
            programs: Vec::new(),
            truths: BTreeMap::new(),
            segments: Segments::new(GLOBAL, FRAMES_ADDRESS, bytes, self.stores_by_nic),
            copies: Vec::new(),
            first_copy: self.calls,
            tag: 0,
            crashed: Vec::new(),
            canary: self.drawn.canary,
            random: Random::new(random.next()),
            seen: Seen::default(),
            violation: None,
        };
        for node in programs.nodes() {
            let gms = Gms::new(Config {
                process: PROCESS,
                nodes: programs.nodes().collect(),
                directory_bytes: shape.directory_bytes,
                row_size: RowSize::Eight,
                requests: shape.requests,
                epoch_ms: shape.epoch_ms,
                ..Config::new(node, members, frames, shape.pool_frames)
            })?;
            let service: Box<dyn Service> = match self.drawn.canary {
                Some(bug) if bug.is_of_global_memory() => Box::new(Buggy::new(gms, Some(bug))),
                _ => Box::new(gms),
            };
            cluster.parts(node).0.register(PROCESS, GLOBAL, service)?;
            programs.programs.push(Program {
                spare: (0..OWN_FRAMES).collect(),
                has_joined: members.contains(node),
                ..Program::default()
            });
            // The memory of a cluster that has just been made has room for all of it.
            let exported = programs.segments.export(cluster, Endpoint::first_of(node));
            if let Err(text) = exported {
                programs.unexplained(0, text);
            }
        }
        programs.ask_imports(cluster);
        for node in programs.nodes() {
            if random.chance(80) {
                programs.donate(cluster, node, random);
            }
        }
        Ok(programs)
    }
}

impl fmt::Display for GlobalScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GlobalShape {
            nodes,
            members,
            pool_frames,
            pages,
            shared_pages,
            requests,
            directory_bytes,
            on_disk_percent,
            moves_percent,
            epoch_ms,
        } = self.shape;
        let Drawn { seed, cluster, .. } = &self.drawn;
        let bytes = cluster.max_payload_bytes;
        writeln!(f, "seed {seed}")?;
        writeln!(f, "  nodes {nodes}, members at the start {members}")?;
        writeln!(f, "  {}, payloads up to {bytes} B, {}", self.drawn.links(), cluster.delivery)?;
        if self.stores_by_nic {
            writeln!(f, "  pages are stores of the network interfaces")?;
        }
        writeln!(
            f,
            "  {pool_frames} frames that may serve others, {requests} operations of each kind at once, {directory_bytes} B of directory, epochs of {epoch_ms} ms"
        )?;
        writeln!(
            f,
            "  {} calls, {pages} pages of each node, {shared_pages} shared ones, {on_disk_percent} % on disk, {moves_percent} % of the calls join or leave",
            self.calls
        )?;
        if let Some(donors) = self.donors {
            write!(f, "{donors}")?;
        }
        self.drawn.print_end(f)
    }
}
