//! A run of global memory that a seed names.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use mapwire_gms::{Config, FRAME_BYTES, Gms, MAX_NODES, NodeSet, RowSize};
use mapwire_service::Service;
use mapwire_wire::{Endpoint, NodeId};

use super::buggy::Buggy;
use super::running::Call;
use super::seen::Seen;
use super::{FRAMES_ADDRESS, GLOBAL, GlobalError, GlobalOutcome, OWN_FRAMES, PROCESS, Program, Programs};
use crate::canary::GlobalCanary;
use crate::cluster::{Cluster, ClusterConfig, ClusterError, Delivery, Interrupt};
use crate::random::Random;
use crate::rules::{Rule, Shape};
use crate::segments::Segments;

/// How many nodes a global memory may have here.
pub const NODES: RangeInclusive<u16> = 2..=MAX_NODES;
/// Programs make calls for so long after the last fault has ended, in parts of the time before.
const AFTER_HEALING: u64 = 4;
/// When the last fault ends, at the latest: no link takes a node for dead by then.
const LONGEST_NS: u64 = 60_000_000;

/// What was drawn.
#[derive(Clone, Copy, Debug)]
pub struct GlobalShape {
    /// Nodes.
    pub nodes: u16,
    /// Of them, those that are members at the start.
    pub members: u16,
    /// Frames of each node that may serve others.
    pub pool_frames: u32,
    /// Pages of each node's own.
    pub pages: u64,
    /// Pages that all share.
    pub shared_pages: u64,
    /// Operations of each kind that a node may have under way.
    pub requests: u16,
    /// Bytes of each node's part of the directory.
    pub directory_bytes: usize,
    /// Of 100 putpages, those of a page that is on permanent storage.
    pub on_disk_percent: u64,
    /// Of 100 calls, those that join or leave.
    pub moves_percent: u64,
    /// How long an epoch lasts at most.
    pub epoch_ms: u32,
}

/// What a run is to be like. What is `None` is drawn from the seed.
#[derive(Clone, Debug, Default)]
pub struct GlobalWanted {
    /// Nodes: 2 to 256.
    pub nodes: Option<u16>,
    /// Rules; empty: no faults. Restarts are left out: a node that is gone stays so.
    pub rules: Vec<Rule>,
    /// Whether the transport may lose packets.
    pub lossy: Option<bool>,
    /// Calls of all programs.
    pub calls: Option<u32>,
    /// The bug to put in.
    pub canary: Option<GlobalCanary>,
}

/// A run as it was drawn.
#[derive(Debug)]
pub struct GlobalScenario {
    /// Its seed.
    pub seed: u64,
    /// The programs.
    pub shape: GlobalShape,
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Rules by name.
    pub rules: Vec<Rule>,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
    /// Calls of all programs.
    pub calls: u32,
    /// Pages are stores of the network interfaces; otherwise each node has mapped the memory of the others.
    pub stores_by_nic: bool,
    /// The bug that is put in.
    pub canary: Option<GlobalCanary>,
    /// Draws faults and calls.
    random: Random,
}

impl GlobalScenario {
    /// Draws a run.
    #[must_use]
    pub fn draw(seed: u64, wanted: &GlobalWanted) -> Self {
        let mut random = Random::new(seed);
        let by_canary = wanted.canary.and_then(GlobalCanary::of_cluster);
        let lossy = wanted.lossy.or(by_canary.and_then(crate::Canary::is_lossy));
        let cluster = ClusterConfig::drawn_for_service(&mut random, wanted.nodes, lossy);
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
        let stays = |rule: &&Rule| {
            let is_borne = is_lossy || !rule.is_lossy;
            // Pages that a store needs must be had.
            let is_had = !stores_by_nic || rule.name != "refuse-pins";
            is_borne && is_had && !["restart", "forge"].contains(&rule.name)
        };
        let calls = random.spread(100, 2_000) as u32;
        let calls = wanted.calls.unwrap_or(calls);
        let between_ns = random.spread(1_000, 40_000);
        Self {
            seed,
            shape,
            cluster,
            rules: wanted.rules.iter().filter(stays).copied().collect(),
            heal_ns: (u64::from(calls) * between_ns).clamp(1_000_000, LONGEST_NS),
            calls,
            stores_by_nic,
            canary: wanted.canary,
            random,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The cluster or its global memory cannot be made.
    pub fn run(&self) -> Result<GlobalOutcome, GlobalError> {
        self.run_until(&Interrupt::default())
    }

    /// Runs it, unless it is interrupted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(&self, interrupt: &Interrupt) -> Result<GlobalOutcome, GlobalError> {
        let (shape, mut random) = (self.shape, self.random.clone());
        if !NODES.contains(&shape.nodes) {
            return Err(GlobalError::Cluster(ClusterError::Size {
                what: "nodes",
                given: shape.nodes.into(),
                least: (*NODES.start()).into(),
                most: (*NODES.end()).into(),
            }));
        }
        let mut cluster = Cluster::new(self.cluster.clone(), Random::new(self.seed ^ 0x5eed))?;
        let faults = Shape { nodes: shape.nodes, heal_ns: self.heal_ns };
        let faults = self.rules.iter().flat_map(|rule| (rule.draw)(&mut random, &faults));
        cluster.set_faults(faults.collect());
        let end_ns = self.heal_ns + self.heal_ns / AFTER_HEALING;
        let call = |_| Call {
            at_ns: random.below(end_ns),
            node: NodeId(random.below(shape.nodes.into()) as u16),
            seed: random.next(),
        };
        let calls: Vec<Call> = (0..self.calls).map(call).collect();
        let mut programs = self.begin(&mut cluster, &mut random)?;
        for (number, call) in (0..).zip(&calls) {
            cluster.schedule(call.at_ns, number);
        }
        cluster.set_interrupt(interrupt);
        let is_whole = programs.run(&mut cluster, &calls, end_ns);
        let totals = cluster.totals();
        let mut coverage = cluster.coverage();
        programs.seen.cover(&mut coverage);
        Ok(GlobalOutcome {
            coverage,
            is_whole,
            violation: programs.violation,
            events: totals.events,
            packets: totals.packets,
            seen: programs.seen,
        })
    }

    /// Puts the global memory of each node there.
    fn begin(&self, cluster: &mut Cluster, random: &mut Random) -> Result<Programs, GlobalError> {
        let shape = self.shape;
        let members: NodeSet = (0..shape.members).map(NodeId).collect();
        let frames = OWN_FRAMES + shape.pool_frames;
        let bytes = u64::from(frames) * FRAME_BYTES;
        let mut programs = Programs {
            shape,
            programs: Vec::new(),
            truths: BTreeMap::new(),
            segments: Segments::new(GLOBAL, FRAMES_ADDRESS, bytes, self.stores_by_nic),
            copies: Vec::new(),
            first_copy: self.calls,
            tag: 0,
            crashed: Vec::new(),
            canary: self.canary,
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
            let service: Box<dyn Service> = match self.canary {
                Some(bug) if bug.is_of_protocol() => Box::new(Buggy::new(gms, bug)),
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
                programs.broke(0, text);
            }
        }
        cluster.set_canary(self.canary.and_then(GlobalCanary::of_cluster));
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
        let link = self.cluster.link;
        let bytes = self.cluster.max_payload_bytes;
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "  nodes {nodes}, members at the start {members}")?;
        writeln!(
            f,
            "  link {} ns, {} bit/s, {} packets, payloads up to {bytes} B, {}",
            link.latency_ns, link.bits_per_second, link.queue_packets, self.cluster.delivery
        )?;
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
        writeln!(f, "  rules {}, healed at {} ns", crate::rules::names(&self.rules), self.heal_ns)?;
        match self.canary {
            Some(canary) => writeln!(f, "  with a bug put in: {canary:?}"),
            None => Ok(()),
        }
    }
}
