//! Whether the kernel killed a process because memory ran out.

use std::fs;
use std::path::{Path, PathBuf};

/// How many processes the kernel had killed so when the job began.
pub(super) struct OomKills {
    /// The file of this process's cgroup that counts them.
    file: Option<PathBuf>,
    in_cgroup: u64,
    in_system: u64,
}

impl OomKills {
    pub(super) fn now() -> Self {
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let file = counting_files(&cgroups).into_iter().find(|file| file.exists());
        Self { in_cgroup: file.as_deref().map_or(0, count), in_system: count(Path::new("/proc/vmstat")), file }
    }

    /// Why a process that was killed by SIGKILL was, if memory is the reason.
    pub(super) fn reason(&self) -> Option<&'static str> {
        let in_cgroup = self.file.as_deref().map_or(0, count);
        if in_cgroup > self.in_cgroup {
            Some(
                "its cgroup or container ran out of memory (memory.max; in version 1 of cgroups memory.limit_in_bytes)",
            )
        } else if count(Path::new("/proc/vmstat")) > self.in_system {
            Some("the system ran out of memory, so the kernel probably killed it (see `dmesg`)")
        } else {
            None
        }
    }
}

/// The files of version 2 and version 1 that may count the kills in the cgroup of `/proc/self/cgroup`.
fn counting_files(cgroups: &str) -> Vec<PathBuf> {
    let file = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some(Path::new("/sys/fs/cgroup").join(path).join("memory.events")),
            "memory" => {
                let folder = Path::new("/sys/fs/cgroup/memory").join(path);
                Some(folder.join("memory.oom_control"))
            }
            _ => None,
        }
    };
    cgroups.lines().filter_map(file).collect()
}

/// The number behind `oom_kill`; 0 where there is none.
fn count(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counting_file_is_found_in_either_version_of_cgroups() {
        let files = counting_files("12:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/user.slice/y\n");
        let wanted = ["/sys/fs/cgroup/memory/docker/x/memory.oom_control", "/sys/fs/cgroup/user.slice/y/memory.events"];
        assert_eq!(files, wanted.map(PathBuf::from));
    }

    #[test]
    fn kills_are_counted_in_the_kernels_files() {
        let file = std::env::temp_dir().join(format!("mapwire-oom-{}", std::process::id()));
        fs::write(&file, "low 0\nhigh 0\nmax 51\noom 2\noom_kill 2\noom_group_kill 0\n").unwrap();
        let start = OomKills { file: Some(file.clone()), in_cgroup: count(&file), in_system: 0 };
        assert_eq!(start.in_cgroup, 2);
        fs::write(&file, "oom 3\noom_kill 3\n").unwrap();
        assert!(start.reason().unwrap().contains("cgroup"));
        assert_eq!(count(Path::new("/no/such/file")), 0);
        fs::remove_file(file).unwrap();
    }
}
