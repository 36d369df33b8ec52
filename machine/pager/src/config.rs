//! Configuration of a pager.

use crate::error::PagerError;

/// Most pages of one read-ahead or one eviction.
pub(crate) const MAX_BATCH_PAGES: usize = 128;

/// Fewest resident pages with which a pager works.
const MIN_RESIDENT_PAGES: usize = 16;

/// Limits and choices of a [`Pager`](crate::Pager). Callers choose the limit; tests vary the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Most pages in RAM, over all regions.
    pub(crate) resident_pages: usize,
    /// Number of threads that serve faults.
    pub(crate) threads: usize,
    pub(crate) read_ahead_pages: usize,
    pub(crate) batch_pages: usize,
    /// Unmapped pages that wait in RAM for a second chance. They count as resident.
    pub(crate) victim_pages: usize,
}

impl Config {
    pub(crate) fn new(resident_pages: usize) -> Self {
        Self { resident_pages, threads: 1, read_ahead_pages: 32, batch_pages: 64, victim_pages: resident_pages / 8 }
    }

    /// Most pages that a fault brings besides its own. Bounded by the limit, so that a window never evicts itself.
    pub(crate) fn read_ahead_pages(&self) -> usize {
        self.read_ahead_pages.min(MAX_BATCH_PAGES - 1).min(self.resident_pages / 8)
    }

    /// Most pages that a fault brings.
    pub(crate) fn window_pages(&self) -> usize {
        self.read_ahead_pages() + 1
    }

    /// Number of pages of one eviction.
    pub(crate) fn batch_pages(&self) -> usize {
        self.batch_pages.clamp(1, MAX_BATCH_PAGES).min(self.resident_pages / 4)
    }

    /// Refuses a limit with which a pager cannot work.
    pub(crate) fn check(&self) -> Result<(), PagerError> {
        match self.resident_pages {
            pages @ ..MIN_RESIDENT_PAGES => Err(PagerError::LimitTooLow { pages, least: MIN_RESIDENT_PAGES }),
            pages if pages > usize::MAX / 4096 / 4 => Err(PagerError::LimitTooHigh { pages }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_out_of_range_are_errors_that_name_them() {
        let text = |pages| Config::new(pages).check().unwrap_err().to_string();
        assert!(text(0).contains("0 pages"));
        assert!(text(15).contains("at least 16"));
        assert!(text(usize::MAX).contains(&usize::MAX.to_string()));
        assert_eq!(Config::new(16).check(), Ok(()));
    }

    #[test]
    fn batches_and_windows_stay_well_below_the_limit() {
        let config = Config { batch_pages: 0, read_ahead_pages: usize::MAX, ..Config::new(16) };
        assert_eq!((config.batch_pages(), config.read_ahead_pages()), (1, 2));
        assert_eq!(Config::new(16).batch_pages(), 4);
    }
}
