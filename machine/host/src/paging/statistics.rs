//! What a pager counts.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Buckets of the histogram of fault latencies: bucket `n` counts faults of less than 2ⁿ ns that are in no lower bucket; the last,
/// all others.
pub const LATENCY_BUCKETS: usize = 32;

/// Counts of a pager, as of one time. Pages are of 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Pages in RAM now: mapped, waiting for a second chance, and free frames of the pool.
    pub resident_pages: usize,
    /// Pages mapped into regions now.
    pub mapped_pages: usize,
    /// Pages that are in the store alone now.
    pub stored_pages: usize,
    /// Faults that took a page from the store.
    pub major_faults: u64,
    /// Faults on pages in RAM: rescued, or opened to stores.
    pub minor_faults: u64,
    /// Faults on pages never touched.
    pub zero_faults: u64,
    /// Faults on pages that another thread worked on, each time that one had to wait.
    pub waits: u64,
    /// Pages fetched from the store.
    pub fetched_pages: u64,
    /// Pages stored.
    pub written_pages: u64,
    /// Pages brought by read-ahead.
    pub ahead_pages: u64,
    /// Of those, pages that were used, as far as faults tell: a walk that went on after its window, a rescue.
    pub ahead_hits: u64,
    /// Of those, pages evicted without a sign of use.
    pub ahead_waste: u64,
    /// Pages evicted that were unchanged since they were stored.
    pub clean_evictions: u64,
    /// Pages evicted that were written to the store first.
    pub dirty_evictions: u64,
    /// Pages evicted that held zeros only and so take no place in the store.
    pub zero_evictions: u64,
    /// Pages that were touched while they waited for a second chance.
    pub rescued_pages: u64,
    /// Times that the store could not take pages.
    pub store_failures: u64,
    /// Pages that could not be fetched: accesses to them raise SIGBUS.
    pub lost_pages: u64,
    /// Latencies of faults from when the pager knew of them, see [`LATENCY_BUCKETS`].
    pub fault_latency: [u64; LATENCY_BUCKETS],
}

impl Statistics {
    /// The latency that a share of all faults does not exceed, to the next power of two; zero without faults.
    #[must_use]
    pub fn fault_latency_at(&self, share: f64) -> Duration {
        let all: u64 = self.fault_latency.iter().sum();
        let wanted = (all as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut below = 0;
        for (bucket, count) in self.fault_latency.iter().enumerate() {
            below += count;
            if below >= wanted && all > 0 {
                return Duration::from_nanos(1 << bucket);
            }
        }
        Duration::ZERO
    }
}

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// The counts that only rise.
        #[derive(Debug)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
            latency: [AtomicU64; LATENCY_BUCKETS],
        }

        impl Counters {
            pub(super) fn new() -> Self {
                Self {
                    $($name: Counter(AtomicU64::new(0)),)*
                    latency: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
                }
            }

            /// All counts; what the state knows is left at 0.
            pub(super) fn snapshot(&self) -> Statistics {
                Statistics {
                    $($name: self.$name.0.load(Ordering::Relaxed),)*
                    fault_latency: core::array::from_fn(|n| self.latency[n].load(Ordering::Relaxed)),
                    ..Statistics::default()
                }
            }
        }
    };
}

counters!(
    major_faults,
    minor_faults,
    zero_faults,
    waits,
    fetched_pages,
    written_pages,
    ahead_pages,
    ahead_hits,
    ahead_waste,
    clean_evictions,
    dirty_evictions,
    zero_evictions,
    rescued_pages,
    store_failures,
    lost_pages,
);

/// A count that rises.
#[derive(Debug)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: usize) {
        if count > 0 {
            self.0.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

impl Counters {
    /// A fault that was served since `start`.
    pub(super) fn served_since(&self, start: Instant) {
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - ns.leading_zeros()) as usize;
        self.latency[bucket.min(LATENCY_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_powers_of_two() {
        let mut statistics = Statistics::default();
        assert_eq!(statistics.fault_latency_at(0.5), Duration::ZERO);
        statistics.fault_latency[10] = 98;
        statistics.fault_latency[20] = 2;
        assert_eq!(statistics.fault_latency_at(0.5), Duration::from_nanos(1024));
        assert_eq!(
            statistics.fault_latency_at(0.99),
            Duration::from_nanos(1 << 20)
        );
        let counters = Counters::new();
        counters.served_since(Instant::now());
        assert_eq!(counters.snapshot().fault_latency.iter().sum::<u64>(), 1);
    }
}
