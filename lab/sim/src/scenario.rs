//! A run that a seed names: cluster, faults and programs drawn from it, a phase with faults, then rest.

use core::fmt;
use std::rc::Rc;

use mapwire_settings::{DesignText, parse_design};
use mapwire_translation::{AnyDesign, DesignConfig, PinLimit, PinRules, Pinning, TranslationDesign};

use crate::canary::Canary;
use crate::cluster::{ClusterConfig, Delivery, EARLY_PACKETS, LinkConfig};
use crate::hardware::node::ComputerError;
use crate::random::Random;
use crate::replay::{LANE_BYTES, Replay};
use crate::rules::{Fault, Shape};
use crate::run::{AFTER_HEALING, Drawn, Outcome, Part, RunError, Wanted, Workload, drive};
use crate::workload::{Call, Callers, Made, WorkloadConfig};

/// Everything must be at rest so long after the last call. A handshake with a node that has crashed is tried for 20 s.
const REST_NS: u64 = 40_000_000_000;
/// How long a link waits for a silent peer: longer than any fault.
const DEAD_AFTER_NS: u64 = 300_000_000;
/// The same where datagrams are sealed: peers find out that one has restarted by its silence, and shake hands anew.
const SEALED_DEAD_AFTER_NS: u64 = 1_000_000_000;
/// Events of a run at most, for each call.
const EVENTS_A_CALL: u64 = 20_000;

/// Pages that a process may pin at least, where that is limited: fewer than its exports and transfers may want at once.
const LEAST_PAGES: u64 = 40;

/// Designs that are drawn, as a command line writes them.
const DESIGNS: [&str; 6] = [
    "hierarchical,entries=1K",
    "hierarchical,entries=64",
    "shared-cache,entries=1K",
    "per-process,entries=1K",
    "interrupt,entries=256",
    "dynamic-handle",
];

/// A run as it was drawn.
#[derive(Debug)]
pub struct Scenario {
    pub drawn: Drawn,
    pub workload: WorkloadConfig,
    /// The calls of programs, in order of time.
    pub calls: Rc<[Call]>,
    /// Records of the trace that is replayed.
    pub replayed: Option<u64>,
    fault_seed: u64,
}

impl Workload for Scenario {
    /// Calls that did something, in order.
    type Seen = Vec<Made>;

    fn draw(seed: u64, wanted: &Wanted) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let nodes = random.spread(2, 16) as u16;
        let processes = random.spread(1, 3) as u16;
        let (nodes, processes) = match &wanted.replay {
            Some(replay) => replay.shape(wanted.nodes)?,
            None => (wanted.nodes.unwrap_or(nodes), processes),
        };
        let is_lossy = random.chance(50);
        let by_canary = wanted.canary.and_then(Canary::is_lossy);
        let is_lossy = wanted.lossy.or(by_canary).unwrap_or(is_lossy);
        // The checksum that a defect leaves unchecked is not there when they are sealed.
        let is_sealed = random.chance(50) && wanted.canary != Some(Canary::UncheckedSum);
        let delivery = match is_lossy {
            false => Delivery::Lossless,
            true => Delivery::Lossy {
                paths: random.within(1, 3) as u8,
                dead_after_ns: if is_sealed { SEALED_DEAD_AFTER_NS } else { DEAD_AFTER_NS },
                tells_of_crashes: random.chance(50),
                early_packets: EARLY_PACKETS,
                is_sealed,
            },
        };
        let link = LinkConfig {
            latency_ns: random.spread(500, 100_000),
            bits_per_second: random.spread(1_000_000_000, 400_000_000_000),
            // What has no room is lost where it can be; a link sends up to 64 at once.
            queue_packets: random.spread(if is_lossy { 16 } else { 1 }, 256) as u32,
        };
        let design = parse_design(random.pick::<&str>(&DESIGNS))?;
        let limit = match random.below(3) {
            0 => PinLimit::Unlimited,
            // What the trace did is to be done here too.
            _ if wanted.replay.is_some() => PinLimit::Unlimited,
            _ => PinLimit::Pages(random.spread(LEAST_PAGES, 400)),
        };
        let (design, limit) = match &wanted.translation {
            Some((design, limit)) => (parse_design(design)?, *limit),
            None => (design, limit),
        };
        let prepin = random.spread(1, 8);
        let words = random.spread(1, 16) as u32;
        let lane_bytes = random.spread(2, 192) * 64;
        let calls = random.spread(50, 1_500) as u32;
        let calls = wanted.calls.unwrap_or(calls);
        let heal_ns = random.spread(500_000, 50_000_000);
        let replayed = wanted.replay.as_ref().map(|replay| replay.calls_of(&mut random, nodes));
        let (lane_bytes, heal_ns) = match &replayed {
            // Faults end before the trace does.
            Some((_, last_ns)) => (LANE_BYTES, last_ns - last_ns / (AFTER_HEALING + 1)),
            None => (lane_bytes, heal_ns),
        };
        let (pins_on_miss, pins_exports) = habits(&design)?;
        let refuses = wanted.rules.iter().any(|rule| rule.name == "refuse-pins");
        let is_limited = limit != PinLimit::Unlimited;
        let cluster = ClusterConfig {
            nodes,
            processes,
            link,
            delivery,
            design,
            pin_rules: PinRules::default().with_limit(limit).with_prepin_pages(prepin),
            words,
            nic_memory_bytes: 64 << 20,
            max_payload_bytes: random.spread(1_000, 70_000) as usize,
        };
        let workload = WorkloadConfig {
            lane_bytes,
            words,
            is_limited,
            may_lack_pages: pins_on_miss && (refuses || is_limited),
            resends: is_lossy,
            pins_exports,
            keeps_holds: is_limited || pins_on_miss,
        };
        let count = u64::from(nodes) * u64::from(processes);
        let end_ns = heal_ns + heal_ns / AFTER_HEALING;
        let calls = match replayed {
            Some((calls, _)) => calls,
            None => {
                let draw = |_| Call {
                    at_ns: random.below(end_ns),
                    process: random.below(count) as u32,
                    seed: random.next(),
                    deed: None,
                };
                let mut drawn: Vec<Call> = (0..calls).map(draw).collect();
                drawn.sort_by_key(|call| call.at_ns);
                drawn
            }
        };
        let rules = Drawn::bears(&wanted.rules, is_lossy, false, &[]);
        let fault_seed = random.next();
        Ok(Self {
            drawn: Drawn { seed, cluster, rules, heal_ns, canary: wanted.canary, random },
            workload,
            calls: calls.into(),
            replayed: wanted.replay.as_ref().map(Replay::records),
            fault_seed,
        })
    }

    fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Each rule draws from a seed of its own, so that one fewer leaves the others as they are.
    fn draw_faults(&self) -> (Vec<Box<dyn Fault>>, Random) {
        let Drawn { cluster, heal_ns, rules, random, .. } = &self.drawn;
        let shape = Shape { nodes: cluster.nodes, heal_ns: *heal_ns };
        let mut faults = Vec::new();
        for rule in rules {
            let name = rule.name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
            faults.extend((rule.draw)(&mut Random::new(self.fault_seed ^ name), &shape));
        }
        (faults, random.clone())
    }

    fn run_some(&self, part: Part<'_>) -> Result<Outcome<Vec<Made>>, RunError> {
        let (mut cluster, _) = self.begin(part)?;
        let mut last_ns = self.drawn.heal_ns;
        for (number, call) in self.calls.iter().enumerate() {
            if (part.has_call)(number) {
                cluster.schedule(call.at_ns, number as u32);
                last_ns = last_ns.max(call.at_ns);
            }
        }
        let callers = Callers::new(&cluster, self.workload, Rc::clone(&self.calls));
        let most_events = EVENTS_A_CALL * (self.calls.len() as u64 + 50);
        Ok(drive(cluster, callers, (most_events, last_ns + REST_NS)))
    }
}

/// Whether a design pins on a miss, and whether it pins exports beforehand.
fn habits(design: &DesignConfig) -> Result<(bool, bool), RunError> {
    let design = AnyDesign::new(design).map_err(ComputerError::from)?;
    let on_miss = [design.pinning(), design.pinning_receive()].contains(&Pinning::OnMiss);
    let pins_exports = design.pinning_receive() == Pinning::BeforeTransfer;
    Ok((on_miss, pins_exports))
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = &self.drawn.cluster;
        let ClusterConfig { nodes, processes, delivery, design, pin_rules, words, nic_memory_bytes, .. } = cluster;
        writeln!(f, "seed {}", self.drawn.seed)?;
        writeln!(f, "  nodes {nodes}, processes of each {processes}")?;
        writeln!(f, "  {}, payloads up to {} B", self.drawn.links(), cluster.max_payload_bytes)?;
        writeln!(f, "  {delivery}")?;
        writeln!(
            f,
            "  translation {}, {}, {} pages at once, NIC memory {nic_memory_bytes} B",
            DesignText(*design),
            pin_rules.limit,
            pin_rules.prepin_pages
        )?;
        writeln!(f, "  {} calls, {words} completion words, lanes of {} B", self.calls.len(), self.workload.lane_bytes)?;
        if let Some(records) = self.replayed {
            writeln!(f, "  which replay {records} records of a trace")?;
        }
        self.drawn.print_end(f)
    }
}
