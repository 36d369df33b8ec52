//! Where a measurement ran: the hypervisor moves virtual processors between one physical core and two, and a flag then takes
//! another time to a peer and back.

use std::time::Instant;

/// Round trips of a flag that take longer tell of no placement: a rank did not run.
const LONGEST_NS: f64 = 4000.0;

/// The limit between one core and two while only one of them was seen, in nanoseconds of a round trip.
const USUAL_LIMIT_NS: f64 = 250.0;

/// Where a limit that is learnt may lie.
const LIMITS_NS: core::ops::RangeInclusive<f64> = 80.0..=400.0;

/// Looks that lie this far apart, as a ratio, are of different placements.
const GAP: f64 = 1.5;

/// The physical cores that two ranks run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Placement {
    OneCore,
    TwoCores,
    /// It changed during the measurement, or nobody looked. Such runs count in benches that only show that they work, and in those
    /// of whole programs.
    Unknown,
    /// One process measured alone.
    Alone,
}

impl Placement {
    /// As rows say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one core",
            Self::TwoCores => "two cores",
            Self::Unknown => "unknown",
            Self::Alone => "alone",
        }
    }
}

/// All looks of a bench, which tell the limit between the placements.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    /// Nanoseconds of round trips, ascending.
    looks_ns: Vec<f64>,
}

impl Placements {
    /// Takes note of a look, in nanoseconds of a round trip.
    pub(crate) fn saw(&mut self, look_ns: f64) {
        if look_ns < LONGEST_NS {
            let at = self.looks_ns.partition_point(|&ns| ns < look_ns);
            self.looks_ns.insert(at, look_ns);
        }
    }

    /// The placement that a look before and one after a measurement tell, if both agree.
    pub(crate) fn of(&self, before_ns: f64, after_ns: f64) -> Option<Placement> {
        let limit = self.limit();
        let of = |ns: f64| match ns {
            ns if ns < limit => Some(Placement::OneCore),
            ns if ns < LONGEST_NS => Some(Placement::TwoCores),
            _ => None,
        };
        of(before_ns).filter(|_| of(before_ns) == of(after_ns))
    }

    /// The middle of the widest gap between looks, if there is one where a limit can lie. A few looks on either side of it are
    /// chance.
    fn limit(&self) -> f64 {
        let few = (self.looks_ns.len() / 50).max(2);
        let Some(last) = self.looks_ns.len().checked_sub(few) else {
            return USUAL_LIMIT_NS;
        };
        let gaps = (few..=last).filter_map(|at| {
            let (low, high) = (self.looks_ns[at - 1], *self.looks_ns.get(at)?);
            let middle = (low * high).sqrt();
            (high > low * GAP && LIMITS_NS.contains(&middle)).then_some((high / low, middle))
        });
        gaps.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(USUAL_LIMIT_NS, |(_, middle)| middle)
    }
}

/// Nanoseconds of a round trip, the mean of `times`: the quickest of several `parts`, since others were interrupted. Turns count
/// from 1.
pub(crate) fn quickest(parts: u64, times: u64, mut round_trip: impl FnMut(u64)) -> f64 {
    let mut turn = 0;
    let mut quickest = f64::INFINITY;
    for _ in 0..parts {
        let start = Instant::now();
        for _ in 0..times {
            turn += 1;
            round_trip(turn);
        }
        quickest = quickest.min(start.elapsed().as_nanos() as f64 / times as f64);
    }
    quickest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(looks_ns: &[f64]) -> Placements {
        let mut placements = Placements::default();
        for &ns in looks_ns {
            placements.saw(ns);
        }
        placements
    }

    #[test]
    fn a_machine_seen_in_one_placement_only_is_told_by_the_usual_limit() {
        let none = Placements::default();
        assert_eq!(none.of(120.0, 125.0), Some(Placement::OneCore));
        assert_eq!(none.of(560.0, 540.0), Some(Placement::TwoCores));
        let one = after(&[118.0, 120.0, 122.0, 119.0, 121.0, 130.0]);
        assert_eq!(one.of(120.0, 125.0), Some(Placement::OneCore));
        assert_eq!(one.of(560.0, 540.0), Some(Placement::TwoCores));
    }

    #[test]
    fn looks_of_both_kinds_set_the_limit_between_them() {
        let near = after(&[60.0, 160.0, 62.0, 170.0, 61.0, 165.0]);
        assert_eq!(near.of(61.0, 62.0), Some(Placement::OneCore));
        assert_eq!(near.of(150.0, 170.0), Some(Placement::TwoCores));
        // Two placements of two cores: the wider gap counts, and only where a limit can lie.
        let three = after(&[120.0, 121.0, 122.0, 550.0, 555.0, 560.0, 900.0, 910.0, 920.0]);
        assert_eq!(three.of(550.0, 910.0), Some(Placement::TwoCores));
        assert_eq!(three.of(120.0, 122.0), Some(Placement::OneCore));
    }

    #[test]
    fn a_single_odd_look_moves_no_limit() {
        let mut looks = vec![550.0; 40];
        looks.push(300.0);
        assert_eq!(after(&looks).of(300.0, 550.0), Some(Placement::TwoCores));
        let mut looks = vec![120.0; 40];
        looks.push(240.0);
        assert_eq!(after(&looks).of(240.0, 120.0), Some(Placement::OneCore));
    }

    #[test]
    fn looks_that_disagree_or_take_too_long_tell_of_no_placement() {
        let none = Placements::default();
        assert_eq!(none.of(120.0, 560.0), None);
        assert_eq!(none.of(560.0, 120.0), None);
        assert_eq!(none.of(90_000.0, 90_000.0), None);
        assert_eq!(none.of(560.0, 90_000.0), None);
        assert_eq!(none.of(f64::NAN, f64::NAN), None);
    }

    #[test]
    fn a_look_takes_the_quickest_part_and_counts_its_turns() {
        let mut turns = Vec::new();
        let ns = quickest(3, 2, |turn| {
            turns.push(turn);
            if turn < 5 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        assert_eq!(turns, [1, 2, 3, 4, 5, 6]);
        assert!(ns < 5e6, "{ns}");
    }
}
