//! Paired measurements on a machine whose speed changes by itself.
//!
//! Virtual processors are moved between one physical core and two at any time, which changes a
//! cache line's way fourfold. So each run takes the baseline right before and right after the
//! point, drops the point if the two differ by more than a fifth, and keeps the ratio; the figure
//! is the median of ratios.

/// Baselines before and after a point that differ by more than this share drop the point.
pub(crate) const TOLERANCE: f64 = 0.20;

/// How often a point is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs that must count.
    pub(crate) runs: usize,
    /// Runs tried at most; the rest was lost to changes of speed.
    pub(crate) tries: usize,
    /// Whether a run counts whose two baselines differ: where a figure is only to be there.
    pub(crate) rough: bool,
}

impl Effort {
    /// `quick` runs that all count if the plan is to be quick, else as [`Effort::of`].
    pub(crate) fn planned(plan: super::Plan, quick: usize, runs: usize) -> Self {
        if plan.quick {
            Self {
                runs: quick,
                tries: quick,
                rough: true,
            }
        } else {
            Self::of(runs)
        }
    }

    /// `runs`, and up to five times as many tries.
    pub(crate) fn of(runs: usize) -> Self {
        Self {
            runs,
            tries: runs * 5,
            rough: false,
        }
    }
}

/// One point beside its baseline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Median, in the unit of the closures.
    pub(crate) value: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Median of the baselines beside the runs that count.
    pub(crate) baseline: f64,
    /// Median of value ÷ baseline of each run.
    pub(crate) ratio: f64,
    /// Runs that count.
    pub(crate) runs: usize,
    /// Runs dropped because the machine changed.
    pub(crate) dropped: usize,
}

impl Figure {
    /// Of value and baseline of each run.
    pub(crate) fn of_pairs(pairs: &[(f64, f64)]) -> Self {
        let of = |part: fn(&(f64, f64)) -> f64| pairs.iter().map(part).collect::<Vec<_>>();
        let (mut values, mut baselines) = (of(|pair| pair.0), of(|pair| pair.1));
        Self {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            value: median(&mut values),
            baseline: median(&mut baselines),
            ratio: median(&mut of(|pair| pair.0 / pair.1)),
            runs: pairs.len(),
            dropped: 0,
        }
    }
}

/// No run counted: the machine changed its speed in each.
#[derive(Debug, thiserror::Error)]
#[error(
    "the baseline changed by more than {} % within each of {tries} runs; the machine is too busy or too restless, try again or stop what else runs",
    TOLERANCE * 100.0
)]
pub(crate) struct Restless {
    tries: usize,
}

/// Measures `point` between two baselines, again until enough runs count. Both closures give one
/// value in the same unit; an error ends the measurement.
pub(crate) fn paired<E: From<Restless>>(
    effort: Effort,
    mut baseline: impl FnMut() -> Result<f64, E>,
    mut point: impl FnMut() -> Result<f64, E>,
) -> Result<Figure, E> {
    let (mut values, mut baselines, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = baseline()?;
    let mut tries = 0;
    while values.len() < effort.runs && tries < effort.tries.max(1) {
        tries += 1;
        let value = point()?;
        let after = baseline()?;
        if effort.rough || agree(before, after) {
            let beside = (before + after) / 2.0;
            values.push(value);
            baselines.push(beside);
            ratios.push(value / beside);
        }
        before = after;
    }
    if values.is_empty() {
        return Err(Restless { tries }.into());
    }
    let runs = values.len();
    Ok(Figure {
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        value: median(&mut values),
        baseline: median(&mut baselines),
        ratio: median(&mut ratios),
        runs,
        dropped: tries - runs,
    })
}

fn agree(before: f64, after: f64) -> bool {
    let (low, high) = (before.min(after), before.max(after));
    low > 0.0 && high <= low * (1.0 + TOLERANCE)
}

/// The middle value, or the mean of the two middle ones; NaN of nothing. Sorts.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(effort: Effort, baselines: &[f64], points: &[f64]) -> Result<Figure, Restless> {
        let (mut b, mut p) = (baselines.iter().copied(), points.iter().copied());
        paired(effort, || Ok(b.next().unwrap()), || Ok(p.next().unwrap()))
    }

    #[test]
    fn a_point_between_two_unlike_baselines_is_dropped_and_tried_again() {
        let figure = run(
            Effort {
                runs: 2,
                tries: 9,
                rough: false,
            },
            &[1.0, 1.1, 4.0, 4.0],
            &[1.05, 9.0, 8.0],
        )
        .unwrap();
        assert_eq!((figure.runs, figure.dropped), (2, 1));
        assert_eq!((figure.min, figure.max), (1.05, 8.0));
        // 1.05 ÷ 1.05 and 8 ÷ 4.
        assert!((figure.ratio - 1.5).abs() < 1e-9);
    }

    #[test]
    fn fewer_runs_than_asked_for_still_give_a_figure() {
        let figure = run(
            Effort {
                runs: 3,
                tries: 3,
                rough: false,
            },
            &[1.0, 1.0, 3.0, 1.0],
            &[2.0, 2.0, 2.0],
        )
        .unwrap();
        assert_eq!((figure.runs, figure.dropped), (1, 2));
    }

    #[test]
    fn a_machine_that_never_settles_is_an_error_that_says_so() {
        let error = run(
            Effort {
                runs: 1,
                tries: 2,
                rough: false,
            },
            &[1.0, 2.0, 4.0],
            &[1.0, 1.0],
        )
        .unwrap_err();
        assert!(error.to_string().contains("each of 2 runs"), "{error}");
    }

    #[test]
    fn a_ratio_follows_the_machine_where_quotients_of_medians_would_not() {
        let figure = run(
            Effort {
                runs: 3,
                tries: 9,
                rough: false,
            },
            &[1.0, 1.0, 4.0, 4.0, 4.0],
            &[2.0, 99.0, 8.0, 8.0],
        )
        .unwrap();
        assert!((figure.ratio - 2.0).abs() < 1e-9);
    }

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }
}
