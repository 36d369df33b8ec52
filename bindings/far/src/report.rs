//! Figures at the end of the program.

use std::fmt;
use std::io::Write;

use mapwire_host::paging::Statistics;

/// Writes a line to stderr. One that cannot be written is lost.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints what was counted.
pub(crate) fn print(statistics: &Statistics) {
    line(format_args!("{}", Table(statistics)));
}

struct Table<'a>(&'a Statistics);

fn mib(pages: usize) -> f64 {
    pages as f64 / 256.0
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = self.0;
        let touched = it.minor_faults + it.major_faults;
        let share = match touched {
            0 => 100.0,
            touched => 100.0 * it.minor_faults as f64 / touched as f64,
        };
        writeln!(f, "mapwire far: process {}", std::process::id())?;
        writeln!(
            f,
            "  memory        {:.1} MiB in RAM, {:.1} MiB stored",
            mib(it.resident_pages),
            mib(it.stored_pages)
        )?;
        writeln!(
            f,
            "  faults        {} of new pages, {} found in RAM, {} fetched ({share:.1} % found)",
            it.zero_faults, it.minor_faults, it.major_faults
        )?;
        writeln!(
            f,
            "  latency       p50 {:?}, p99 {:?}, p99.9 {:?} (upper bounds)",
            it.fault_latency_at(0.5),
            it.fault_latency_at(0.99),
            it.fault_latency_at(0.999)
        )?;
        writeln!(
            f,
            "  pages in      {} fetched, {} of them ahead: {} used, {} not",
            it.fetched_pages, it.ahead_pages, it.ahead_hits, it.ahead_waste
        )?;
        write!(
            f,
            "  pages out     {} stored, {} unchanged, {} zeros",
            it.dirty_evictions, it.clean_evictions, it.zero_evictions
        )?;
        if it.store_failures > 0 || it.lost_pages > 0 {
            write!(
                f,
                "\n  trouble       {} times not stored, {} pages lost",
                it.store_failures, it.lost_pages
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_in_the_table_and_trouble_only_if_there_was_any() {
        let mut statistics = Statistics::default();
        let text = Table(&statistics).to_string();
        assert!(
            text.contains("100.0 % found") && !text.contains("trouble"),
            "{text}"
        );
        statistics.major_faults = 3;
        statistics.minor_faults = 1;
        statistics.lost_pages = 2;
        let text = Table(&statistics).to_string();
        assert!(
            text.contains("3 fetched (25.0 % found)") && text.contains("2 pages lost"),
            "{text}"
        );
    }
}
