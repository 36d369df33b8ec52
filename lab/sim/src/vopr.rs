//! Runs of any workload, and a mixture of all of them.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::cluster::{Interrupt, Violation};
use crate::coverage::{Condition, Coverage};
use crate::global::{GlobalError, GlobalScenario, GlobalWanted};
use crate::rpc::{RpcError, RpcScenario, RpcWanted};
use crate::rules::{RULES, Rule};
use crate::scenario::{Scenario, ScenarioError, Wanted};
use crate::shared::{SharedError, SharedScenario, SharedWanted};

/// What runs are drawn by.
#[derive(Clone, Debug)]
pub enum Wants {
    /// All calls of exports and imports.
    Calls(Box<Wanted>),
    /// A shared memory, or litmus tests of one.
    Shared(SharedWanted),
    /// Global memory.
    Global(GlobalWanted),
    /// Remote procedure calls.
    Rpc(RpcWanted),
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The first violation, with its time.
    pub violation: Option<(u64, Violation)>,
    /// Packets delivered.
    pub packets: u64,
    /// What happened.
    pub coverage: Coverage,
    /// It was not interrupted.
    pub is_whole: bool,
}

/// A run that cannot be made.
#[derive(Debug, Error)]
pub enum RunError {
    /// Of calls.
    #[error(transparent)]
    Calls(#[from] ScenarioError),
    /// Of a shared memory.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// Of global memory.
    #[error(transparent)]
    Global(#[from] GlobalError),
    /// Of remote procedure calls.
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

macro_rules! ran {
    ($outcome:expr) => {{
        let outcome = $outcome;
        Ran {
            violation: outcome.violation,
            packets: outcome.packets,
            coverage: outcome.coverage,
            is_whole: outcome.is_whole,
        }
    }};
}

impl Wants {
    /// Runs a seed, unless it is interrupted.
    ///
    /// # Errors
    /// The run cannot be made.
    pub fn run(&self, seed: u64, interrupt: &Interrupt) -> Result<Ran, RunError> {
        Ok(match self {
            Self::Calls(wanted) => ran!(Scenario::draw(seed, wanted)?.run_until(interrupt)?),
            Self::Shared(wanted) => ran!(SharedScenario::draw(seed, wanted).run_until(interrupt)?),
            Self::Global(wanted) => ran!(GlobalScenario::draw(seed, wanted).run_until(interrupt)?),
            Self::Rpc(wanted) => ran!(RpcScenario::draw(seed, wanted).run_until(interrupt)?),
        })
    }

    /// Whether a run of it can make the condition hold.
    #[must_use]
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
    #[must_use]
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
const OF_GLOBAL: &[&str] = &["pages", "membership"];
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
    #[must_use]
    pub fn new(kinds: [Wants; Self::KINDS]) -> Self {
        Self { kinds }
    }

    /// What the run of this number is drawn by.
    #[must_use]
    pub fn of(&self, number: u64) -> &Wants {
        &self.kinds[Self::TURN[(number % Self::TURN.len() as u64) as usize]]
    }

    /// All of them.
    #[must_use]
    pub fn kinds(&self) -> &[Wants] {
        &self.kinds
    }
}

/// How many nodes all kinds of run may have.
pub const NODES: RangeInclusive<u16> = 2..=256;

/// Rules of which no fault fired, and conditions that never held.
#[must_use]
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
