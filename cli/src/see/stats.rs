//! `mapwire stats`: the figures of a process with far memory, which its pager publishes in a memfd.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mapwire_host::page::PAGE_BYTES;
use mapwire_pager::{FiguresError, MEMORY_NAME, Statistics};
use serde_json::{Value, json};

use super::jobs::memory_of;
use crate::args::StatsArgs;

/// From one line of `--watch` to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Lines of `--watch` from one title to the next.
const PAGE_LINES: usize = 20;

#[derive(Debug, thiserror::Error)]
enum StatsError {
    #[error("no process has the number {0}; `pgrep -a NAME` lists those of a program")]
    NoProcess(u32),
    #[error("process {0} is not yours to look at; run this as its user or as root")]
    NotAllowed(u32),
    #[error(
        "process {0} has no far memory; start it by `mapwire far --local SIZE -- PROGRAM`, and mind that a shell's number is not its program's"
    )]
    NotFar(u32),
    #[error("process {0}")]
    Unreadable(u32, #[source] FiguresError),
    #[error("process {0}: cannot look at its descriptors")]
    Descriptors(u32, #[source] io::Error),
}

pub(crate) fn command(args: &StatsArgs) -> Result<ExitCode, crate::Failure> {
    let done = if args.watch { watch(args) } else { read(args.pid).map(|found| print(args, &found)) };
    done.map(|()| ExitCode::SUCCESS).map_err(crate::failing(1))
}

/// The figures of each pager of a process, at least one.
fn read(pid: u32) -> Result<Vec<Statistics>, StatsError> {
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StatsError::NoProcess(pid),
        io::ErrorKind::PermissionDenied => StatsError::NotAllowed(pid),
        _ if error.raw_os_error() == Some(libc::ESRCH) => StatsError::NoProcess(pid),
        _ => StatsError::Descriptors(pid, error),
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).map_err(explain)?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| memory_of(path).as_deref() == Some(MEMORY_NAME))
        .collect();
    paths.sort();
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        // Another file of this name, such as a pipe, must not make this wait.
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
        match file {
            Ok(file) => found.push(Statistics::read(file).map_err(|error| StatsError::Unreadable(pid, error))?),
            // It was closed since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(explain(error)),
        }
    }
    if found.is_empty() { Err(StatsError::NotFar(pid)) } else { Ok(found) }
}

fn print(args: &StatsArgs, found: &[Statistics]) {
    let name = name_of(args.pid);
    for statistics in found {
        match args.json {
            true => println!("{}", object(args.pid, &name, statistics)),
            false => println!("{name}, process {}\n{statistics}", args.pid),
        }
    }
}

/// The name of a program, without what a terminal would obey.
fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.chars().filter(|it| !it.is_control()).collect()
}

fn object(pid: u32, name: &str, it: &Statistics) -> Value {
    let bytes = |pages: usize| pages as u64 * PAGE_BYTES as u64;
    let ns = |share| it.fault_latency_at(share).as_nanos() as u64;
    json!({
        "kind": "far",
        "pid": pid,
        "program": name,
        "limit_bytes": bytes(it.limit_pages),
        "resident_bytes": bytes(it.resident_pages),
        "peak_bytes": bytes(it.peak_pages),
        "remote_bytes": bytes(it.remote_pages),
        "remote_put": it.remote_put,
        "remote_got": it.remote_got,
        "remote_missed": it.remote_missed,
        "disk_bytes": bytes(it.disk_pages()),
        "faults": it.faults(),
        "faults_new": it.zero_faults,
        "faults_hit": it.minor_faults,
        "faults_fetched": it.major_faults,
        "hit_ratio": it.hit_ratio(),
        "fault_p50_ns": ns(0.5),
        "fault_p99_ns": ns(0.99),
        "fault_p999_ns": ns(0.999),
        "fault_max_ns": it.fault_latency.max().as_nanos() as u64,
        "fetched_pages": it.fetched_pages,
        "stored_pages": it.written_pages,
        "file_pages": it.file_pages,
        "ahead_pages": it.ahead_pages,
        "ahead_hits": it.ahead_hits,
        "ahead_waste": it.ahead_waste,
        "store_failures": it.store_failures,
        "lost_pages": it.lost_pages,
    })
}

/// Prints until the process ends. That it ends is no error, once it was there.
fn watch(args: &StatsArgs) -> Result<(), StatsError> {
    let mut before = read(args.pid)?;
    let mut due = Instant::now();
    for line in 0.. {
        due += EVERY;
        if args.json {
            print(args, &before);
        } else if line % PAGE_LINES == 0 {
            println!("{TITLE}");
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = match read(args.pid) {
            Ok(now) => now,
            Err(StatsError::NoProcess(_) | StatsError::NotFar(_)) => break,
            Err(error) => return Err(error),
        };
        if !args.json {
            for (now, before) in now.iter().zip(&before) {
                println!("{}", row(now, before));
            }
        }
        before = now;
    }
    Ok(())
}

const TITLE: &str = "  RAM MiB  disk MiB  remote MiB  faults/s    hit %  fetched/s  stored/s  p99 so far";

/// Rates since `before`, a second ago.
fn row(now: &Statistics, before: &Statistics) -> String {
    let mib = |pages: usize| pages as f64 / 256.0;
    let since = |count: fn(&Statistics) -> u64| count(now).saturating_sub(count(before));
    let (hits, misses) = (since(|it| it.minor_faults), since(|it| it.major_faults));
    let ratio = match hits + misses {
        0 => "-".to_owned(),
        all => format!("{:.1}", 100.0 * hits as f64 / all as f64),
    };
    format!(
        "{:>9.1} {:>9.1} {:>11.1} {:>9} {ratio:>8} {:>10} {:>9}  {:.1?}",
        mib(now.resident_pages),
        mib(now.disk_pages()),
        mib(now.remote_pages),
        since(Statistics::faults),
        since(|it| it.fetched_pages),
        since(|it| it.written_pages),
        now.fault_latency_at(0.99),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_the_last_second_alone() {
        let before = Statistics::default();
        let text = row(&before, &before);
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["0.0", "0.0", "0.0", "0", "-", "0", "0", "0.0ns"]);
    }

    #[test]
    fn processes_that_have_no_figures_are_told_apart() {
        assert!(matches!(read(u32::MAX), Err(StatsError::NoProcess(_))));
        let me = std::process::id();
        assert!(matches!(read(me), Err(StatsError::NotFar(pid)) if pid == me));
    }
}
