//! Counters of a pager.

mod display;
pub(crate) mod latencies;
pub(crate) mod published;

use std::time::Duration;

use crate::statistics::latencies::Latencies;

/// Declares what is counted: for each figure its word of the page (a variant of [`Figure`]) and the field of [`Statistics`].
macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident => $field:ident: $number:ty,)*) => {
        /// What a word of the published page counts, in the order of the words.
        #[derive(Debug, Clone, Copy)]
        #[repr(usize)]
        pub(crate) enum Figure {
            $($figure,)*
            MaxLatencyNs,
        }

        /// Counts of a pager, as of one time. Pages are of 4096 bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[$doc])* pub $field: $number,)*
            /// Latencies of faults from when the pager knew of them.
            pub fault_latency: Latencies,
        }

        impl Statistics {
            /// What `figure` and `bucket` give.
            pub(crate) fn gather(figure: impl Fn(Figure) -> u64, bucket: impl Fn(usize) -> u64) -> Self {
                Self {
                    $($field: figure(Figure::$figure) as $number,)*
                    fault_latency: Latencies::new(core::array::from_fn(bucket), figure(Figure::MaxLatencyNs)),
                }
            }
        }
    };
}

// A new order, or another meaning, is another version of the page.
figures! {
    /// Most pages in RAM.
    LimitPages => limit_pages: usize,
    /// Pages in RAM now: mapped, or waiting for a second chance.
    ResidentPages => resident_pages: usize,
    /// Most pages that were in RAM at once.
    PeakPages => peak_pages: usize,
    /// Pages mapped into regions now.
    MappedPages => mapped_pages: usize,
    /// Pages that are in the store alone now.
    StoredPages => stored_pages: usize,
    /// Pages that are in memory of other processes and hosts now. The store may have them, too.
    RemotePages => remote_pages: usize,
    /// Pages that were put there.
    RemotePut => remote_put: u64,
    /// Pages that were got from there.
    RemoteGot => remote_got: u64,
    /// Pages that did not come from there, or came with wrong bytes, and were taken from elsewhere.
    RemoteMissed => remote_missed: u64,
    /// Faults that took a page from the store, or read a mapped file.
    MajorFaults => major_faults: u64,
    /// Faults on pages in RAM: rescued, or opened to stores.
    MinorFaults => minor_faults: u64,
    /// Faults on pages never touched, which are zeros.
    ZeroFaults => zero_faults: u64,
    /// Faults on pages that another thread worked on, each time that one had to wait.
    Waits => waits: u64,
    /// Pages fetched from the store.
    FetchedPages => fetched_pages: u64,
    /// Pages stored.
    WrittenPages => written_pages: u64,
    /// Pages read from mapped files.
    FilePages => file_pages: u64,
    /// Pages brought by read-ahead.
    AheadPages => ahead_pages: u64,
    /// Of those, pages that were used, as far as faults tell: a walk that went on after its window, a rescue.
    AheadHits => ahead_hits: u64,
    /// Of those, pages evicted without a sign of use.
    AheadWaste => ahead_waste: u64,
    /// Pages evicted that were unchanged since they were stored, or read from a file.
    CleanEvictions => clean_evictions: u64,
    /// Pages evicted that were written to the store first.
    DirtyEvictions => dirty_evictions: u64,
    /// Pages evicted that held zeros only and so take no place in the store.
    ZeroEvictions => zero_evictions: u64,
    /// Pages that were touched while they waited for a second chance.
    RescuedPages => rescued_pages: u64,
    /// Times that the store could not take pages.
    StoreFailures => store_failures: u64,
    /// Pages that could not be fetched: accesses to them raise SIGBUS.
    LostPages => lost_pages: u64,
}

impl Statistics {
    /// Pages that are in the store alone, and not in memory of other hosts.
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
