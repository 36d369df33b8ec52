//! How ranks end, and how every process of a job is ended.

use std::fmt;
use std::time::{Duration, Instant};

use mapwire_host::processes::parent_of;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use super::group::Group;
use super::signals;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankEnd {
    Exited(i32),
    Killed(i32),
}

impl RankEnd {
    pub(super) fn of(status: WaitStatus) -> Option<Self> {
        let killed = || status.terminating_signal().map(Self::Killed);
        status.exit_status().map(Self::Exited).or_else(killed)
    }

    pub(super) fn is_clean(self) -> bool {
        self == Self::Exited(0)
    }

    /// As a shell would pass it on.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Exited(code) => code as u8,
            Self::Killed(signal) => 128 + signal as u8,
        }
    }
}

impl fmt::Display for RankEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code @ 129..=192) => write!(
                f,
                "exited with code {code}, as a shell does when a command of it was killed by {}",
                signals::name(*code - 128)
            ),
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Killed(signal) => write!(f, "was killed by {}", signals::name(*signal)),
        }
    }
}

/// Kills and reaps every descendant of this process, which must be a child subreaper: orphans then
/// become its children, level by level, and a child's id cannot be reused before it is reaped.
/// `false` if one does not die within seconds (stuck in the kernel).
pub(super) fn end_descendants(group: Option<&Group>) -> bool {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(group) = group {
            group.kill();
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(_) => return true,
                Ok(None) => break,
            }
        }
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        if Instant::now() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The children of this process: by the kernel's list of them where there is one, which takes microseconds, so that a child is
/// met before it forks and ends; else by all processes there are.
fn children() -> Vec<Pid> {
    listed_children().unwrap_or_else(found_children)
}

fn listed_children() -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).ok()?;
        let numbers = list.split_whitespace().filter_map(|word| word.parse().ok());
        children.extend(numbers.filter_map(Pid::from_raw));
    }
    Some(children)
}

fn found_children() -> Vec<Pid> {
    let me = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|pid| parent_of(*pid) == Some(me)).filter_map(|pid| Pid::from_raw(pid.try_into().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_passed_on_as_a_shell_would() {
        assert_eq!(RankEnd::Exited(3).exit_code(), 3);
        assert_eq!(RankEnd::Killed(9).exit_code(), 137);
        assert!(RankEnd::Exited(0).is_clean() && !RankEnd::Killed(15).is_clean());
        assert_eq!(RankEnd::Killed(11).to_string(), "was killed by SIGSEGV");
        assert_eq!(RankEnd::Exited(3).to_string(), "exited with code 3");
        assert!(RankEnd::Exited(141).to_string().ends_with("was killed by SIGPIPE"));
        assert_eq!(RankEnd::Exited(255).to_string(), "exited with code 255");
    }

    #[test]
    fn a_child_is_found_in_the_list_and_among_all_processes() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        assert!(found_children().contains(&pid));
        assert!(listed_children().is_none_or(|list| list.contains(&pid)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
