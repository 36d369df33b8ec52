//! Policies of an application (UTLB §3.4), and the optimum that none can beat: all choose through the trait that programs use.

mod optimum;
mod regions;
mod released;
mod sweep;

use std::sync::Arc;

use mapwire_translation::{ChooseVictims, Process};

pub use optimum::Optimum;
pub use regions::{REGION_PAGES, Regions};
pub use released::Released;
pub use sweep::{SWEEP_PAGES, Sweep};

use super::knowledge::Knowledge;
use crate::replay::PolicyOfProcess;

/// Who chooses the pages to unpin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Chooser {
    /// The policy of the configuration.
    Configured,
    /// [`Sweep`].
    Sweep,
    /// [`Regions`].
    Regions,
    /// [`Released`].
    Released,
    /// [`Optimum`].
    Optimum,
}

impl Chooser {
    /// The policies of an application.
    pub const APPLICATION: [Chooser; 3] = [Chooser::Sweep, Chooser::Regions, Chooser::Released];

    /// Its name; the policy of the configuration has its own.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Chooser::Configured => None,
            Chooser::Sweep => Some("sweep"),
            Chooser::Regions => Some("regions"),
            Chooser::Released => Some("released"),
            Chooser::Optimum => Some("optimum"),
        }
    }
}

/// A chooser of that kind for each process of a node.
#[derive(Clone, Debug)]
pub struct ChooserOfProcess {
    /// Which.
    pub chooser: Chooser,
    /// The node's number.
    pub node: u16,
    /// What those know that have seen the trace.
    pub knowledge: Arc<Knowledge>,
}

impl PolicyOfProcess for ChooserOfProcess {
    fn policy_of(&mut self, process: Process) -> Option<Box<dyn ChooseVictims>> {
        let future = || self.knowledge.of(self.node, process);
        Some(match self.chooser {
            Chooser::Configured => return None,
            Chooser::Sweep => Box::new(Sweep::default()),
            Chooser::Regions => Box::new(Regions::default()),
            Chooser::Released => Box::new(Released::new(future())),
            Chooser::Optimum => Box::new(Optimum::new(future())),
        })
    }
}

/// What the choosers' tests drive them by.
#[cfg(test)]
mod driven {
    use mapwire_translation::{ChooseVictims, Page, PageRange, PinLimit, PinPlan, UserTable};

    /// Pages unpinned by a process that does the operations (first page, pages) under the limit.
    pub(super) fn unpinned(
        limit: u64,
        chooser: Option<Box<dyn ChooseVictims>>,
        operations: &[(u64, u64)],
    ) -> Vec<u64> {
        let mut user = UserTable::new(PinLimit::Pages(limit));
        if let Some(chooser) = chooser {
            user = user.choosing(chooser);
        }
        let (mut plan, mut all) = (PinPlan::new(), Vec::new());
        for &(first, count) in operations {
            plan.clear();
            user.prepare(
                PageRange {
                    first: Page(first),
                    count,
                },
                &mut plan,
            )
            .unwrap();
            for &page in &plan.to_unpin {
                user.commit_unpinned(page);
                all.push(page.0);
            }
            for &run in &plan.to_pin {
                user.commit_pinned(run).unwrap();
            }
        }
        all
    }
}
