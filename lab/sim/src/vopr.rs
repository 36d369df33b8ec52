//! Runs of any workload, and a mixture of all of them.

use std::ops::RangeInclusive;

use crate::cluster::Interrupt;
use crate::coverage::{Condition, Coverage};
use crate::global::{GlobalScenario, GlobalWanted};
use crate::rpc::{RpcScenario, RpcWanted};
use crate::rules::{RULES, Rule};
use crate::run::{Outcome, RunError, Workload};
use crate::scenario::{Scenario, Wanted};
use crate::shared::{SharedScenario, SharedWanted};

#[derive(Clone, Debug)]
pub enum Wants {
    /// All calls of exports and imports.
    Calls(Box<Wanted>),
    /// A shared memory, or litmus tests of one.
    Shared(SharedWanted),
    Global(GlobalWanted),
    Rpc(RpcWanted),
}

impl Wants {
    /// Runs a seed, unless it is interrupted.
    pub fn run(&self, seed: u64, interrupt: &Interrupt) -> Result<Outcome<()>, RunError> {
        fn run<W: Workload>(seed: u64, wanted: &W::Wanted, interrupt: &Interrupt) -> Result<Outcome<()>, RunError> {
            W::draw(seed, wanted)?.run_until(interrupt).map(Outcome::without_seen)
        }
        match self {
            Self::Calls(wanted) => run::<Scenario>(seed, wanted, interrupt),
            Self::Shared(wanted) => run::<SharedScenario>(seed, wanted, interrupt),
            Self::Global(wanted) => run::<GlobalScenario>(seed, wanted, interrupt),
            Self::Rpc(wanted) => run::<RpcScenario>(seed, wanted, interrupt),
        }
    }

    /// Whether a run of it can make the condition hold.
    pub fn has(&self, condition: Condition) -> bool {
        let (check, _) = condition.about();
        match self {
            Self::Calls(_) => !OF_OTHERS.iter().any(|others| others.contains(&check)),
            Self::Shared(wanted) if wanted.litmus => ["litmus", "locks", "barriers"].contains(&check),
            Self::Shared(_) => OF_SHARED.contains(&check),
            Self::Global(_) => OF_GLOBAL.contains(&check),
            Self::Rpc(_) => OF_RPC.contains(&check),
        }
    }

    /// The rules that it draws faults by.
    pub fn rules(&self) -> &[Rule] {
        match self {
            Self::Calls(wanted) => &wanted.rules,
            Self::Shared(wanted) => &wanted.rules,
            Self::Global(wanted) => &wanted.rules,
            Self::Rpc(wanted) => &wanted.rules,
        }
    }
}

const OF_SHARED: &[&str] = &["sequential consistency", "locks", "barriers"];
const OF_GLOBAL: &[&str] = &["pages", "membership", "donors"];
const OF_RPC: &[&str] = &["calls"];
const OF_OTHERS: [&[&str]; 4] = [OF_SHARED, OF_GLOBAL, OF_RPC, &["litmus"]];

/// Which of several kinds of run a seed is, where all are drawn: by the place of the seed in a turn, from [`Mixture::KINDS`].
#[derive(Clone, Debug)]
pub struct Mixture {
    kinds: [Wants; Self::KINDS],
}

impl Mixture {
    /// Calls, a shared memory, litmus tests, global memory, remote procedure calls.
    pub const KINDS: usize = 5;
    /// One turn, by the numbers of the kinds.
    const TURN: [usize; 12] = [0, 1, 0, 3, 0, 4, 0, 2, 0, 1, 0, 4];

    /// A mixture of these, in the order of [`KINDS`](Self::KINDS).
    pub fn new(kinds: [Wants; Self::KINDS]) -> Self {
        Self { kinds }
    }

    /// What the run of this number is drawn by.
    pub fn of(&self, number: u64) -> &Wants {
        &self.kinds[Self::TURN[(number % Self::TURN.len() as u64) as usize]]
    }

    pub fn kinds(&self) -> &[Wants] {
        &self.kinds
    }
}

/// How many nodes all kinds of run may have.
pub const NODES: RangeInclusive<u16> = 2..=256;

/// Rules of which no fault fired, and conditions that never held.
pub fn never(kinds: &[Wants], sum: &Coverage) -> Vec<String> {
    let mut never = Vec::new();
    for rule in RULES {
        let mut rules = kinds.iter().flat_map(Wants::rules);
        if rules.any(|other| other.name == rule.name) && sum.of_rule(rule.name).fired == 0 {
            never.push(format!("rule {}: {}", rule.name, rule.about));
        }
    }
    for condition in Condition::ALL {
        let (check, about) = condition.about();
        if sum.of(*condition) == 0 && kinds.iter().any(|wants| wants.has(*condition)) {
            never.push(format!("check {check}: {about}"));
        }
    }
    never
}
