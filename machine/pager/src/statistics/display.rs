//! Statistics as text.

use core::fmt;

use crate::statistics::Statistics;

fn mib(pages: usize) -> f64 {
    pages as f64 / 256.0
}

/// Lines of two spaces, a name and figures, without a final newline.
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  memory        {:.1} MiB in RAM ({:.1} at its peak) of at most {:.1}, {:.1} MiB on disk, {:.1} MiB remote",
            mib(self.resident_pages),
            mib(self.peak_pages),
            mib(self.limit_pages),
            mib(self.disk_pages()),
            mib(self.remote_pages)
        )?;
        writeln!(
            f,
            "  faults        {} of new pages, {} found in RAM, {} fetched (hit ratio {:.1} %)",
            self.zero_faults,
            self.minor_faults,
            self.major_faults,
            100.0 * self.hit_ratio()
        )?;
        writeln!(
            f,
            "  latency       p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, max {:.1?}",
            self.fault_latency_at(0.5),
            self.fault_latency_at(0.99),
            self.fault_latency_at(0.999),
            self.fault_latency.max()
        )?;
        write!(f, "  pages in      {} fetched, ", self.fetched_pages)?;
        if self.file_pages > 0 {
            write!(f, "{} of files, ", self.file_pages)?;
        }
        writeln!(
            f,
            "{} brought ahead of a fault: {} used, {} left unused",
            self.ahead_pages, self.ahead_hits, self.ahead_waste
        )?;
        write!(
            f,
            "  pages out     {} stored, {} unchanged, {} zeros",
            self.dirty_evictions, self.clean_evictions, self.zero_evictions
        )?;
        if self.remote_put > 0 {
            write!(
                f,
                "\n  donors        {} pages put, {} got, {} missed",
                self.remote_put, self.remote_got, self.remote_missed
            )?;
        }
        if self.store_failures > 0 || self.lost_pages > 0 {
            write!(f, "\n  trouble       {} times not stored, {} pages lost", self.store_failures, self.lost_pages)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::latencies::BUCKETS;

    #[test]
    fn the_figures_are_in_the_text_and_trouble_only_if_there_was_any() {
        let mut statistics = Statistics::default();
        let text = statistics.to_string();
        assert!(text.contains("hit ratio 100.0 %"), "{text}");
        assert!(!text.contains("trouble"), "{text}");
        statistics.major_faults = 3;
        statistics.minor_faults = 1;
        statistics.lost_pages = 2;
        let text = statistics.to_string();
        assert!(text.contains("3 fetched (hit ratio 25.0 %)"), "{text}");
        assert!(text.contains("2 pages lost"), "{text}");
        assert!(!text.contains("donors"), "{text}");
        statistics.ahead_pages = 9;
        statistics.peak_pages = 512;
        statistics.fault_latency = crate::statistics::latencies::Latencies::new([0; BUCKETS], 1_234_567);
        let text = statistics.to_string();
        for part in ["(2.0 at its peak)", "9 brought ahead of a fault: 0 used", "max 1.2ms"] {
            assert!(text.contains(part), "{text}");
        }
        statistics.remote_put = 5;
        let text = statistics.to_string();
        assert!(text.contains("donors        5 pages put, 0 got"), "{text}");
    }
}
