//! A histogram of latencies, with four buckets to each power of two.

use std::time::Duration;

/// Number of buckets of [`Latencies`].
pub(crate) const BUCKETS: usize = 128;

/// Bits below the highest that select a bucket.
const BITS: u32 = 2;

/// Number of faults by latency. A bucket's upper bound exceeds its lower by at most a quarter; the last one holds everything from 7.5 s
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    counts: [u64; BUCKETS],
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], max_ns: 0 }
    }
}

impl Latencies {
    /// Makes it from counts by bucket, and the longest latency.
    pub(crate) fn new(counts: [u64; BUCKETS], max_ns: u64) -> Self {
        Self { counts, max_ns }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, count| all.saturating_add(*count))
    }

    /// The longest; zero if there is none.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// Latency that this share of all does not exceed, at most a quarter too high; zero if there is none.
    #[must_use]
    pub fn at(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut below = 0_u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            below = below.saturating_add(*count);
            if below >= wanted && below > 0 {
                return Duration::from_nanos(bound(bucket)).min(self.max());
            }
        }
        Duration::ZERO
    }
}

pub(crate) fn bucket_of(ns: u64) -> usize {
    let Some(power) = ns.checked_ilog2().filter(|&power| power >= BITS) else {
        return ns as usize;
    };
    let next_bits = ns >> (power - BITS) & ((1 << BITS) - 1);
    let bucket = ((power - BITS + 1) << BITS) as usize + next_bits as usize;
    bucket.min(BUCKETS - 1)
}

/// Exclusive upper bound of a bucket's latencies, inclusive in the last one.
fn bound(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let next = bucket as u64 + 1;
    let (power, bits) = (next >> BITS, next & ((1 << BITS) - 1));
    match power {
        0 => bits,
        power => (bits + (1 << BITS)) << (power - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_below_the_bound_of_its_bucket_and_not_of_the_one_before() {
        for power in 0..32 {
            for step in 0..8_u64 {
                let ns = (1_u64 << power) + (step << power >> 3);
                let bucket = bucket_of(ns);
                assert!(ns < bound(bucket), "{ns}: {bucket}");
                assert!(bound(bucket) <= ns + ns.div_ceil(4).max(1), "{ns}");
                assert!(bucket == 0 || ns >= bound(bucket - 1), "{ns}: {bucket}");
            }
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn shares_are_those_of_the_sorted_latencies() {
        let mut counts = [0; BUCKETS];
        for ns in 1..=1000_u64 {
            counts[bucket_of(ns * 1000)] += 1;
        }
        let latencies = Latencies::new(counts, 1_000_000);
        for (share, exact) in [(0.5, 500_000), (0.99, 990_000), (0.001, 1000)] {
            let found = latencies.at(share).as_nanos() as u64;
            assert!((exact..=exact * 5 / 4).contains(&found), "{share}: {found}");
        }
        assert_eq!(latencies.at(1.0), latencies.max());
        assert_eq!(Latencies::default().at(0.5), Duration::ZERO);
    }
}
