//! A process that outlives keeper and launcher: when both were killed, it ends what is left in the job's control group, and removes the
//! group.
//!
//! It waits for the end of a pipe that only the two hold, and does nothing else. It is in a session of its own and keeps none of the
//! standard streams, so that no signal of a terminal and no reader of the output has to do with it. In any other case the keeper ends it, as
//! all its descendants, or the launcher has removed the group before.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::group::Group;

/// Becomes the sweeper. It holds no pipe whose end keeper or launcher wait for.
pub(super) fn sweep(group: &Group, awaited: &OwnedFd) -> ! {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mapwire-sweeper");
    let _ = rustix::process::chdir("/");
    if let Ok(nothing) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
    // Nobody writes: this is the end, or a signal.
    while rustix::io::read(awaited, &mut [0; 1]) == Err(Errno::INTR) {}
    group.kill();
    group.remove();
    std::process::exit(0)
}
