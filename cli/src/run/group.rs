//! The job's control group, where this process may make one: the kernel then knows every process of the job and kills all of
//! them at once, however fast they fork. Elsewhere, and for what leaves the group, there is [`ending`](super::ending).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for the kernel to let go of the killed processes.
const LET_GO: Duration = Duration::from_secs(1);

/// A group of version 2, below the group of this process.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    processes: File,
    kill: File,
}

impl Group {
    /// Makes a group. `None` where there are none of version 2, the kernel cannot kill a group, or this user may not make one.
    pub(super) fn create() -> Option<Self> {
        let own = own_folder()?;
        // Who moves a process from one group to another must be allowed to write to the group above both.
        let writable = |path: PathBuf| File::options().write(true).open(path).ok();
        writable(own.join("cgroup.procs"))?;
        let folder = own.join(format!("mapwire-{}", std::process::id()));
        // A job whose launcher and keeper were both killed may have left one of this name.
        let _ = fs::remove_dir(&folder);
        fs::create_dir(&folder).ok()?;
        match (
            writable(folder.join("cgroup.procs")),
            writable(folder.join("cgroup.kill")),
        ) {
            (Some(processes), Some(kill)) => Some(Self {
                folder,
                processes,
                kill,
            }),
            _ => {
                let _ = fs::remove_dir(&folder);
                None
            }
        }
    }

    /// A process that writes "0" here joins the group.
    pub(super) fn entrance(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }

    /// Kills all processes of the group.
    pub(super) fn kill(&self) {
        let _ = (&self.kill).write_all(b"1");
    }

    /// Removes the group, from which all processes have gone or are about to.
    pub(super) fn remove(&self) {
        let end = Instant::now() + LET_GO;
        while let Err(error) = remove(&self.folder) {
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Removes a group and those below it: of jobs that ranks have started, and whose keepers were killed.
fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// The folder of this process's own group.
fn own_folder() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = folder_of(&mounts, path)?;
    // The mount may be of another namespace.
    let me = std::process::id().to_string();
    let members = fs::read_to_string(folder.join("cgroup.procs")).ok()?;
    members.lines().any(|line| line == me).then_some(folder)
}

/// Where the group `path` is found, by the text of `mountinfo`.
fn folder_of(mounts: &str, path: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        let inside = Path::new(path).strip_prefix(root).ok()?;
        kind.starts_with("cgroup2 ")
            .then(|| Path::new(place).join(inside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_group_is_found_by_the_mounts() {
        let mounts = "21 1 0:20 / /proc rw - proc proc rw\n\
                      30 21 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let expected = Some(PathBuf::from("/sys/fs/cgroup/user.slice/x"));
        assert_eq!(folder_of(mounts, "/user.slice/x"), expected);
        let part = "30 21 0:26 /user.slice /groups rw - cgroup2 none rw\n";
        assert_eq!(folder_of(part, "/user.slice/x"), Some("/groups/x".into()));
        assert_eq!(folder_of(part, "/system.slice"), None);
        assert_eq!(
            folder_of("30 21 0:26 / /x rw - cgroup cgroup rw\n", "/"),
            None
        );
    }

    #[test]
    fn a_group_kills_what_joined_it_and_leaves_nothing() {
        let Some(group) = Group::create() else {
            mapwire_testing::skip!("no control group can be made here");
            return;
        };
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let id = child.id().to_string();
        (&group.processes).write_all(id.as_bytes()).unwrap();
        group.kill();
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        group.remove();
        assert!(!group.folder.exists());
    }
}
