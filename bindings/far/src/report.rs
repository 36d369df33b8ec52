//! Figures at the end of the program.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use mapwire_host::descriptors::above_stdio;

use crate::state::space;

/// Writes a line to stderr; ignores failures.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The process whose figures are printed at its end; 0: none, or already printed.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// Destination of figures: stderr as it was at the start, as programs may close it before they end.
static STDERR: OnceLock<File> = OnceLock::new();

/// The process that prints something in any case.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Makes [`at_end`] print figures of this process, and not of a child that shares its memory for a while: if any page left the RAM. The
/// first process says so if none did.
pub(crate) fn ask(first: u32) {
    FIRST.store(first, Ordering::Relaxed);
    let copy = std::io::stderr().as_fd().try_clone_to_owned();
    if let Some(file) = copy.ok().and_then(|copy| above_stdio(copy).ok()) {
        let _ = STDERR.set(file.into());
    }
    WANTED.store(std::process::id(), Ordering::Relaxed);
}

/// Prints the counters, once, if requested.
pub(crate) fn at_end() {
    let id = std::process::id();
    let is_first = WANTED.compare_exchange(id, 0, Ordering::Relaxed, Ordering::Relaxed);
    if is_first.is_ok()
        && let (Some(space), Some(mut file)) = (space(), STDERR.get())
    {
        let statistics = space.statistics();
        let what = match statistics.has_moved_pages() {
            true => format!("\n{statistics}\n"),
            false if id == FIRST.load(Ordering::Relaxed) => {
                let peak = statistics.peak_pages as f64 / 256.0;
                format!(": nothing left the RAM, where {peak:.1} MiB were at most\n")
            }
            false => return,
        };
        // One write, so that output of others does not come between.
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let text = format!("mapwire far: {}, process {id}{what}", name.trim());
        let _ = file.write_all(text.as_bytes());
    }
}
