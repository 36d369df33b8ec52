//! Paired measurements on a machine whose speed changes by itself.
//!
//! Virtual processors are moved between one physical core and two at any time, which changes a
//! cache line's way fourfold. So each run takes the baseline right before and right after the
//! point, drops the point if the two differ by more than a fifth, and keeps the ratio; the figure
//! is the median of ratios. Where two ranks measure, a look at a flag before and after the run tells
//! its [`Placement`]; runs of one placement never count with those of another.

use super::placement::{Placement, Placements};

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
    /// The share by which the baselines of a run may differ.
    pub(crate) tolerance: f64,
}

impl Effort {
    /// `quick` runs that all count if the plan is to be quick, else as [`Effort::of`].
    pub(crate) fn planned(plan: &super::Plan, quick: usize, runs: usize) -> Self {
        if plan.quick { Self { tries: quick, rough: true, ..Self::of(quick) } } else { Self::of(runs) }
    }

    /// `runs`, and up to five times as many tries.
    pub(crate) fn of(runs: usize) -> Self {
        Self { runs, tries: runs * 5, rough: false, tolerance: TOLERANCE }
    }

    /// For baselines that scatter by themselves, as wake-ups do: only the placement must stay.
    pub(crate) fn scattered(self) -> Self {
        Self { tolerance: f64::INFINITY, ..self }
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
    /// Where all runs that count took place, and the median of the flag's round trip beside them, in nanoseconds.
    pub(crate) placement: (Placement, Option<f64>),
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
            placement: (Placement::Alone, None),
        }
    }
}

/// No run counted: the machine changed its speed in each.
#[derive(Debug, thiserror::Error)]
#[error(
    "the baseline or the placement changed within each of {tries} runs; the machine is too busy or too restless, try again or stop what else runs"
)]
pub(crate) struct Restless {
    tries: usize,
}

/// In one process: measures `point` between two baselines, again until enough runs count. Both closures give one
/// value in the same unit; an error ends the measurement.
pub(crate) fn paired<E: From<Restless>>(
    effort: Effort,
    mut baseline: impl FnMut() -> Result<f64, E>,
    mut point: impl FnMut() -> Result<f64, E>,
) -> Result<Figure, E> {
    let one = paired_each(effort, || baseline().map(|it| [it]), || point().map(|it| [it]));
    one.map(|[figure]| figure)
}

/// As [`paired`], of several values of each run, such as its quantiles. The first of a baseline says whether the run counts.
pub(crate) fn paired_each<E: From<Restless>, const N: usize>(
    effort: Effort,
    mut baseline: impl FnMut() -> Result<[f64; N], E>,
    mut point: impl FnMut() -> Result<[f64; N], E>,
) -> Result<[Figure; N], E> {
    let mut runs = Vec::new();
    let mut before = baseline()?;
    let mut tries = 0;
    while runs.len() < effort.runs && tries < effort.tries.max(1) {
        tries += 1;
        let values = point()?;
        let after = baseline()?;
        if effort.rough || agree(before[0], after[0], effort.tolerance) {
            let pair = |at: usize| (values[at], (before[at] + after[at]) / 2.0);
            runs.push(core::array::from_fn::<_, N, _>(pair));
        }
        before = after;
    }
    if runs.is_empty() {
        return Err(Restless { tries }.into());
    }
    let figure = |at: usize| Figure {
        dropped: tries - runs.len(),
        ..Figure::of_pairs(&runs.iter().map(|run| run[at]).collect::<Vec<_>>())
    };
    Ok(core::array::from_fn(figure))
}

/// A step of [`sampled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The round trip of a flag, in nanoseconds.
    Look,
    /// The way of this number, in a unit that all ways share.
    Way(usize),
}

/// Several ways measured side by side, again and again.
#[derive(Debug)]
pub(crate) struct Samples {
    /// Fewest runs of a placement that give a figure.
    enough: usize,
    tries: usize,
    runs: Vec<Sample>,
}

/// One run of all ways.
#[derive(Debug)]
struct Sample {
    placement: Placement,
    flag_ns: f64,
    values: Vec<f64>,
}

/// Measures ways 0 to `ways` - 1 beside one another, again until enough runs of one placement count. Each run begins and ends
/// with a look and with way 0; it counts if both looks tell the same placement and both values agree.
///
/// # Errors
/// An error of `measure`, or no run counted.
pub(crate) fn sampled<E: From<Restless>>(
    effort: Effort,
    placements: &mut Placements,
    ways: usize,
    mut measure: impl FnMut(Step) -> Result<f64, E>,
) -> Result<Samples, E> {
    let mut samples =
        Samples { enough: if effort.rough { 1 } else { effort.runs.div_ceil(4) }, tries: 0, runs: Vec::new() };
    if !effort.rough {
        // Once for nothing: pages are touched, caches filled.
        for way in 0..ways {
            measure(Step::Way(way))?;
        }
    }
    let mut look = measure(Step::Look)?;
    placements.saw(look);
    while !samples.are_enough(effort.runs) && samples.tries < effort.tries.max(1) {
        samples.tries += 1;
        let mut values = vec![0.0; ways];
        let first = measure(Step::Way(0))?;
        for turn in 1..ways {
            // Forwards and backwards in turn, so that no way always comes first.
            let way = if samples.tries.is_multiple_of(2) { turn } else { ways - turn };
            values[way] = measure(Step::Way(way))?;
        }
        let last = measure(Step::Way(0))?;
        let next = measure(Step::Look)?;
        placements.saw(next);
        let placement = match placements.of(look, next) {
            Some(placement) if agree(first, last, effort.tolerance) => Some(placement),
            Some(placement) => effort.rough.then_some(placement),
            None => effort.rough.then_some(Placement::Unknown),
        };
        if let Some(placement) = placement {
            values[0] = (first + last) / 2.0;
            samples.runs.push(Sample { placement, flag_ns: (look + next) / 2.0, values });
        }
        look = next;
    }
    if samples.runs.is_empty() {
        return Err(Restless { tries: samples.tries }.into());
    }
    Ok(samples)
}

impl Samples {
    fn of(&self, placement: Placement) -> Vec<&Sample> {
        let runs = self.runs.iter();
        runs.filter(|run| run.placement == placement).collect()
    }

    fn are_enough(&self, wanted: usize) -> bool {
        [Placement::OneCore, Placement::TwoCores].iter().any(|&placement| self.of(placement).len() >= wanted)
    }

    /// The way of number `value` beside that of number `baseline`: a figure for each placement of which there are enough runs, or for
    /// that of which there are most.
    pub(crate) fn figures(&self, value: usize, baseline: usize) -> Vec<Figure> {
        let mut kinds: Vec<_> = [Placement::OneCore, Placement::TwoCores, Placement::Unknown]
            .into_iter()
            .map(|placement| (placement, self.of(placement)))
            .filter(|(_, runs)| !runs.is_empty())
            .collect();
        // The most frequent last, which always stays.
        kinds.sort_by_key(|(_, runs)| runs.len());
        let most = kinds.len().saturating_sub(1);
        kinds.drain(..most.min(kinds.partition_point(|(_, runs)| runs.len() < self.enough)));
        let used: usize = kinds.iter().map(|(_, runs)| runs.len()).sum();
        kinds.sort_by_key(|&(placement, _)| placement);
        let figure = |(placement, runs): (Placement, Vec<&Sample>)| {
            let pairs: Vec<_> = runs.iter().map(|run| (run.values[value], run.values[baseline])).collect();
            let mut flags: Vec<_> = runs.iter().map(|run| run.flag_ns).collect();
            Figure {
                dropped: self.tries - used,
                placement: (placement, Some(median(&mut flags))),
                ..Figure::of_pairs(&pairs)
            }
        };
        kinds.into_iter().map(figure).collect()
    }
}

/// Microseconds of a call.
#[inline(always)]
pub(crate) fn timed_us(call: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    call();
    start.elapsed().as_nanos() as f64 / 1000.0
}

/// The time below which a share of the sorted `times` lies; NaN of none.
pub(crate) fn quantile(times: &[f64], share: f64) -> f64 {
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or(f64::NAN)
}

fn agree(before: f64, after: f64, tolerance: f64) -> bool {
    let (low, high) = (before.min(after), before.max(after));
    low > 0.0 && high <= low * (1.0 + tolerance)
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

    fn effort(runs: usize, tries: usize) -> Effort {
        Effort { runs, tries, rough: false, tolerance: TOLERANCE }
    }

    fn run(effort: Effort, baselines: &[f64], points: &[f64]) -> Result<Figure, Restless> {
        let (mut b, mut p) = (baselines.iter().copied(), points.iter().copied());
        paired(effort, || Ok(b.next().unwrap()), || Ok(p.next().unwrap()))
    }

    #[test]
    fn a_point_between_two_unlike_baselines_is_dropped_and_tried_again() {
        let figure = run(effort(2, 9), &[1.0, 1.1, 4.0, 4.0], &[1.05, 9.0, 8.0]).unwrap();
        assert_eq!((figure.runs, figure.dropped), (2, 1));
        assert_eq!((figure.min, figure.max), (1.05, 8.0));
        // 1.05 ÷ 1.05 and 8 ÷ 4.
        assert!((figure.ratio - 1.5).abs() < 1e-9);
    }

    #[test]
    fn fewer_runs_than_asked_for_still_give_a_figure() {
        let figure = run(effort(3, 3), &[1.0, 1.0, 3.0, 1.0], &[2.0, 2.0, 2.0]).unwrap();
        assert_eq!((figure.runs, figure.dropped), (1, 2));
    }

    #[test]
    fn values_of_one_run_count_or_are_dropped_together() {
        let effort = effort(2, 9);
        let mut baselines = [[1.0, 9.0], [1.0, 1.0], [4.0, 1.0], [4.0, 3.0]].into_iter();
        let mut points = [[2.0, 10.0], [7.0, 7.0], [8.0, 4.0]].into_iter();
        let baseline = || Ok::<_, Restless>(baselines.next().unwrap());
        let [one, other] = paired_each(effort, baseline, || Ok(points.next().unwrap())).unwrap();
        assert_eq!((one.runs, one.dropped, one.ratio), (2, 1, 2.0));
        assert_eq!((other.min, other.max, other.ratio), (4.0, 10.0, 2.0));
    }

    #[test]
    fn a_machine_that_never_settles_is_an_error_that_says_so() {
        let error = run(effort(1, 2), &[1.0, 2.0, 4.0], &[1.0, 1.0]).unwrap_err();
        assert!(error.to_string().contains("each of 2 runs"), "{error}");
    }

    #[test]
    fn a_ratio_follows_the_machine_where_quotients_of_medians_would_not() {
        let figure = run(effort(3, 9), &[1.0, 1.0, 4.0, 4.0, 4.0], &[2.0, 99.0, 8.0, 8.0]).unwrap();
        assert!((figure.ratio - 2.0).abs() < 1e-9);
    }

    #[test]
    fn quantiles_are_of_the_times_in_order_whatever_their_number() {
        let times: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 0.999].map(|share| quantile(&times, share)), [500.0, 990.0, 999.0]);
        assert_eq!(quantile(&[3.0], 0.99), 3.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }

    /// Samples of looks and of two ways, whose values are given in the order in which they are measured.
    fn sample(effort: Effort, looks: &[f64], ways: &[f64]) -> Result<Samples, Restless> {
        let (mut looks, mut ways) = (looks.iter().copied(), ways.iter().copied());
        sampled(effort, &mut Placements::default(), 2, |step| {
            Ok(match step {
                Step::Look => looks.next().unwrap(),
                Step::Way(_) => ways.next().unwrap(),
            })
        })
    }

    #[test]
    fn runs_of_both_placements_give_a_figure_each_and_are_never_mixed() {
        let effort = effort(2, 9);
        let samples = sample(
            effort,
            &[120.0, 122.0, 550.0, 552.0, 548.0],
            // To warm up, then a point between two baselines, again and again.
            &[0.0, 0.0, 1.0, 1.1, 1.0, 1.0, 2.0, 1.0, 1.0, 6.0, 1.0, 1.0, 6.0, 1.0],
        )
        .unwrap();
        let figures = samples.figures(1, 0);
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].runs, figures[0].value), (1, 1.1));
        assert_eq!(figures[0].placement, (Placement::OneCore, Some(121.0)));
        assert_eq!((figures[1].runs, figures[1].value), (2, 6.0));
        assert_eq!((figures[1].min, figures[1].max), (6.0, 6.0));
        assert_eq!(figures[1].placement, (Placement::TwoCores, Some(550.5)));
        // The run in between, whose looks disagree, is in neither.
        assert_eq!((figures[0].dropped, figures[1].dropped), (1, 1));
    }

    #[test]
    fn a_placement_that_was_hardly_seen_gives_no_figure() {
        let effort = effort(8, 9);
        let mut looks = vec![120.0, 121.0];
        looks.extend([550.0; 9]);
        let samples = sample(effort, &looks, &[1.0; 30]).unwrap();
        let figures = samples.figures(1, 0);
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].runs, figures[0].dropped), (7, 2));
    }

    #[test]
    fn a_quick_run_whose_looks_disagree_has_a_row_of_its_own() {
        let effort = Effort { runs: 2, tries: 2, rough: true, tolerance: TOLERANCE };
        let samples = sample(effort, &[120.0, 550.0, 550.0], &[1.0, 9.0, 1.0, 1.0, 2.0, 1.0]).unwrap();
        let figures = samples.figures(1, 0);
        let seen: Vec<_> = figures.iter().map(|f| (f.placement.0, f.value)).collect();
        assert_eq!(seen, [(Placement::TwoCores, 2.0), (Placement::Unknown, 9.0)]);
    }

    #[test]
    fn looks_that_never_agree_are_an_error() {
        let effort = effort(1, 2);
        let error = sample(effort, &[120.0, 550.0, 120.0], &[1.0; 9]).unwrap_err();
        assert!(error.to_string().contains("each of 2 runs"), "{error}");
    }
}
