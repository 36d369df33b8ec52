//! Forked children of tests.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A child that runs a function and ends; killed when dropped.
pub(crate) struct Child {
    pid: Pid,
    status: Option<i32>,
}

impl Child {
    /// As [`start`](Self::start); the child ends with 0 once `body` returns.
    pub(crate) fn start_to_end(body: impl FnOnce()) -> Self {
        Self::start(|| {
            body();
            0
        })
    }

    /// Forks. The child ends with what `body` says, 0 for success, or with 99 if it panics.
    pub(crate) fn start(body: impl FnOnce() -> i32) -> Self {
        // SAFETY: the child runs `body`, which uses memory of its own and shared words, and ends without a return.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(99);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        Self { pid: Pid::from_raw(pid).expect("fork"), status: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(crate) fn kill(&self) {
        kill_process(self.pid, Signal::KILL).unwrap();
    }

    /// Waits for its end: its code, or -1 if it was killed.
    pub(crate) fn code(&mut self) -> i32 {
        *self.status.get_or_insert_with(|| {
            let (_, status) = waitpid(Some(self.pid), WaitOptions::empty()).unwrap().unwrap();
            status.exit_status().unwrap_or(-1)
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill();
            self.code();
        }
    }
}
