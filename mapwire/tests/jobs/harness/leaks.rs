//! Nothing of a job is left: no process, no socket, no shared memory by name, and in a rank that has closed everything no
//! mapping, descriptor or thread.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::job::Place;

/// What may be in the kernel's lists beside this job's things.
pub(crate) struct Surroundings {
    shared_memory: BTreeSet<String>,
}

impl Surroundings {
    pub(crate) fn now() -> Self {
        Self { shared_memory: names_in("/dev/shm") }
    }
}

/// Fails when the job, which is over, has left anything.
#[track_caller]
pub(crate) fn check(place: &Place, before: &Surroundings) {
    let processes = place.processes();
    assert!(processes.is_empty(), "processes are left:\n{}", describe_all(&processes));
    // Other programs of this computer come and go meanwhile; what they leave is not called so.
    let added: Vec<String> = names_in("/dev/shm")
        .difference(&before.shared_memory)
        .filter(|name| name.contains("mapwire"))
        .cloned()
        .collect();
    assert!(added.is_empty(), "left in /dev/shm: {added:?}");
    if let Ok(job) = std::fs::read_to_string(place.folder.join("job")) {
        // "name token"-like text: the socket's name is its first part.
        let name: String = job.chars().take_while(char::is_ascii_alphanumeric).take(32).collect();
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        assert!(!name.is_empty() && !sockets.contains(&name), "the socket of the job is left: {name}");
    }
    let mine: Vec<String> = holdings().into_iter().filter(|held| held.contains("memfd:mapwire")).collect();
    assert!(mine.is_empty(), "the test program itself holds {mine:?}");
}

/// What this process holds that a node could leave behind.
pub(crate) fn holdings() -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines() {
        if line.contains("memfd:") || line.contains("anon_inode:") {
            held.insert(format!("mapping {line}"));
        }
    }
    for number in numbers_in("/proc/self/fd") {
        if let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{number}")) {
            let target = target.to_string_lossy();
            // The folder that is being read is among them.
            if !target.starts_with("/proc/") {
                held.insert(format!("descriptor {number} {target}"));
            }
        }
    }
    for thread in numbers_in("/proc/self/task") {
        let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
        if name.starts_with("mapwire") {
            held.insert(format!("thread {thread} {}", name.trim()));
        }
    }
    held
}

/// Fails when this process holds more than `before`, even after a while: a thread that was told to end may need one.
pub(crate) fn check_holdings(before: &BTreeSet<String>) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let added: Vec<String> = holdings().difference(before).cloned().collect();
        if added.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "a rank that closed everything still holds {added:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Numbers among the names in a folder.
pub(crate) fn numbers_in(folder: &str) -> impl Iterator<Item = i32> {
    names_in(folder).into_iter().filter_map(|name| name.parse().ok())
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

pub(crate) fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Where processes are, for a report of one that hangs.
pub(crate) fn describe_all(pids: &[i32]) -> String {
    pids.iter().map(|pid| describe(*pid)).collect()
}

fn describe(pid: i32) -> String {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default().trim().replace('\0', " ");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let rank = environment
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .find(|variable| variable.starts_with("MAPWIRE_RANK="))
        .map(|variable| variable.into_owned())
        .unwrap_or_default();
    let mut text = format!("{pid} {rank} {}\n", read(format!("/proc/{pid}/cmdline")));
    for thread in numbers_in(&format!("/proc/{pid}/task")) {
        let folder = format!("/proc/{pid}/task/{thread}");
        let state = read(format!("{folder}/stat"));
        let state = state.rsplit_once(") ").map_or("?", |(_, rest)| &rest[..1]).to_owned();
        text.push_str(&format!(
            "  thread {thread} {} {state} {}\n",
            read(format!("{folder}/comm")),
            read(format!("{folder}/wchan")),
        ));
    }
    if !rank.is_empty() {
        let trace = Command::new("timeout")
            .args(["20", "gdb", "-p", &pid.to_string(), "-batch", "-ex", "thread apply all bt 14"])
            .output();
        if let Ok(trace) = trace {
            let lines = String::from_utf8_lossy(&trace.stdout);
            for line in lines.lines().filter(|line| line.starts_with('#') || line.starts_with("Thread")) {
                text.push_str(&format!("  {line}\n"));
            }
        }
    }
    text
}
