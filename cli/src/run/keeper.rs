//! The outer process of `mapwire run`: it starts the launcher, passes signals on, and if the
//! launcher is killed, ends what it left.
//!
//! It holds no state worth protecting and does nothing in normal operation, so that hardly anything
//! can go wrong in it. As child subreaper it inherits every process of the job whose parents died. Where the job has a control group, a
//! third process stands by for the case that both are killed: the [sweeper].

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};

use super::ending;
use super::group::Group;
use super::signals::{self, ENDING, Signals};
use super::sweeper;

/// The launcher's end of a pipe from the keeper: a byte a signal, and the end when the keeper dies.
pub(crate) struct Link {
    /// The launcher's parent, as long as it lives.
    pub(crate) keeper: Pid,
    pub(crate) pipe: OwnedFd,
    pub(crate) signals: Signals,
    pub(super) group: Option<Group>,
}

pub(crate) enum Role {
    Launcher(Link),
    /// The keeper, and the job is over: exit with this code.
    Keeper(u8),
}

/// Splits into keeper and launcher. Returns twice: in the launcher at once, in the keeper when the
/// job has ended and nothing of it is left.
pub(crate) fn start() -> io::Result<Role> {
    let (launchers, keepers) = pipe_with(PipeFlags::CLOEXEC)?;
    let (awaited, life) = pipe_with(PipeFlags::CLOEXEC)?;
    let handled: Vec<i32> = ENDING.into_iter().filter(|s| !signals::is_ignored(*s)).collect();
    let mut mine = handled.clone();
    mine.push(libc::SIGCHLD);
    // Blocked before the fork, so that neither process misses one.
    let signals = Signals::block(&mine)?;
    let keeper = getpid();
    // Before the fork, so that both processes can end and remove it.
    let group = Group::create();
    let forked = signals::fork().inspect_err(|_| group.iter().for_each(Group::remove));
    let Some(launcher) = forked? else {
        drop((keepers, awaited));
        // A descriptor of its own: the keeper's would tell the keeper's signals.
        let mut mine = handled;
        mine.extend([libc::SIGCHLD, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU]);
        return Ok(Role::Launcher(Link {
            keeper,
            pipe: launchers,
            signals: Signals::block(&mine)?,
            group: group.map(|group| group.with_life(life)),
        }));
    };
    drop(launchers);
    // Where it cannot be started, the group of a job that is killed as a whole stays until the next job is started.
    if let Some(group) = &group
        && matches!(signals::fork(), Ok(None))
    {
        drop((keepers, signals, life));
        sweeper::sweep(group, &awaited);
    }
    drop(awaited);
    set_child_subreaper(Some(keeper))?;
    let code = keep(launcher, &keepers, &signals);
    if !ending::end_descendants(group.as_ref()) {
        eprintln!("mapwire: a process of the job does not die; see `ps --ppid {}`", std::process::id());
    }
    if let Some(group) = group {
        group.remove();
    }
    drop(life);
    Ok(Role::Keeper(code))
}

/// Waits for the launcher, and gives its exit code.
fn keep(launcher: Pid, pipe: &OwnedFd, signals: &Signals) -> u8 {
    loop {
        let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], None);
        while let Some(signal) = signals.next() {
            if signal != libc::SIGCHLD {
                // The launcher may just have ended, then there is nobody to tell.
                let _ = rustix::io::write(pipe, &[signal as u8]);
            }
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == launcher {
                return launchers_code(status);
            }
        }
    }
}

fn launchers_code(status: WaitStatus) -> u8 {
    if let Some(code) = status.exit_status() {
        return code as u8;
    }
    let signal = status.terminating_signal().unwrap_or(libc::SIGKILL);
    eprintln!("mapwire: the launcher was killed by {}; ending the job", signals::name(signal));
    128 + signal as u8
}
