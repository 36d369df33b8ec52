//! Figures at the end of the program.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use mapwire_host::descriptors::above_stdio;
use mapwire_host::paging::Statistics;

use crate::state::space;

/// Writes a line to stderr. One that cannot be written is lost.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The process whose figures are wanted at its end; 0: none, or they have been printed.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// Where figures go: stderr as it was at the start, as programs may close it before they end.
static STDERR: OnceLock<File> = OnceLock::new();

/// The process that prints figures in any case.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Has [`at_end`] print figures of this process, and not of a child that shares its memory for a while: if it is the first, or has
/// stored pages.
pub(crate) fn ask(first: u32) {
    FIRST.store(first, Ordering::Relaxed);
    let copy = std::io::stderr().as_fd().try_clone_to_owned();
    if let Some(file) = copy.ok().and_then(|copy| above_stdio(copy).ok()) {
        let _ = STDERR.set(file.into());
    }
    WANTED.store(std::process::id(), Ordering::Relaxed);
}

/// Prints what was counted, once, if it is asked for.
pub(crate) fn at_end() {
    let id = std::process::id();
    let is_first = WANTED.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    if is_first.is_ok()
        && let (Some(space), Some(mut file)) = (space(), STDERR.get())
    {
        let statistics = space.statistics();
        if statistics.written_pages > 0 || id == FIRST.load(Ordering::Relaxed) {
            // One write, so that what others print does not come between.
            let _ = file.write_all(format!("{}\n", Table(&statistics)).as_bytes());
        }
    }
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
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        writeln!(
            f,
            "mapwire far: {}, process {}",
            name.trim(),
            std::process::id()
        )?;
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
