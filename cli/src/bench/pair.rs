//! The other half of a measurement, in a process of its own.
//!
//! `unsafe`: fork, and memory that both processes see.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_parent_process_death_signal,
    waitpid,
};

/// Zeroed memory that a process and the children that it forks later share: for flags, counters
/// and figures of a bench. Words are 128 bytes apart, so that two flags do not share a cache line.
pub(crate) struct SharedWords {
    base: NonNull<Line>,
    count: usize,
}

#[repr(C, align(128))]
struct Line(AtomicU64);

impl SharedWords {
    /// `count` words, all zero.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let bytes = count.max(1) * size_of::<Line>();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            count: count.max(1),
        })
    }

    /// The word `index`. Panics if there is none.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: inside the mapping by the check above; an atomic is valid with any bits.
        unsafe { &self.base.add(index).as_ref().0 }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped once; `word` borrows from `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.count * size_of::<Line>()) };
    }
}

/// A forked process that runs a function and ends. It is killed if it is dropped before, or if its
/// parent dies.
pub(crate) struct Partner {
    pid: Option<Pid>,
}

impl Partner {
    /// Runs `body` in a child. The child's exit code is 0 if `body` returns, 101 if it panics; it
    /// runs no destructors of the parent's values.
    ///
    /// Call it while this process has one thread: a lock that another thread holds, of the
    /// allocator say, would stay locked in the child.
    pub(crate) fn start(body: impl FnOnce()) -> io::Result<Self> {
        let parent = getpid();
        // SAFETY: as the caller promises, there is one thread; the child ends in `_exit` below and
        // never returns into the caller's frames.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some(pid) = Pid::from_raw(pid) {
            return Ok(Self { pid: Some(pid) });
        }
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        let outcome = if getppid() == Some(parent) {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
        } else {
            Ok(())
        };
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 101 }) }
    }

    /// Waits for the child's own end; an error says how it ended if not well.
    pub(crate) fn join(mut self) -> io::Result<()> {
        let Some(pid) = self.pid.take() else {
            return Ok(());
        };
        loop {
            match waitpid(Some(pid), WaitOptions::empty()) {
                Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
                Ok(Some((_, status))) => {
                    let how = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => format!("exited with code {code}"),
                        (_, Some(signal)) => format!("was killed by signal {signal}"),
                        _ => continue,
                    };
                    return Err(io::Error::other(format!(
                        "the bench's second process {how}"
                    )));
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        if let Some(pid) = self.pid.take() {
            let _ = kill_process(pid, Signal::KILL);
            while let Err(rustix::io::Errno::INTR) = waitpid(Some(pid), WaitOptions::empty()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_processes_see_each_others_words() {
        let words = SharedWords::new(2).unwrap();
        let partner = Partner::start(|| {
            while words.word(0).load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            words.word(1).store(7, Ordering::Release);
        })
        .unwrap();
        words.word(0).store(1, Ordering::Release);
        partner.join().unwrap();
        assert_eq!(words.word(1).load(Ordering::Acquire), 7);
    }

    #[test]
    fn a_partner_that_fails_is_reported() {
        let partner = Partner::start(|| {
            // Not a panic, whose message would go through the parent's locks.
            let _ = kill_process(getpid(), Signal::ABORT);
        })
        .unwrap();
        assert!(partner.join().unwrap_err().to_string().contains("signal 6"));
    }

    #[test]
    fn a_partner_that_is_dropped_is_killed() {
        let partner = Partner::start(|| {
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        })
        .unwrap();
        drop(partner);
    }
}
