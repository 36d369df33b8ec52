//! Shrinks a run that fails to the fewest faults and calls that still fail.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): ever smaller parts are left out
//! as long as the same checker complains.

use std::collections::BTreeSet;

use crate::cluster::Violation;
use crate::run::{Outcome, RunError, Workload};

#[derive(Clone, Debug)]
pub struct Shrunk<S> {
    /// Numbers of the faults that it takes, of [`Workload::faults`].
    pub faults: Vec<usize>,
    /// Numbers of the calls that it takes.
    pub calls: Vec<usize>,
    pub seen: S,
    pub violation: Violation,
    /// When, in nanoseconds from the start.
    pub at_ns: u64,
    /// Runs that it took to find out.
    pub runs: u32,
}

/// Shrinks a run, in `most_runs` runs at most. `None` if it does not fail.
pub fn shrink<W: Workload>(run: &W, most_runs: u32) -> Result<Option<Shrunk<W::Seen>>, RunError> {
    let faults = run.faults().len();
    // Faults first, then calls.
    let mut kept: Vec<usize> = (0..faults + run.calls()).collect();
    let run_part = |kept: &[usize]| -> Result<Outcome<W::Seen>, RunError> {
        let kept: BTreeSet<usize> = kept.iter().copied().collect();
        run.run_part(|fault| kept.contains(&fault), |call| kept.contains(&(faults + call)))
    };
    let Outcome { violation, mut seen, .. } = run_part(&kept)?;
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
            let outcome = run_part(&rest)?;
            match outcome.violation {
                Some((at, found)) if found.check == violation.check => {
                    (kept, at_ns, violation, seen) = (rest, at, found, outcome.seen);
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
    let calls = kept.iter().filter_map(|number| number.checked_sub(faults)).collect();
    kept.retain(|number| *number < faults);
    Ok(Some(Shrunk { faults: kept, calls, seen, violation, at_ns, runs }))
}
