//! The jobs that run on this host: processes that hold the memory by which a broker and its ranks know each other.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mapwire_host::processes::parent_of;
use mapwire_transport::board::Board;

use super::Sample;

#[derive(Debug)]
pub(super) struct Job {
    /// The process that is its broker.
    pub(super) broker: u32,
    /// The broker's parent: of `mapwire run`, the process that the shell knows.
    parent: Option<u32>,
    pub(super) command: String,
    board: Board,
}

impl Job {
    /// Its ranks that have joined on this host.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let all = (0..self.board.ranks()).map(|rank| Sample::of(&self.board, rank));
        all.filter(|sample| sample.pid != 0).collect()
    }

    pub(super) fn size(&self) -> u32 {
        self.board.ranks()
    }

    #[cfg(feature = "top")]
    pub(super) fn is_alive(&self) -> bool {
        Path::new(&format!("/proc/{}", self.broker)).exists()
    }

    pub(super) fn has(&self, pid: u32) -> bool {
        let ranks = || (0..self.board.ranks()).map(|rank| self.board.pid(rank));
        self.broker == pid || self.parent == Some(pid) || ranks().any(|rank| rank == pid)
    }
}

/// All jobs whose memory this user may open, by the number of their broker.
pub(super) fn find() -> Vec<Job> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let mut seen = HashSet::new();
    numbers.into_iter().filter_map(|pid| job_of(pid, &mut seen)).collect()
}

/// The job that a process is the broker of, unless another process has shown the same memory.
fn job_of(pid: u32, seen: &mut HashSet<u64>) -> Option<Job> {
    let (mut bells, mut news) = (None, None);
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let path = entry.path();
        match memory_of(&path).as_deref() {
            Some("mapwire:mapwire-bells") => bells = Some(path),
            Some("mapwire:mapwire-news") => news = Some(path),
            _ => {}
        }
    }
    let bells = File::options().read(true).write(true).open(bells?).ok()?;
    let news = File::open(news?).ok()?;
    let inode = rustix::fs::fstat(&news).ok()?.st_ino;
    let board = Board::open(bells.as_fd(), news.as_fd(), None).ok()?;
    seen.insert(inode).then(|| Job { broker: pid, parent: parent_of(pid), command: command_of(pid), board })
}

/// The name of the memory that a descriptor is of.
pub(super) fn memory_of(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    let name = target.as_os_str().as_bytes().strip_prefix(b"/memfd:")?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    OsStr::from_bytes(name).to_str().map(str::to_owned)
}

fn command_of(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(|word| String::from_utf8_lossy(word)).collect();
    // What goes to a terminal holds no controls.
    words.join(" ").chars().filter(|c| !c.is_control()).collect()
}
