//! Counters of a pager.

use std::time::Duration;

use super::latencies::{BUCKETS, Latencies};
use super::published::Figure;

/// Counters of a pager at one time. Pages have 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Most pages in RAM.
    pub limit_pages: usize,
    /// Pages in RAM now: mapped, or waiting for a second chance.
    pub resident_pages: usize,
    /// Most pages that were in RAM at once.
    pub peak_pages: usize,
    /// Pages mapped into regions now.
    pub mapped_pages: usize,
    /// Pages now only in the store.
    pub stored_pages: usize,
    /// Pages now in memory of other processes and hosts. The store may have them, too.
    pub remote_pages: usize,
    /// Pages put there so far.
    pub remote_put: u64,
    /// Pages fetched from there so far.
    pub remote_got: u64,
    /// Pages that did not arrive from there, or with wrong bytes, and were taken from elsewhere.
    pub remote_missed: u64,
    /// Faults that took a page from the store, or read a mapped file.
    pub major_faults: u64,
    /// Faults on pages in RAM: rescued, or opened to stores.
    pub minor_faults: u64,
    /// Faults on pages never touched, which are zeros.
    pub zero_faults: u64,
    /// Times that a fault had to wait because another thread worked on its page.
    pub waits: u64,
    /// Pages fetched from the store.
    pub fetched_pages: u64,
    /// Pages stored.
    pub written_pages: u64,
    /// Pages read from mapped files.
    pub file_pages: u64,
    /// Pages brought by read-ahead.
    pub ahead_pages: u64,
    /// Of those, pages that were then used, as far as faults show: a walk that passed its window, a rescue.
    pub ahead_hits: u64,
    /// Of those, pages evicted without a sign of use.
    pub ahead_waste: u64,
    /// Pages evicted unchanged since they were stored, or read from a file.
    pub clean_evictions: u64,
    /// Pages evicted that were written to the store first.
    pub dirty_evictions: u64,
    /// Pages evicted that contained only zeros and so need no storage.
    pub zero_evictions: u64,
    /// Pages touched while they waited for a second chance.
    pub rescued_pages: u64,
    /// Times that the store could not take pages.
    pub store_failures: u64,
    /// Pages that could not be fetched: accesses to them raise SIGBUS.
    pub lost_pages: u64,
    /// Latencies of faults, measured from when the pager learned of them.
    pub fault_latency: Latencies,
}

impl Statistics {
    /// Makes it from `figure` and `bucket`.
    pub(super) fn gather(figure: impl Fn(Figure) -> u64, bucket: impl Fn(usize) -> u64) -> Self {
        let pages = |which| usize::try_from(figure(which)).unwrap_or(usize::MAX);
        let counts: [u64; BUCKETS] = core::array::from_fn(bucket);
        Self {
            limit_pages: pages(Figure::LimitPages),
            resident_pages: pages(Figure::ResidentPages),
            peak_pages: pages(Figure::PeakPages),
            mapped_pages: pages(Figure::MappedPages),
            stored_pages: pages(Figure::StoredPages),
            remote_pages: pages(Figure::RemotePages),
            remote_put: figure(Figure::RemotePut),
            remote_got: figure(Figure::RemoteGot),
            remote_missed: figure(Figure::RemoteMissed),
            major_faults: figure(Figure::MajorFaults),
            minor_faults: figure(Figure::MinorFaults),
            zero_faults: figure(Figure::ZeroFaults),
            waits: figure(Figure::Waits),
            fetched_pages: figure(Figure::FetchedPages),
            written_pages: figure(Figure::WrittenPages),
            file_pages: figure(Figure::FilePages),
            ahead_pages: figure(Figure::AheadPages),
            ahead_hits: figure(Figure::AheadHits),
            ahead_waste: figure(Figure::AheadWaste),
            clean_evictions: figure(Figure::CleanEvictions),
            dirty_evictions: figure(Figure::DirtyEvictions),
            zero_evictions: figure(Figure::ZeroEvictions),
            rescued_pages: figure(Figure::RescuedPages),
            store_failures: figure(Figure::StoreFailures),
            lost_pages: figure(Figure::LostPages),
            fault_latency: Latencies::new(counts, figure(Figure::MaxLatencyNs)),
        }
    }

    /// Pages only in the store, and not in memory of other hosts.
    #[must_use]
    pub fn disk_pages(&self) -> usize {
        self.stored_pages.saturating_sub(self.remote_pages)
    }

    /// All faults that were served.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.zero_faults.saturating_add(self.minor_faults).saturating_add(self.major_faults)
    }

    /// Whether any stored page left the RAM, or came from elsewhere, or should have.
    #[must_use]
    pub fn has_moved_pages(&self) -> bool {
        let counts = [
            self.clean_evictions,
            self.dirty_evictions,
            self.zero_evictions,
            self.fetched_pages,
            self.file_pages,
            self.store_failures,
            self.lost_pages,
        ];
        counts.iter().any(|&count| count > 0)
    }

    /// Share of the faults on existing pages, or pages of a file, that found the page in RAM; 1 if there were none.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        match self.minor_faults.saturating_add(self.major_faults) {
            0 => 1.0,
            all => self.minor_faults as f64 / all as f64,
        }
    }

    /// See [`Latencies::at`].
    #[must_use]
    pub fn fault_latency_at(&self, share: f64) -> Duration {
        self.fault_latency.at(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hit_ratio_leaves_new_pages_out() {
        let mut statistics = Statistics { zero_faults: 1000, ..Statistics::default() };
        assert_eq!(statistics.hit_ratio(), 1.0);
        statistics.minor_faults = 1;
        statistics.major_faults = 3;
        assert_eq!((statistics.hit_ratio(), statistics.faults()), (0.25, 1004));
    }
}
