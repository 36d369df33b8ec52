//! Forked children.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A child that runs a function and ends.
pub(super) struct Child(Pid);

impl Child {
    /// Forks. The child ends with 0 once `body` returns, or with 99 if it panics.
    pub(super) fn start(body: impl FnOnce()) -> Self {
        // SAFETY: the child runs `body`, which uses memory of its own and shared words, and ends without a return.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).map_or(99, |()| 0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        Self(Pid::from_raw(pid).expect("fork"))
    }

    pub(super) fn kill(&self) {
        kill_process(self.0, Signal::KILL).unwrap();
    }

    /// Waits for its end: its code, or -1 if it was killed.
    pub(super) fn code(self) -> i32 {
        let (_, status) = waitpid(Some(self.0), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status().unwrap_or(-1)
    }
}
