//! What a translation design counts, in the terms of UTLB §6.

use core::fmt;
use core::ops::{Add, Sub};

/// Counts since the start. The NIC side fills `lookups` and `nic_misses`, the library side the rest; their sum
/// (`+`) is the whole. The difference of two snapshots (`-`) is what happened between them.
///
/// ```
/// use mapwire_translation::Counters;
/// let before = Counters { lookups: 10, nic_misses: 1, pinned_pages: 4, ..Counters::default() };
/// let after = Counters { lookups: 30, nic_misses: 2, pinned_pages: 3, ..Counters::default() };
/// assert_eq!((after - before).lookups, 20);
/// assert_eq!((after - before).pinned_pages, 3); // a level, not a count: the later one
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Pages that the NIC translated.
    pub lookups: u64,
    /// Pages that a transfer needed and the pin map did not have.
    pub check_misses: u64,
    /// Lookups for which the NIC cache did not have the translation.
    pub nic_misses: u64,
    /// Pages pinned.
    pub pins: u64,
    /// Pages unpinned.
    pub unpins: u64,
    /// Pages pinned now. A level: subtraction keeps the later value.
    pub pinned_pages: u64,
}

impl Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            lookups: self.lookups + other.lookups,
            check_misses: self.check_misses + other.check_misses,
            nic_misses: self.nic_misses + other.nic_misses,
            pins: self.pins + other.pins,
            unpins: self.unpins + other.unpins,
            pinned_pages: self.pinned_pages + other.pinned_pages,
        }
    }
}

impl Sub for Counters {
    type Output = Counters;

    /// `later - earlier`. Counts never fall; where they would, the difference is 0.
    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            lookups: self.lookups.saturating_sub(earlier.lookups),
            check_misses: self.check_misses.saturating_sub(earlier.check_misses),
            nic_misses: self.nic_misses.saturating_sub(earlier.nic_misses),
            pins: self.pins.saturating_sub(earlier.pins),
            unpins: self.unpins.saturating_sub(earlier.unpins),
            pinned_pages: self.pinned_pages,
        }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lookups {}, check misses {}, NIC misses {}, pins {}, unpins {}, pinned pages {}",
            self.lookups,
            self.check_misses,
            self.nic_misses,
            self.pins,
            self.unpins,
            self.pinned_pages
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const SOME: Counters = Counters {
        lookups: 6,
        check_misses: 5,
        nic_misses: 4,
        pins: 3,
        unpins: 2,
        pinned_pages: 1,
    };

    #[test]
    fn the_difference_of_snapshots_undoes_a_sum_but_keeps_the_level() {
        assert_eq!(
            (SOME + SOME) - SOME,
            Counters {
                pinned_pages: 2,
                ..SOME
            }
        );
    }

    #[test]
    fn every_count_is_printed() {
        assert_eq!(
            SOME.to_string(),
            "lookups 6, check misses 5, NIC misses 4, pins 3, unpins 2, pinned pages 1"
        );
    }
}
