//! When a scan of a row looks how much of it has been fetched (GMS-NP §4.4).

/// The check points of a scan that overlaps the fetch of its row. While one entry is scanned, *r* others arrive: the scan checks before
/// the first entry, and after entries 1, 1 + *r*, 1 + *r*², and so on. The paper's figures (0.25 µs to fetch an entry, 1.6 µs
/// to scan it) give *r* = 6, and checks after entries 1, 7 and 37.
#[derive(Clone, Copy, Debug)]
pub struct CheckPoints {
    ratio: u64,
    row_entries: u64,
    /// The next one, if there is one.
    next: Option<u64>,
    /// Entries between the first and the check after the next.
    step: u64,
}

impl CheckPoints {
    /// The check points for a row of `row_entries`, each of which takes `fetch_ns` to arrive and `scan_ns` to scan.
    #[must_use]
    pub const fn new(fetch_ns: u64, scan_ns: u64, row_entries: u64) -> Self {
        let fetch_ns = if fetch_ns == 0 { 1 } else { fetch_ns };
        Self { ratio: scan_ns / fetch_ns, row_entries, next: Some(0), step: 0 }
    }
}

impl Iterator for CheckPoints {
    /// Entries scanned when the check is made.
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let scanned = self.next.filter(|&scanned| scanned < self.row_entries)?;
        // Entries that arrive no faster than they are scanned are checked one by one.
        self.next = match (scanned, self.ratio) {
            (0, _) => Some(1),
            (_, 0 | 1) => scanned.checked_add(1),
            (1, ratio) => {
                self.step = ratio;
                ratio.checked_add(1)
            }
            (_, ratio) => {
                self.step = self.step.saturating_mul(ratio);
                self.step.checked_add(1)
            }
        };
        Some(scanned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_papers_figures_give_the_papers_check_points() {
        let points: Vec<_> = CheckPoints::new(250, 1_600, 64).collect();
        assert_eq!(points, [0, 1, 7, 37]);
    }

    #[test]
    fn entries_that_arrive_slowly_are_checked_one_by_one() {
        for scan_ns in [0, 250, 499] {
            let points: Vec<_> = CheckPoints::new(250, scan_ns, 4).collect();
            assert_eq!(points, [0, 1, 2, 3]);
        }
        assert_eq!(CheckPoints::new(0, u64::MAX, u64::MAX).count(), 2);
    }
}
