//! Runs of any workload, and a mixture of all of them.

use std::ops::RangeInclusive;

use crate::canary::Canary;
use crate::cluster::Interrupt;
use crate::coverage::{Condition, Coverage};
use crate::global::GlobalScenario;
use crate::rpc::RpcScenario;
use crate::rules::RULES;
use crate::run::{Outcome, RunError, Wanted, Workload};
use crate::scenario::Scenario;
use crate::shared::SharedScenario;
use crate::shared::lazy::LazyScenario;

/// What the programs of a run do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All calls of exports and imports.
    Calls,
    Shared,
    /// Litmus tests of a shared memory.
    Litmus,
    /// A lazily consistent shared memory.
    Hlrc,
    Global,
    Rpc,
}

impl Kind {
    pub const ALL: [Self; 6] = [Self::Calls, Self::Shared, Self::Litmus, Self::Hlrc, Self::Global, Self::Rpc];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Shared => "shared",
            Self::Litmus => "litmus",
            Self::Hlrc => "hlrc",
            Self::Global => "global",
            Self::Rpc => "rpc",
        }
    }

    /// Bugs that can be put in.
    pub const fn bugs(self) -> &'static [Canary] {
        match self {
            Self::Calls => Canary::CALLS,
            Self::Shared | Self::Litmus => Canary::SHARED,
            Self::Hlrc => Canary::HLRC,
            Self::Global => Canary::GLOBAL,
            Self::Rpc => Canary::RPC,
        }
    }

    /// The checks that only it can fail.
    const fn checks(self) -> &'static [&'static str] {
        match self {
            Self::Calls => &[],
            Self::Shared => &["sequential consistency", "locks", "barriers"],
            Self::Litmus => &["litmus", "locks", "barriers"],
            Self::Hlrc => &["release consistency"],
            Self::Global => &["pages", "membership", "donors"],
            Self::Rpc => &["calls"],
        }
    }

    /// Runs a seed, unless it is interrupted.
    pub fn run(self, wanted: &Wanted, seed: u64, interrupt: &Interrupt) -> Result<Outcome<()>, RunError> {
        fn run<W: Workload>(wanted: &Wanted, seed: u64, interrupt: &Interrupt) -> Result<Outcome<()>, RunError> {
            let outcome = W::draw(seed, wanted)?.run_until(interrupt)?;
            let Outcome { violation, coverage, events, packets, end_ns, is_whole, seen: _ } = outcome;
            Ok(Outcome { violation, coverage, events, packets, end_ns, is_whole, seen: () })
        }
        match self {
            Self::Calls => run::<Scenario>(wanted, seed, interrupt),
            Self::Shared | Self::Litmus => run::<SharedScenario>(wanted, seed, interrupt),
            Self::Hlrc => run::<LazyScenario>(wanted, seed, interrupt),
            Self::Global => run::<GlobalScenario>(wanted, seed, interrupt),
            Self::Rpc => run::<RpcScenario>(wanted, seed, interrupt),
        }
    }

    /// Whether a run of it can make the condition hold.
    pub fn has(self, condition: Condition) -> bool {
        let (check, _) = condition.about();
        match self {
            Self::Calls => !Self::ALL.iter().any(|kind| kind.checks().contains(&check)),
            _ => self.checks().contains(&check),
        }
    }
}

/// A kind of run, and what it is to be like.
pub type Wants = (Kind, Wanted);

/// One turn of a mixture of all kinds.
const TURN: [Kind; 12] = [
    Kind::Calls,
    Kind::Shared,
    Kind::Calls,
    Kind::Global,
    Kind::Calls,
    Kind::Rpc,
    Kind::Calls,
    Kind::Litmus,
    Kind::Calls,
    Kind::Shared,
    Kind::Hlrc,
    Kind::Rpc,
];

/// What the run of this number is drawn by, where several kinds are drawn in turn.
pub fn of_turn(kinds: &[Wants], number: u64) -> &Wants {
    let kind = TURN[(number % TURN.len() as u64) as usize];
    kinds.iter().find(|wants| wants.0 == kind).unwrap_or(&kinds[0])
}

/// How many nodes all kinds of run may have.
pub const NODES: RangeInclusive<u16> = 2..=256;

/// Rules of which no fault fired, and conditions that never held.
pub fn never(kinds: &[Wants], sum: &Coverage) -> Vec<String> {
    let mut never = Vec::new();
    for rule in RULES {
        let mut rules = kinds.iter().flat_map(|(_, wanted)| &wanted.rules);
        if rules.any(|other| other.name == rule.name) && sum.of_rule(rule.name).fired == 0 {
            never.push(format!("rule {}: {}", rule.name, rule.about));
        }
    }
    for condition in Condition::ALL {
        let (check, about) = condition.about();
        if sum.of(*condition) == 0 && kinds.iter().any(|(kind, _)| kind.has(*condition)) {
            never.push(format!("check {check}: {about}"));
        }
    }
    never
}
