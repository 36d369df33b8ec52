//! Limits of the process and settings of the kernel.
//!
//! Read by error messages, which name the limit that was in the way, and by `mapwire doctor`.

use core::fmt;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A limit of the process, in bytes or a count; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "{limit}"),
            None => f.write_str("unlimited"),
        }
    }
}

/// Bytes that this process may lock in memory (RLIMIT_MEMLOCK). Does not bind a process with CAP_IPC_LOCK, see [`may_lock_without_limit`].
pub fn locked_memory() -> Limit {
    Limit(getrlimit(Resource::Memlock).current)
}

/// Bytes of address space (RLIMIT_AS).
pub fn address_space() -> Limit {
    Limit(getrlimit(Resource::As).current)
}

/// Largest file, also in memory, in bytes (RLIMIT_FSIZE). The kernel ends a process that exceeds it by SIGXFSZ.
pub fn file_bytes() -> Limit {
    Limit(getrlimit(Resource::Fsize).current)
}

/// Open files, one more than the highest descriptor (RLIMIT_NOFILE).
pub fn descriptors() -> Limit {
    Limit(getrlimit(Resource::Nofile).current)
}

/// How to fix an error of the kernel, to follow its description: names the limit on descriptors if that was in the way.
pub fn advice(errno: Errno) -> String {
    match errno {
        Errno::MFILE => format!(
            " (RLIMIT_NOFILE is {}): raise the limit with `ulimit -n`, as root above `ulimit -Hn`",
            descriptors()
        ),
        Errno::NFILE => " (fs.file-max is reached): raise it with `sysctl fs.file-max`".into(),
        _ => String::new(),
    }
}

/// Mapped ranges that a process may have (`vm.max_map_count`); `None` without `/proc`.
pub fn max_map_count() -> Option<u64> {
    setting("/proc/sys/vm/max_map_count")
}

/// `vm.unprivileged_userfaultfd`: whether everybody may catch page faults of system calls (1), or only privileged processes (0). `None` on
/// kernels without the setting.
pub fn unprivileged_userfaultfd() -> Option<u64> {
    setting("/proc/sys/vm/unprivileged_userfaultfd")
}

/// `kernel.io_uring_disabled`: 0 open to all, 1 to a group, 2 to nobody. `None` on kernels
/// without the setting, where io_uring is open.
pub fn io_uring_disabled() -> Option<u64> {
    setting("/proc/sys/kernel/io_uring_disabled")
}

/// Whether the process holds CAP_IPC_LOCK and so may lock any amount of memory.
pub fn may_lock_without_limit() -> bool {
    const CAP_IPC_LOCK: u64 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << CAP_IPC_LOCK) != 0)
}

fn setting(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The bracketed choice in a setting such as `always [madvise] never`.
fn choice(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// All relevant limits and settings, read at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_MEMLOCK, bytes.
    pub locked_memory: Limit,
    /// Whether CAP_IPC_LOCK lifts that limit.
    pub may_lock_without_limit: bool,
    /// RLIMIT_AS, bytes.
    pub address_space: Limit,
    /// RLIMIT_NOFILE.
    pub descriptors: Limit,
    pub max_map_count: Option<u64>,
    /// Number of mapped ranges of this process.
    pub mapped_ranges: usize,
    /// Number of processors that this process may run on.
    pub processors: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Page size, in bytes.
    pub page_bytes: usize,
    /// Setting of transparent huge pages for shared memory (`shmem_enabled`).
    pub huge_shared_pages: Option<String>,
}

impl Limits {
    /// Reads them now. Unreadable ones (no `/proc`) are `None`.
    pub fn read() -> Self {
        Self {
            locked_memory: locked_memory(),
            may_lock_without_limit: may_lock_without_limit(),
            address_space: address_space(),
            descriptors: descriptors(),
            max_map_count: max_map_count(),
            mapped_ranges: std::fs::read("/proc/self/maps")
                .map_or(0, |maps| maps.iter().filter(|byte| **byte == b'\n').count()),
            processors: processors(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            page_bytes: rustix::param::page_size(),
            huge_shared_pages: choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        }
    }
}

/// Processors that this process may run on, at least 1.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of processors of this computer that are online, according to `/sys`; [`processors`] if that is unreadable.
pub fn online_processors() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    count_of_ranges(&online).unwrap_or(0).max(processors())
}

/// Number of items in `0-3,8,10-11`.
fn count_of_ranges(text: &str) -> Option<usize> {
    let mut count = 0;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_this_machine_are_read() {
        let limits = Limits::read();
        assert!(limits.processors >= 1);
        assert!(limits.mapped_ranges > 0);
        assert!(limits.max_map_count.is_some_and(|count| count > 0));
        assert_eq!(limits.page_bytes, 4096);
        assert!(!limits.kernel.is_empty());
    }

    #[test]
    fn processors_are_counted_from_their_ranges() {
        assert_eq!(count_of_ranges("0-3,8,10-11\n"), Some(7));
        assert_eq!(count_of_ranges("0\n"), Some(1));
        assert_eq!(count_of_ranges(""), None);
        assert!(online_processors() >= processors());
    }

    #[test]
    fn a_lack_of_descriptors_is_told_with_the_limit_and_how_to_raise_it() {
        let advice_now = advice(Errno::MFILE);
        assert!(advice_now.contains(&format!("RLIMIT_NOFILE is {}", descriptors())));
        assert!(advice_now.contains("`ulimit -n`"), "{advice_now}");
        assert!(advice(Errno::NFILE).contains("fs.file-max"));
        assert_eq!(advice(Errno::PERM), "");
    }

    #[test]
    fn an_unlimited_limit_says_so() {
        assert_eq!(Limit(None).to_string(), "unlimited");
        assert_eq!(Limit(Some(7)).to_string(), "7");
    }
}
