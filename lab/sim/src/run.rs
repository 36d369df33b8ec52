//! A run that a seed names, whatever its programs do: how it is drawn, printed and run, in parts if need be, and how it went.

use core::fmt;

use mapwire_translation::PinLimit;
use mapwire_wire::NodeId;
use thiserror::Error;

use crate::canary::Canary;
use crate::checks::liveness;
use crate::cluster::{Cluster, ClusterConfig, Interrupt, Observer, Step, Violation};
use crate::coverage::Coverage;
use crate::hardware::node::ComputerError;
use crate::random::Random;
use crate::replay::Replay;
use crate::rules::{Fault, Rule, Shape, names};

/// Programs make calls for so long after the last fault has ended, in parts of the time before.
pub(crate) const AFTER_HEALING: u64 = 4;

/// What a run is to be like. What is `None` is drawn from the seed; rules that a service does not bear are left out.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub nodes: Option<u16>,
    pub rules: Vec<Rule>,
    /// Whether the transport may lose packets.
    pub lossy: Option<bool>,
    /// A shared memory makes as many as it draws.
    pub calls: Option<u32>,
    /// Litmus tests of a shared memory.
    pub litmus: bool,
    /// The calls are those of a trace, whatever else is wanted of them.
    pub replay: Option<Replay>,
    /// How network interfaces translate, as a command line writes it, and how many pages each process may pin.
    pub translation: Option<(String, PinLimit)>,
    pub canary: Option<Canary>,
}

/// What is drawn of every kind of run.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub seed: u64,
    pub cluster: ClusterConfig,
    pub rules: Vec<Rule>,
    /// When the last fault ends, in nanoseconds from the start.
    pub heal_ns: u64,
    pub canary: Option<Canary>,
    /// Draws what is drawn as it runs: the faults first.
    pub(crate) random: Random,
}

/// A part of a run: some of its faults and calls, by number, and how long it may go on.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub(crate) has_fault: &'a dyn Fn(usize) -> bool,
    pub(crate) has_call: &'a dyn Fn(usize) -> bool,
    pub(crate) interrupt: &'a Interrupt,
}

/// A kind of run. The same seed draws the same run, which goes the same way to the last event. Printed, it says all that was drawn.
pub trait Workload: fmt::Display + Sized {
    /// What happened in a run, besides its coverage.
    type Seen;

    fn draw(seed: u64, wanted: &Wanted) -> Result<Self, RunError>;

    fn drawn(&self) -> &Drawn;

    /// How many calls, or other steps of programs, a part of the run may leave out.
    fn calls(&self) -> usize;

    fn run_some(&self, part: Part<'_>) -> Result<Outcome<Self::Seen>, RunError>;

    /// The faults of its rules, and what draws all else.
    fn draw_faults(&self) -> (Vec<Box<dyn Fault>>, Random) {
        let Drawn { rules, heal_ns, cluster, random, .. } = self.drawn();
        let (mut random, shape) = (random.clone(), Shape { nodes: cluster.nodes, heal_ns: *heal_ns });
        let faults = rules.iter().flat_map(|rule| (rule.draw)(&mut random, &shape)).collect();
        (faults, random)
    }

    fn faults(&self) -> Vec<Box<dyn Fault>> {
        self.draw_faults().0
    }

    /// The cluster of a part of the run, in which nothing has happened yet, and what draws all else.
    fn begin(&self, part: Part<'_>) -> Result<(Cluster, Random), ComputerError> {
        let Drawn { seed, cluster, canary, .. } = self.drawn();
        let mut cluster = Cluster::new(cluster.clone(), Random::new(seed ^ 0x5eed))?;
        cluster.set_canary(canary.and_then(Canary::of_cluster));
        cluster.set_interrupt(part.interrupt);
        let (faults, random) = self.draw_faults();
        let faults = faults.into_iter().enumerate().filter(|(number, _)| (part.has_fault)(*number));
        cluster.set_faults(faults.map(|(_, fault)| fault).collect());
        Ok((cluster, random))
    }

    /// Runs it with some of its faults and calls only, chosen by number.
    fn run_part(
        &self,
        has_fault: impl Fn(usize) -> bool,
        has_call: impl Fn(usize) -> bool,
    ) -> Result<Outcome<Self::Seen>, RunError> {
        self.run_some(Part { has_fault: &has_fault, has_call: &has_call, interrupt: &Interrupt::default() })
    }

    /// Runs it, unless it is interrupted.
    fn run_until(&self, interrupt: &Interrupt) -> Result<Outcome<Self::Seen>, RunError> {
        self.run_some(Part { has_fault: &|_| true, has_call: &|_| true, interrupt })
    }

    fn run(&self) -> Result<Outcome<Self::Seen>, RunError> {
        self.run_until(&Interrupt::default())
    }
}

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

impl Drawn {
    /// Those of the rules that a service bears: whose transport is lossy or not, and which loses its memory with its nodes.
    pub(crate) fn bears(rules: &[Rule], is_lossy: bool, stores_by_nic: bool, not: &[&str]) -> Vec<Rule> {
        let stays = |rule: &&Rule| {
            let is_borne = is_lossy || !rule.is_lossy;
            // Pages that a store needs must be had.
            let is_had = !stores_by_nic || rule.name != "refuse-pins";
            is_borne && is_had && !not.contains(&rule.name)
        };
        rules.iter().filter(stays).copied().collect()
    }

    /// Prints the links of the cluster, in parts of a line.
    pub(crate) fn links(&self) -> String {
        let link = self.cluster.link;
        format!("link {} ns, {} bit/s, {} packets", link.latency_ns, link.bits_per_second, link.queue_packets)
    }

    /// Prints what ends the description of every run.
    pub(crate) fn print_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  rules {}, healed at {} ns", names(&self.rules), self.heal_ns)?;
        match self.canary {
            Some(canary) => writeln!(f, "  with a bug put in: {canary:?}"),
            None => Ok(()),
        }
    }
}

/// The programs of a run, and what must be true of them.
pub(crate) trait Programs: Observer {
    type Seen;

    fn violation(&self) -> Option<&(u64, Violation)>;
    /// The node whose processor an event needs.
    fn runs_at(&self, _number: u32) -> Option<NodeId> {
        None
    }
    /// The time of an event has come. Whether the run is over.
    fn event(&mut self, cluster: &mut Cluster, number: u32) -> bool;
    /// Something has happened, and may have consequences.
    fn follow_up(&mut self, cluster: &mut Cluster);
    /// Nothing is left to happen.
    fn rest(&mut self, cluster: &mut Cluster);
    /// What happened.
    fn finish(self, coverage: &mut Coverage) -> Self::Seen;
}

/// Lets everything happen, up to the first violation, so many events at most and until a time.
pub(crate) fn drive<P: Programs>(
    mut cluster: Cluster,
    mut programs: P,
    (most_events, end_ns): (u64, u64),
) -> Outcome<P::Seen> {
    let mut is_whole = true;
    while programs.violation().is_none() {
        match cluster.step(&mut programs) {
            Step::Inside => {}
            Step::Program(number) => {
                // A program runs when its processor has time for it.
                let node = programs.runs_at(number).filter(|node| cluster.is_alive(*node));
                let busy_ns = node.map_or(0, |node| cluster.busy_until_ns(node));
                if busy_ns > cluster.now_ns() {
                    cluster.schedule(busy_ns, number);
                } else if programs.event(&mut cluster, number) {
                    break;
                }
            }
            Step::Rest => {
                programs.rest(&mut cluster);
                break;
            }
            Step::Interrupted => {
                is_whole = false;
                break;
            }
        }
        programs.follow_up(&mut cluster);
        let (events, now_ns) = (cluster.totals().events, cluster.now_ns());
        if events > most_events || now_ns > end_ns {
            programs.violated(now_ns, liveness::never_rests(now_ns, events));
        }
    }
    let (totals, end_ns) = (cluster.totals(), cluster.now_ns());
    let mut coverage = cluster.coverage();
    let violation = programs.violation().cloned();
    let seen = programs.finish(&mut coverage);
    let (events, packets) = (totals.events, totals.packets);
    Outcome { violation, coverage, events, packets, end_ns, is_whole, seen }
}
