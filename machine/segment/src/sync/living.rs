//! Whether a thread of another process still lives.

use std::fs;
use std::io::ErrorKind;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};
use rustix::thread::gettid;

/// What tells a thread from all others of the computer, also from later ones with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// When it started, in the kernel's ticks; 0 if `/proc` does not say.
    pub(crate) started: u64,
    /// The namespace of its numbers: 0 if unknown.
    pub(crate) space: u32,
}

impl Identity {
    /// The calling thread.
    pub(crate) fn mine() -> Self {
        let (pid, tid) = (number(getpid()), number(gettid()));
        let started = stat(pid, tid).ok().flatten().unwrap_or(0);
        let space = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino as u32);
        Self { pid, tid, started, space }
    }

    /// Whether it has ended, for sure. `mine` is that of an observer: threads whose numbers mean nothing to it count as living.
    pub(crate) fn has_ended(&self, mine: &Self) -> bool {
        if self.space != mine.space || self.space == 0 || self.pid == 0 {
            return false;
        }
        if self.started == 0 || mine.started == 0 {
            let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
            return pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        }
        match stat(self.pid, self.tid) {
            Ok(started) => started != Some(self.started),
            Err(error) => {
                error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
            }
        }
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// When a thread started; `None` if it is dead and only waits for its parent to notice.
fn stat(pid: u32, tid: u32) -> std::io::Result<Option<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"))?;
    // "tid (name) state …", and the name may contain anything; the start is field 22.
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let state = fields.next().unwrap_or("X");
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    Ok(if matches!(state, "Z" | "X" | "x") { None } else { started })
}
