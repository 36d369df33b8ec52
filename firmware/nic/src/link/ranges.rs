//! Numbers of the transmissions that have arrived.

use alloc::vec::Vec;

use mapwire_wire::link::MAX_ACK_RANGES;

/// The newest ranges of numbers; forgetting an older one costs its sender one more transmission at most.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// First and last number, descending, neither overlapping nor touching.
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Allocates all memory that it will need.
    pub(super) fn reserve(&mut self) {
        let missing = (MAX_ACK_RANGES + 1).saturating_sub(self.ranges.len());
        self.ranges.reserve_exact(missing);
    }

    /// Ranges in descending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().copied()
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.ranges.first().map(|range| range.1)
    }

    pub(super) fn insert(&mut self, number: u64) {
        let at = self.ranges.iter().position(|range| range.0 <= number).unwrap_or(self.ranges.len());
        let joins_above = at > 0 && number.checked_add(1) == self.ranges.get(at - 1).map(|range| range.0);
        let below = self.ranges.get(at).map(|range| range.1);
        if below.is_some_and(|last| last >= number) {
            return;
        }
        let joins_below = below.is_some_and(|last| last.checked_add(1) == Some(number));
        match (joins_above, joins_below) {
            (true, true) => {
                self.ranges[at - 1].0 = self.ranges[at].0;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].0 = number,
            (false, true) => self.ranges[at].1 = number,
            (false, false) => {
                self.ranges.reserve_exact(MAX_ACK_RANGES + 1 - self.ranges.len());
                self.ranges.insert(at, (number, number));
                self.ranges.truncate(MAX_ACK_RANGES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use mapwire_wire::link::LinkAck;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_the_numbers_that_came_and_always_make_an_ack(numbers in prop::collection::vec(0u64..60, 0..80)) {
            let mut ranges = Ranges::default();
            let mut came = BTreeSet::new();
            let mut was_full = false;
            for number in numbers {
                ranges.insert(number);
                came.insert(number);
                was_full |= ranges.iter().count() == MAX_ACK_RANGES;
                prop_assert!(LinkAck::new(0, ranges.iter()).is_ok());
                prop_assert!(ranges.iter().count() <= MAX_ACK_RANGES);
                prop_assert!(ranges.iter().all(|(first, last)| (first..=last).all(|n| came.contains(&n))));
            }
            let held: u64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
            if !was_full {
                prop_assert_eq!(held, came.len() as u64);
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers_are_numbers_too() {
        let mut ranges = Ranges::default();
        for number in [u64::MAX, 0, u64::MAX - 1, 1] {
            ranges.insert(number);
        }
        assert!(ranges.iter().eq([(u64::MAX - 1, u64::MAX), (0, 1)]));
    }
}
