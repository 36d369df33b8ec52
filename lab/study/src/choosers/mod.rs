//! Who chooses the pages to unpin: the library, by one of its policies, or an application (UTLB §3.4), through the trait that
//! programs use. Beside the applications' policies stands the optimum, which none can beat.

mod knowledge;
mod optimum;
mod released;
mod sweep;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mapwire_translation::{ChooseVictims, ParsePolicyError, Policy};

pub use knowledge::{Future, Knowledge, Learner, MOST_USES, NEVER};
pub use optimum::Optimum;
pub use released::Released;
pub use sweep::{SWEEP_PAGES, Sweep};

mapwire_wire::codes! {
    /// A policy of an application, or the optimum.
    pub enum Chooser: u8 {
        Sweep = 0 => "sweep",
        Released = 1 => "released",
        Optimum = 2 => "optimum",
    }
}

impl Chooser {
    pub fn with_future(self, future: Arc<Future>) -> Box<dyn ChooseVictims> {
        match self {
            Chooser::Sweep => Box::new(Sweep::default()),
            Chooser::Released => Box::new(Released::new(future)),
            Chooser::Optimum => Box::new(Optimum::new(future)),
        }
    }
}

/// Who chooses. As text the policy's name: `lru`, `random:7`, `optimum`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnpinPolicy {
    Library(Policy),
    Application(Chooser),
}

impl fmt::Display for UnpinPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnpinPolicy::Library(policy) => policy.fmt(f),
            UnpinPolicy::Application(chooser) => f.write_str(chooser.name()),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}; or one of an application: sweep, released, optimum")]
pub struct UnpinPolicyError(ParsePolicyError);

impl FromStr for UnpinPolicy {
    type Err = UnpinPolicyError;

    fn from_str(word: &str) -> Result<Self, UnpinPolicyError> {
        let chooser = Chooser::ALL.into_iter().find(|it| it.name() == word);
        match chooser {
            Some(chooser) => Ok(UnpinPolicy::Application(chooser)),
            None => Ok(UnpinPolicy::Library(word.parse().map_err(UnpinPolicyError)?)),
        }
    }
}

/// What the choosers' tests drive them by.
#[cfg(test)]
mod driven {
    use mapwire_translation::{ChooseVictims, Page, PageRange, PinLimit, PinPlan, UserTable};

    /// Pages unpinned by a process that does the operations (first page, pages) under the limit.
    pub(super) fn unpinned(limit: u64, chooser: Option<Box<dyn ChooseVictims>>, operations: &[(u64, u64)]) -> Vec<u64> {
        let mut user = UserTable::new(PinLimit::Pages(limit));
        if let Some(chooser) = chooser {
            user = user.choosing(chooser);
        }
        let (mut plan, mut all) = (PinPlan::new(), Vec::new());
        for &(first, count) in operations {
            plan.clear();
            let first = Page(first);
            user.prepare(PageRange { first, count }, &mut plan).unwrap();
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
