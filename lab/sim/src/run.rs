//! A run that a seed names, whatever its programs do: how it is drawn, printed and run, and how it went.

use core::fmt;
use std::ops::RangeInclusive;

use thiserror::Error;

use crate::checks::liveness;
use crate::cluster::{Cluster, ClusterConfig, Interrupt, Observer, Step, Violation};
use crate::coverage::Coverage;
use crate::hardware::node::ComputerError;
use crate::random::Random;
use crate::rules::{Rule, Shape, names};

/// Programs make calls for so long after the last fault has ended, in parts of the time before.
pub(crate) const AFTER_HEALING: u64 = 4;

/// A kind of run. The same seed draws the same run, which goes the same way to the last event. Printed, it says all that was drawn.
pub trait Workload: fmt::Display + Sized {
    /// What a run is to be like; what it leaves open is drawn.
    type Wanted;
    /// What happened in a run, besides its coverage.
    type Seen;

    fn draw(seed: u64, wanted: &Self::Wanted) -> Result<Self, RunError>;

    /// Runs it, unless it is interrupted.
    fn run_until(&self, interrupt: &Interrupt) -> Result<Outcome<Self::Seen>, RunError>;

    fn run(&self) -> Result<Outcome<Self::Seen>, RunError> {
        self.run_until(&Interrupt::default())
    }
}

/// What a run of a service is to be like, with a bug of `C`. What is `None` is drawn from the seed. Rules that the service does not
/// bear are left out.
#[derive(Clone, Debug)]
pub struct ServiceWanted<C> {
    pub nodes: Option<u16>,
    pub rules: Vec<Rule>,
    /// Whether the transport may lose packets.
    pub lossy: Option<bool>,
    /// A shared memory makes as many as it draws.
    pub calls: Option<u32>,
    /// Litmus tests of a shared memory.
    pub litmus: bool,
    pub canary: Option<C>,
}

impl<C> Default for ServiceWanted<C> {
    fn default() -> Self {
        Self { nodes: None, rules: Vec::new(), lossy: None, calls: None, litmus: false, canary: None }
    }
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome<S> {
    /// The first violation, with its time.
    pub violation: Option<(u64, Violation)>,
    pub coverage: Coverage,
    pub events: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Virtual time at its end.
    pub end_ns: u64,
    /// It was not interrupted.
    pub is_whole: bool,
    pub seen: S,
}

impl<S> Outcome<S> {
    /// The outcome of a cluster, whose coverage `cover` completes.
    pub(crate) fn new(
        cluster: &Cluster,
        is_whole: bool,
        violation: Option<(u64, Violation)>,
        seen: S,
        cover: impl FnOnce(&mut Coverage),
    ) -> Self {
        let totals = cluster.totals();
        let mut coverage = cluster.coverage();
        cover(&mut coverage);
        let (events, packets) = (totals.events, totals.packets);
        Self { violation, coverage, events, packets, end_ns: cluster.now_ns(), is_whole, seen }
    }

    pub(crate) fn without_seen(self) -> Outcome<()> {
        let Self { violation, coverage, events, packets, end_ns, is_whole, seen: _ } = self;
        Outcome { violation, coverage, events, packets, end_ns, is_whole, seen: () }
    }
}

/// A run that cannot be made.
#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Cluster(#[from] ComputerError),
    #[error(transparent)]
    Design(#[from] mapwire_settings::ParseDesignError),
    #[error(transparent)]
    Replay(#[from] crate::replay::ReplayError),
    #[error(transparent)]
    SharedMemory(#[from] mapwire_dsm::ConfigError),
    #[error(transparent)]
    GlobalMemory(#[from] mapwire_gms::ConfigError),
    /// A service could not be registered.
    #[error(transparent)]
    Register(#[from] mapwire_node::RegisterError),
}

/// Refuses a number of nodes or ranks that the service of a run does not take.
pub(crate) fn check_size(what: &'static str, given: u16, taken: RangeInclusive<u16>) -> Result<(), ComputerError> {
    let (least, most) = taken.clone().into_inner();
    if taken.contains(&given) {
        return Ok(());
    }
    Err(ComputerError::Size { what, given: given.into(), least: least.into(), most: most.into() })
}

/// A cluster with faults by these rules, which `random` draws.
pub(crate) fn cluster(
    seed: u64,
    config: &ClusterConfig,
    (rules, heal_ns): (&[Rule], u64),
    random: &mut Random,
) -> Result<Cluster, ComputerError> {
    let mut cluster = Cluster::new(config.clone(), Random::new(seed ^ 0x5eed))?;
    let shape = Shape { nodes: config.nodes, heal_ns };
    cluster.set_faults(rules.iter().flat_map(|rule| (rule.draw)(random, &shape)).collect());
    Ok(cluster)
}

/// Those of the rules that a service bears: whose transport is lossy or not, and which loses its memory with its nodes.
pub(crate) fn borne(rules: &[Rule], is_lossy: bool, stores_by_nic: bool, not: &[&str]) -> Vec<Rule> {
    let stays = |rule: &&Rule| {
        let is_borne = is_lossy || !rule.is_lossy;
        // Pages that a store needs must be had.
        let is_had = !stores_by_nic || rule.name != "refuse-pins";
        is_borne && is_had && !not.contains(&rule.name)
    };
    rules.iter().filter(stays).copied().collect()
}

/// Prints the links of a cluster, in parts of a line.
pub(crate) fn links(cluster: &ClusterConfig) -> String {
    let link = cluster.link;
    format!("link {} ns, {} bit/s, {} packets", link.latency_ns, link.bits_per_second, link.queue_packets)
}

/// Prints what ends the description of every run.
pub(crate) fn print_end(
    f: &mut fmt::Formatter<'_>,
    rules: &[Rule],
    heal_ns: u64,
    canary: Option<impl fmt::Debug>,
) -> fmt::Result {
    writeln!(f, "  rules {}, healed at {heal_ns} ns", names(rules))?;
    match canary {
        Some(canary) => writeln!(f, "  with a bug put in: {canary:?}"),
        None => Ok(()),
    }
}

/// The programs of a service, and what must be true of them.
pub(crate) trait Programs: Observer {
    fn violation(&mut self) -> &mut Option<(u64, Violation)>;
    /// The time of an event has come. Whether the run is over.
    fn event(&mut self, cluster: &mut Cluster, number: u32) -> bool;
    /// Something has happened, and may have consequences.
    fn follow_up(&mut self, cluster: &mut Cluster);
    /// Nothing is left to happen.
    fn rest(&mut self, cluster: &mut Cluster);
}

/// Lets everything happen, up to the first violation. False if it is interrupted.
pub(crate) fn drive(cluster: &mut Cluster, programs: &mut impl Programs, most_events: u64) -> bool {
    while programs.violation().is_none() {
        match cluster.step(programs) {
            Step::Inside => {}
            Step::Program(number) => {
                if programs.event(cluster, number) {
                    return true;
                }
            }
            Step::Rest => {
                programs.rest(cluster);
                return true;
            }
            Step::Interrupted => return false,
        }
        programs.follow_up(cluster);
        let events = cluster.totals().events;
        if events > most_events {
            let violation = liveness::never_rests(cluster.now_ns(), events);
            programs.violation().get_or_insert((cluster.now_ns(), violation));
        }
    }
    true
}
