//! Configuration of a pager.

use super::error::PagerError;

/// Most pages of one read-ahead or one eviction.
pub(super) const MAX_BATCH_PAGES: usize = 128;

/// Fewest resident pages with which a pager works.
const MIN_RESIDENT_PAGES: usize = 16;

/// Most threads that serve faults.
const MAX_THREADS: usize = 64;

/// Which threads serve page faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultService {
    /// This many threads of the pager, which wake the thread that faulted. System calls may touch the memory.
    Threads(usize),
    /// The thread that faulted, in a SIGBUS handler. System calls that touch a non-resident page fail with `EFAULT`. At most 16 regions of
    /// a process are served so.
    FaultingThread,
}

/// Limits and choices of a [`Pager`](super::Pager).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagerConfig {
    resident_pages: usize,
    service: FaultService,
    read_ahead_pages: usize,
    batch_pages: usize,
    victim_pages: Option<usize>,
    publishes: bool,
}

impl PagerConfig {
    /// At most `resident_pages` pages of 4096 bytes in RAM, over all regions. One handler thread, a read-ahead of up to 32
    /// pages, evictions of 64 pages.
    #[must_use]
    pub fn new(resident_pages: usize) -> Self {
        Self {
            resident_pages,
            service: FaultService::Threads(1),
            read_ahead_pages: 32,
            batch_pages: 64,
            victim_pages: None,
            publishes: false,
        }
    }

    /// Sets which threads serve faults.
    #[must_use]
    pub fn with_service(self, service: FaultService) -> Self {
        Self { service, ..self }
    }

    /// Sets the most pages that a fault brings besides its own; 0 for no read-ahead.
    #[must_use]
    pub fn with_read_ahead(self, pages: usize) -> Self {
        Self { read_ahead_pages: pages, ..self }
    }

    /// Sets the number of pages of one eviction.
    #[must_use]
    pub fn with_batch(self, pages: usize) -> Self {
        Self { batch_pages: pages, ..self }
    }

    /// Sets how many unmapped pages wait in RAM for a second chance, instead of an eighth of the limit. They count as
    /// resident.
    #[must_use]
    pub fn with_victims(self, pages: usize) -> Self {
        Self { victim_pages: Some(pages), ..self }
    }

    /// Lets other processes read the pager's counters, by [`Statistics::read`](super::Statistics::read) of a descriptor that
    /// `/proc/PID/fd` shows as [`MEMORY_NAME`](super::MEMORY_NAME). Counting costs as much as without.
    #[must_use]
    pub fn publish(self) -> Self {
        Self { publishes: true, ..self }
    }

    pub(super) fn publishes(&self) -> bool {
        self.publishes
    }

    /// Most pages in RAM.
    pub(super) fn resident_pages(&self) -> usize {
        self.resident_pages
    }

    pub(super) fn service(&self) -> FaultService {
        self.service
    }

    /// Most pages that a fault brings besides its own. Bounded by the limit, so that a window never evicts itself.
    pub(super) fn read_ahead_pages(&self) -> usize {
        self.read_ahead_pages.min(MAX_BATCH_PAGES - 1).min(self.resident_pages / 8)
    }

    /// Number of pages of one eviction.
    pub(super) fn batch_pages(&self) -> usize {
        self.batch_pages.clamp(1, MAX_BATCH_PAGES).min(self.resident_pages / 4)
    }

    /// Number of unmapped pages kept for a second chance.
    pub(super) fn victim_pages(&self) -> usize {
        self.victim_pages.unwrap_or(self.resident_pages / 8).min(self.resident_pages / 4)
    }

    /// Refuses values that cannot be clamped.
    pub(super) fn check(&self) -> Result<(), PagerError> {
        if self.resident_pages < MIN_RESIDENT_PAGES {
            return Err(PagerError::LimitTooLow { pages: self.resident_pages, least: MIN_RESIDENT_PAGES });
        }
        if self.resident_pages > usize::MAX / 4096 / 4 {
            return Err(PagerError::LimitTooHigh { pages: self.resident_pages });
        }
        match self.service {
            FaultService::Threads(threads) if threads == 0 || threads > MAX_THREADS => {
                Err(PagerError::Threads { threads, most: MAX_THREADS })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_threads_out_of_range_are_errors_that_name_them() {
        let text = |config: PagerConfig| config.check().unwrap_err().to_string();
        assert!(text(PagerConfig::new(0)).contains("0 pages"));
        assert!(text(PagerConfig::new(15)).contains("at least 16"));
        assert!(text(PagerConfig::new(usize::MAX)).contains(&usize::MAX.to_string()));
        for threads in [0, 65, usize::MAX] {
            let config = PagerConfig::new(64).with_service(FaultService::Threads(threads));
            assert!(text(config).contains(&threads.to_string()));
        }
        assert_eq!(PagerConfig::new(16).check(), Ok(()));
    }

    #[test]
    fn batches_and_windows_stay_well_below_the_limit() {
        let config = PagerConfig::new(16).with_batch(0).with_read_ahead(usize::MAX).with_victims(usize::MAX);
        assert_eq!((config.batch_pages(), config.read_ahead_pages(), config.victim_pages()), (1, 2, 4));
    }
}
