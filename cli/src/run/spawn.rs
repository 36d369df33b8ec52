//! Starts one rank.
//!
//! `unsafe`: the hook between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::group::Group;
use super::program::Program;
use super::signals;
use super::terminal::{self, Stdout};

/// Columns of `[3] ` before a line.
const TAG: u16 = 4;

pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Starts `program` as a process group of its own, which dies with this process. Call it in the
/// launcher's main thread: the kernel ties the death signal to the thread that forks.
pub(super) fn start(
    program: &Program,
    environment: &[(OsString, OsString)],
    stdin: Stdio,
    stdout: Stdout,
    processor: Option<usize>,
    group: Option<&Group>,
) -> io::Result<Started> {
    let mut command = Command::new(&program.path);
    command
        .arg0(&program.name)
        .args(&program.arguments)
        .envs(environment.iter().map(|(k, v)| (k, v)))
        .stdin(stdin)
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(folder) = &program.wdir {
        command.current_dir(folder);
    }
    let terminal = match stdout {
        Stdout::Pipe => None,
        Stdout::Terminal => terminal::open(TAG)
            .inspect_err(|error| tracing::debug!(%error, "no pseudo-terminal: output goes by a pipe"))
            .ok(),
    };
    let ours = match terminal {
        None => {
            command.stdout(Stdio::piped());
            None
        }
        Some((ours, theirs)) => {
            command.stdout(theirs);
            Some(ours)
        }
    };
    let launcher = getpid();
    let entrance = group.map(|group| group.entrance().as_raw_fd());
    let cpus = processor.map(|processor| {
        let mut cpus = CpuSet::new();
        cpus.set(processor);
        cpus
    });
    let before_exec = move || {
        signals::unblock_all();
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(launcher) {
            // The launcher died before it could be noticed.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if let Some(entrance) = entrance {
            // SAFETY: the launcher's descriptor stays open: this process is a copy of it, and has not executed anything yet.
            let entrance = unsafe { BorrowedFd::borrow_raw(entrance) };
            // Outside the group a rank is found as a descendant.
            let _ = rustix::io::write(entrance, b"0");
        }
        if let Some(cpus) = &cpus {
            sched_setaffinity(None, cpus)?;
        }
        Ok(())
    };
    // SAFETY: the hook makes plain system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(before_exec) };
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let stdout = ours.or_else(|| Some(child.stdout.take()?.into()));
    match (pid, stdout, child.stderr.take()) {
        (Some(pid), Some(stdout), Some(stderr)) => Ok(Started { pid, stdout, stderr: stderr.into() }),
        _ => Err(io::ErrorKind::Other.into()),
    }
}

pub(super) fn processors() -> io::Result<Vec<usize>> {
    let cpus = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).collect())
}
