//! Processes of this computer: parents, and owners of objects across forks.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::own_words::OwnWord;

/// The process that made something. A forked child has a copy of the value, and must neither use what belongs to its parent nor undo it:
/// there, [`is_me`](Self::is_me) is false. Children that share all memory, by `vfork` and the like, count as their parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(u32);

impl Owner {
    /// The calling process.
    #[must_use]
    pub fn me() -> Self {
        Self(number())
    }

    /// Whether the calling process is the owner. No system call; may be called in a signal handler, and in a handler of `fork`.
    #[inline]
    #[must_use]
    pub fn is_me(self) -> bool {
        self.0 == number()
    }

    /// Refuses what only the owner may do.
    ///
    /// # Errors
    /// [`Forked`]: another process is calling.
    #[inline]
    pub fn check(self) -> Result<(), Forked> {
        if self.is_me() { Ok(()) } else { Err(Forked) }
    }

    /// The owner as a number, for statics. Never 0.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Why a forked child may not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process is a child by fork() of the one that made this, which it can neither use nor give back: start children by exec \
     (posix_spawn, Python's \"spawn\"), or let the child join a job of its own"
)]
pub struct Forked;

/// A number that differs from those of all processes whose memory this one has inherited. Never 0.
fn number() -> u32 {
    /// `None` if the kernel has no such words.
    static MINE: OnceLock<Option<OwnWord>> = OnceLock::new();
    /// The last number given. A child inherits it, and continues from there.
    static LAST: AtomicU32 = AtomicU32::new(0);
    let mine = MINE.get_or_init(|| OwnWord::several(1).ok()?.pop());
    let Some(mine) = mine else {
        return rustix::process::getpid().as_raw_nonzero().get() as u32;
    };
    match mine.load(Ordering::Relaxed) {
        0 => {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let given = mine.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
            given.map_or_else(|other| other, |_| next)
        }
        number => number,
    }
}

/// The parent of a process; `None` if the process does not exist.
pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "pid (name) state parent …", and the name may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_child_owns_what_it_makes_and_nothing_of_its_parent() {
        let parent = Owner::me();
        assert!(parent.is_me());
        // SAFETY: the child looks at words, forks once more by a call of the kernel alone, and ends.
        unsafe {
            let fork = || libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t;
            let end_of = |pid| {
                let mut status = 0;
                libc::waitpid(pid, &raw mut status, 0);
                status
            };
            let pid = fork();
            if pid == 0 {
                let child = Owner::me();
                let mut right = !parent.is_me() && child.is_me();
                let pid = fork();
                if pid == 0 {
                    let owns = |owner: Owner| owner.is_me();
                    let right = !owns(parent) && !owns(child) && owns(Owner::me());
                    libc::_exit(if right { 0 } else { 1 });
                }
                right &= end_of(pid) == 0 && child.is_me();
                libc::_exit(if right { 0 } else { 1 });
            }
            assert_eq!(end_of(pid), 0);
        }
        assert!(parent.is_me());
    }

    #[test]
    fn the_parent_of_this_process_is_found_in_proc() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(parent_of(std::process::id()), Some(parent));
        assert_eq!(parent_of(u32::MAX), None);
    }
}
