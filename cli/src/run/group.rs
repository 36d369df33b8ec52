//! The job's control group, where this process may make one: the kernel then knows every process of the job and kills all of
//! them at once, however fast they fork. Elsewhere, and for what leaves the group, there is [`ending`](super::ending).

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Time for the kernel to let go of the killed processes.
const LET_GO: Duration = Duration::from_secs(1);

/// A group of version 2, below the group of this process.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    processes: File,
    kill: File,
    /// Held by keeper and launcher, so that the [sweeper](super::sweeper) hears of the end of both.
    _life: Option<OwnedFd>,
}

impl Group {
    /// Makes a group. `None` where there are none of version 2, the kernel cannot kill a group, or this user may not make one.
    pub(super) fn create() -> Option<Self> {
        let own = own_folder()?;
        // To move a process between groups, one must be allowed to write to the group above both.
        let writable = |path: PathBuf| File::options().write(true).open(path).ok();
        writable(own.join("cgroup.procs"))?;
        remove_stale(&own);
        let name = Name { keeper: rustix::process::getpid(), namespace: pid_namespace()? };
        let folder = own.join(name.to_string());
        // Of a process that had this number before.
        let _ = fs::remove_dir(&folder);
        fs::create_dir(&folder).ok()?;
        match (writable(folder.join("cgroup.procs")), writable(folder.join("cgroup.kill"))) {
            (Some(processes), Some(kill)) => Some(Self { folder, processes, kill, _life: None }),
            _ => {
                let _ = fs::remove_dir(&folder);
                None
            }
        }
    }

    /// The same, with something that ends with this process.
    pub(super) fn with_life(self, life: OwnedFd) -> Self {
        Self { _life: Some(life), ..self }
    }

    /// A process that writes "0" here joins the group.
    pub(super) fn entrance(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }

    pub(super) fn kill(&self) {
        let _ = (&self.kill).write_all(b"1");
    }

    /// Removes the group, from which all processes have gone or are about to.
    pub(super) fn remove(&self) {
        let end = Instant::now() + LET_GO;
        while self.is_in_place()
            && let Err(error) = remove(&self.folder)
        {
            if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the folder is this group's, and not that of a later job whose keeper has the number of this one's.
    fn is_in_place(&self) -> bool {
        let number = |found: io::Result<Metadata>| found.ok().map(|it| (it.dev(), it.ino()));
        let found = number(fs::metadata(self.folder.join("cgroup.kill")));
        found.is_some() && found == number(self.kill.metadata())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    /// The process that made it, and that ends last of those who remove it.
    keeper: Pid,
    /// The number of the namespace in which that is its number.
    namespace: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeper = self.keeper.as_raw_nonzero();
        write!(f, "mapwire-{keeper}-{}", self.namespace)
    }
}

impl Name {
    fn parse(text: &str) -> Option<Self> {
        let (keeper, namespace) = text.strip_prefix("mapwire-")?.split_once('-')?;
        let name = Self {
            keeper: Pid::from_raw(keeper.parse().ok().filter(|keeper| *keeper > 0)?)?,
            namespace: namespace.parse().ok()?,
        };
        (name.to_string() == text).then_some(name)
    }
}

/// The number of this process's namespace of process numbers.
fn pid_namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    let number = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// Removes groups of jobs of which keeper, launcher and [sweeper](super::sweeper) were all killed: those that are empty, and whose maker is no
/// process any more.
fn remove_stale(folder: &Path) {
    let (Ok(entries), Some(namespace)) = (fs::read_dir(folder), pid_namespace()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_str().and_then(Name::parse);
        if let Some(name) = name
            && name.namespace == namespace
            && test_kill_process(name.keeper) == Err(Errno::SRCH)
        {
            remove_stale(&entry.path());
            let _ = fs::remove_dir(entry.path());
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
        kind.starts_with("cgroup2 ").then(|| Path::new(place).join(inside))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A process has one group.
    static GROUP: Mutex<()> = Mutex::new(());

    #[test]
    fn the_folder_of_a_group_is_found_by_the_mounts() {
        let mounts = "21 1 0:20 / /proc rw - proc proc rw\n\
                      30 21 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let expected = Some(PathBuf::from("/sys/fs/cgroup/user.slice/x"));
        assert_eq!(folder_of(mounts, "/user.slice/x"), expected);
        let part = "30 21 0:26 /user.slice /groups rw - cgroup2 none rw\n";
        assert_eq!(folder_of(part, "/user.slice/x"), Some("/groups/x".into()));
        assert_eq!(folder_of(part, "/system.slice"), None);
        assert_eq!(folder_of("30 21 0:26 / /x rw - cgroup cgroup rw\n", "/"), None);
    }

    #[test]
    fn a_name_says_who_made_the_group_and_others_are_none() {
        let name = Name::parse("mapwire-12-4026531836").unwrap();
        assert_eq!(name.keeper.as_raw_nonzero().get(), 12);
        assert_eq!(name.namespace, 4_026_531_836);
        for other in
            ["mapwire-12", "mapwire-0-1", "mapwire--1-1", "mapwire-+1-1", "mapwire-1-", "mapwire-1-1-1", "user.slice"]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn empty_groups_whose_maker_has_gone_are_removed_and_no_others() {
        let _alone = GROUP.lock();
        let Some(group) = Group::create() else {
            mapwire_testing::skip!("no control group can be made here");
            return;
        };
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let namespace = pid_namespace().unwrap();
        let make = |keeper: u32, namespace, has_process: bool| {
            let keeper = Pid::from_raw(keeper as i32).unwrap();
            let folder = group.folder.join(Name { keeper, namespace }.to_string());
            fs::create_dir(&folder).unwrap();
            if has_process {
                fs::write(folder.join("cgroup.procs"), child.id().to_string()).unwrap();
            }
            folder
        };
        // No process has this number: it is reaped.
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let live = make(std::process::id(), namespace, false);
        let elsewhere = make(gone.id(), namespace + 1, false);
        let stale = make(gone.id(), namespace, false);
        remove_stale(&group.folder);
        assert!(live.exists() && elsewhere.exists() && !stale.exists());
        let busy = make(gone.id(), namespace, true);
        remove_stale(&group.folder);
        assert!(busy.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        group.remove();
        assert!(!group.folder.exists());
    }

    #[test]
    fn a_group_of_the_same_name_that_another_job_made_later_is_left_alone() {
        let _alone = GROUP.lock();
        let Some(group) = Group::create() else {
            mapwire_testing::skip!("no control group can be made here");
            return;
        };
        fs::remove_dir(&group.folder).unwrap();
        let later = Group::create().unwrap();
        group.remove();
        assert!(later.folder.exists());
        later.remove();
        assert!(!later.folder.exists());
    }

    #[test]
    fn a_group_kills_what_joined_it_and_leaves_nothing() {
        let _alone = GROUP.lock();
        let Some(group) = Group::create() else {
            mapwire_testing::skip!("no control group can be made here");
            return;
        };
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
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
