//! The shape of a cache, and the set in which a translation may live.

use crate::interrupt::MAX_FILL_PAGES;
use crate::page::{Page, Process};
use crate::per_process::MAX_TABLE_ENTRIES;
use crate::table::TABLE_ENTRIES;

/// Most entries of a cache: 4 GiB of them.
pub const MAX_ENTRIES: usize = 1 << 28;
/// Most entries of a line: those of a second-level table.
pub const MAX_LINE_ENTRIES: usize = TABLE_ENTRIES;

/// Shape of a [`SharedCache`](crate::SharedCache).
///
/// ```
/// use mapwire_translation::{CacheConfig, Page, Process};
/// let config = CacheConfig::default().with_entries(1024).with_ways(4).with_line_entries(16);
/// assert_eq!(config.sets(), 16);
/// let at = |page| config.set_of(Process(3), Page(page));
/// assert_eq!(at(0), at(15)); // one line
/// assert_eq!((at(0) + 1) % 16, at(16)); // the next line, in the next set
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct CacheConfig {
    /// Number of translations: a power of two up to [`MAX_ENTRIES`]. UTLB §4.2 chose 8192, the default.
    pub entries: usize,
    /// Lines of a set; a new line evicts the least recently used one of its set. A power of two, at most the number of lines; 1, the
    /// default, is direct-mapped, the number of lines is fully associative.
    pub ways: usize,
    /// Translations of consecutive pages that are cached and evicted together: a power of two up to [`MAX_LINE_ENTRIES`]. Default: 1.
    pub line_entries: usize,
    /// Whether each process's pages start at an offset of their own (UTLB §3.2). On by default.
    pub offset_per_process: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig { entries: 8192, ways: 1, line_entries: 1, offset_per_process: true }
    }
}

impl CacheConfig {
    /// The same with another number of entries.
    #[must_use]
    pub const fn with_entries(self, entries: usize) -> Self {
        CacheConfig { entries, ..self }
    }

    /// The same with another number of ways.
    #[must_use]
    pub const fn with_ways(self, ways: usize) -> Self {
        CacheConfig { ways, ..self }
    }

    /// The same with lines of another length.
    #[must_use]
    pub const fn with_line_entries(self, line_entries: usize) -> Self {
        CacheConfig { line_entries, ..self }
    }

    /// The same with the per-process offset on or off.
    #[must_use]
    pub const fn with_offset_per_process(self, offset_per_process: bool) -> Self {
        CacheConfig { offset_per_process, ..self }
    }

    /// Checks that such a cache can be built.
    ///
    /// # Errors
    /// Names the first number that is wrong.
    pub const fn checked(self) -> Result<Self, CacheError> {
        let CacheConfig { entries, ways, line_entries, .. } = self;
        if !entries.is_power_of_two() || entries > MAX_ENTRIES {
            return Err(CacheError::Entries { entries });
        }
        if !line_entries.is_power_of_two() || line_entries > MAX_LINE_ENTRIES || line_entries > entries {
            return Err(CacheError::Line { line_entries, entries });
        }
        let lines = entries / line_entries;
        if !ways.is_power_of_two() || ways > lines {
            return Err(CacheError::Ways { ways, lines });
        }
        Ok(self)
    }

    /// Number of sets: lines / ways. The shape must be valid.
    #[must_use]
    pub const fn sets(self) -> usize {
        self.entries >> self.line_entries.trailing_zeros() >> self.ways.trailing_zeros()
    }

    /// The set in which a translation may live: (page / line length + offset of the process) modulo the sets. The shape must be valid.
    ///
    /// A process has the same offset in every shape, so that two lines that share a set of a cache share one of any cache with fewer sets.
    #[inline]
    #[must_use]
    pub const fn set_of(self, process: Process, page: Page) -> usize {
        let line = page.0 >> self.line_entries.trailing_zeros();
        let factor = offset_factor(self.offset_per_process);
        (line.wrapping_add(offset(process, factor)) & (self.sets() as u64 - 1)) as usize
    }
}

/// The factor for [`offset`].
pub(super) const fn offset_factor(offset_per_process: bool) -> u64 {
    if offset_per_process { FACTOR } else { 0 }
}

/// Offset of the process's page 0. Low bits select a set: 8 of them in one cache, 20 in another. The bits of [`FACTOR`] were searched so
/// that, for each number of bits, up to 64 consecutive processes start nearly as far apart as they can.
#[inline(always)]
pub(super) const fn offset(process: Process, factor: u64) -> u64 {
    (process.0 as u64).wrapping_mul(factor) >> 32
}

const FACTOR: u64 = 0x701b_9375_1832_6ec7;

/// Why a cache or design cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The index is a bit field of the page number, so the size must be a power of two.
    #[error(
        "a translation cache of {entries} entries cannot be built; choose a power of two from 1 to {MAX_ENTRIES}, such as 8192"
    )]
    Entries {
        /// Number requested.
        entries: usize,
    },
    /// A line is an aligned run of pages.
    #[error(
        "lines of {line_entries} entries do not suit a translation cache of {entries}; choose a power of two from 1 to \
         {MAX_LINE_ENTRIES} that is not more than the entries"
    )]
    Line {
        /// Number requested.
        line_entries: usize,
        /// Entries of the cache.
        entries: usize,
    },
    /// The number of sets is a power of two as well.
    #[error(
        "{ways} ways do not divide the {lines} lines of a translation cache evenly; choose a power of two from 1 to {lines}"
    )]
    Ways {
        /// Number requested.
        ways: usize,
        /// Lines of the cache.
        lines: usize,
    },
    /// A table needs at least one entry.
    #[error(
        "a translation table of {entries} entries cannot be built; choose from 1 to {MAX_TABLE_ENTRIES}, such as 2048"
    )]
    Table {
        /// Number requested.
        entries: usize,
    },
    /// A miss needs a second-level table in memory.
    #[error("without a second-level table in memory nothing can be translated; choose 1 or more, or none for no limit")]
    NoTables,
    /// An interrupt asks for a bounded run of pages.
    #[error("{fill_pages} pages cannot be filled by an interrupt; choose from 1 to {MAX_FILL_PAGES}, such as 32")]
    Fill {
        /// Number requested.
        fill_pages: u32,
    },
    /// A miss fetches from one second-level table.
    #[error("{prefetch} entries cannot be fetched at once; choose from 1 to {TABLE_ENTRIES}, such as 8")]
    Prefetch {
        /// Number requested.
        prefetch: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_shape_that_cannot_be_built_is_named_in_the_error() {
        let config = CacheConfig::default();
        for entries in [0, 3, 8191, MAX_ENTRIES * 2] {
            let error = config.with_entries(entries).checked().unwrap_err();
            let expected = std::format!("{entries} entries");
            assert!(error.to_string().contains(&expected), "{error}");
        }
        for line in [0, 3, 2048, 16384] {
            let error = config.with_line_entries(line).checked().unwrap_err();
            let expected = std::format!("lines of {line} entries");
            assert!(error.to_string().contains(&expected), "{error}");
        }
        for ways in [0, 3, 256] {
            let shape = config.with_entries(1024).with_line_entries(8).with_ways(ways);
            let error = shape.checked().unwrap_err();
            let expected = std::format!("{ways} ways");
            assert!(error.to_string().contains(&expected), "{error}");
            assert!(error.to_string().contains("128 lines"), "{error}");
        }
        assert!(config.with_entries(8).with_line_entries(16).checked().is_err());
        assert_eq!(config.with_entries(1).checked(), Ok(config.with_entries(1)));
    }

    /// Least distance between the starts of `count` consecutive processes, as a fraction of an even spread.
    fn spread(count: u64, sets: u64) -> f64 {
        let config = CacheConfig::default().with_entries(sets as usize);
        let mut starts: std::vec::Vec<_> =
            (0..count).map(|n| config.set_of(Process(n as u16), Page(1000)) as u64).collect();
        starts.sort_unstable();
        let around = starts[0] + sets - starts[starts.len() - 1];
        let least = starts.windows(2).map(|pair| pair[1] - pair[0]).min();
        (least.unwrap().min(around) * count) as f64 / sets as f64
    }

    #[test]
    fn processes_that_follow_one_another_start_apart_in_caches_of_every_size() {
        for shift in 8..=16 {
            for count in 2..=32 {
                let spread = spread(count, 1 << shift);
                assert!(spread > 0.15, "{count} processes, {} sets: {spread}", 1 << shift);
            }
        }
        let together = CacheConfig::default().with_offset_per_process(false);
        for process in 0..16 {
            assert_eq!(together.set_of(Process(process), Page(1000)), 1000);
        }
    }

    #[test]
    fn the_sets_of_a_larger_cache_refine_those_of_a_smaller_one() {
        let small = CacheConfig::default().with_entries(256).with_ways(4);
        for large in [small.with_entries(4096), small.with_ways(1)] {
            for process in 0..40 {
                for page in (0..100_000).step_by(37) {
                    let (process, page) = (Process(process), Page(page));
                    assert_eq!(large.set_of(process, page) % small.sets(), small.set_of(process, page));
                }
            }
        }
    }
}
