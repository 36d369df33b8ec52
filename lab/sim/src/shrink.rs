//! Shrinks a run that fails to the fewest faults and calls that still fail.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): ever smaller parts are left out
//! as long as the same checker complains.

use std::collections::BTreeSet;

use crate::cluster::Violation;
use crate::run::{Outcome, RunError};
use crate::scenario::Scenario;
use crate::workload::Made;

#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Numbers of the faults that it takes, of [`Scenario::faults`].
    pub faults: Vec<usize>,
    /// Numbers of the calls that it takes.
    pub calls: Vec<usize>,
    pub history: Vec<Made>,
    pub violation: Violation,
    /// When, in nanoseconds from the start.
    pub at_ns: u64,
    /// Runs that it took to find out.
    pub runs: u32,
}

/// Shrinks a run, in `most_runs` runs at most. `None` if it does not fail.
pub fn shrink(scenario: &Scenario, most_runs: u32) -> Result<Option<Shrunk>, RunError> {
    let faults = scenario.faults().len();
    // Faults first, then calls.
    let mut kept: Vec<usize> = (0..faults + scenario.calls.len()).collect();
    let run = |kept: &[usize]| -> Result<Outcome<Vec<Made>>, RunError> {
        let kept: BTreeSet<usize> = kept.iter().copied().collect();
        scenario.run_part(|fault| kept.contains(&fault), |call| kept.contains(&(faults + call)))
    };
    let Outcome { violation, seen: mut history, .. } = run(&kept)?;
    let Some((mut at_ns, mut violation)) = violation else { return Ok(None) };
    let mut runs = 1;
    let mut parts = 2;
    while parts <= kept.len() && runs < most_runs {
        let size = kept.len().div_ceil(parts);
        let mut is_smaller = false;
        let mut start = 0;
        while start < kept.len() && runs < most_runs {
            let end = (start + size).min(kept.len());
            let mut rest = kept.clone();
            rest.drain(start..end);
            runs += 1;
            let outcome = run(&rest)?;
            match outcome.violation {
                Some((at, found)) if found.check == violation.check => {
                    (kept, at_ns, violation) = (rest, at, found);
                    history = outcome.seen;
                    is_smaller = true;
                }
                _ => start = end,
            }
        }
        if !is_smaller {
            if size == 1 {
                break;
            }
            parts = (parts * 2).min(kept.len());
        } else {
            parts = parts.saturating_sub(1).max(2);
        }
    }
    Ok(Some(Shrunk {
        faults: kept.iter().copied().filter(|number| *number < faults).collect(),
        calls: kept.iter().filter_map(|number| number.checked_sub(faults)).collect(),
        history,
        violation,
        at_ns,
        runs,
    }))
}
