//! Signals as readable events: blocked for the whole process, and read from a descriptor.
//!
//! `unsafe`: the signal calls of libc, which have no safe wrapper among our crates.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that end the job, with the usual default.
pub(crate) const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set, which sigaddset then only changes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Whether the signal was set to be ignored by who started us (`nohup`, a shell's `&`), which we
/// respect.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action the call only writes the old one, and a zeroed sigaction is
    // a valid value in case it fails.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Has the kernel keep children that ended until they are waited for. It does not where who started us ignores `SIGCHLD`; then
/// no end of a child is told.
pub(crate) fn keep_ended_children() {
    // SAFETY: the default is a valid action, and no thread runs yet that could set another.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Unblocks every signal: for a new rank, between fork and exec.
pub(super) fn unblock_all() {
    let none = set_of(&[]);
    // SAFETY: `none` is an initialised set; a null old set is allowed. Async-signal-safe.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) };
}

/// Lets the signals that end jobs end this process. Others stay blocked: in the background, `SIGTTOU` would stop it when it writes.
pub(super) fn unblock_ending() {
    let ending = set_of(&ENDING);
    // SAFETY: `ending` is an initialised set; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &ending, std::ptr::null_mut()) };
}

pub(crate) struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks `signals` for this thread and all that it starts, and opens a descriptor for them.
    pub(crate) fn block(signals: &[i32]) -> io::Result<Self> {
        let set = set_of(signals);
        // SAFETY: `set` is an initialised set; a null old set is allowed.
        if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: -1 asks for a new descriptor, for an initialised set.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    pub(super) fn next(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is `bytes` long, and any bytes are a valid siginfo.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), bytes) };
        if got != bytes as isize {
            return None;
        }
        // SAFETY: zeroed before, and now filled by the kernel.
        let info = unsafe { info.assume_init() };
        i32::try_from(info.ssi_signo).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Stops this process until it is continued. Sent to this thread: it does not run on, as it might if
/// another thread were to take the signal first.
pub(crate) fn stop_here() {
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Splits this process. `Ok(None)` in the child, the child's id in the parent.
///
/// Call it while the process has one thread: the child then may do all that the parent may.
pub(super) fn fork() -> io::Result<Option<rustix::process::Pid>> {
    // SAFETY: called by `keeper::start` only, in processes that have started no thread.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rustix::process::Pid::from_raw(pid))
}

/// The name of a signal, as `kill -l` has it.
pub(crate) fn name(signal: i32) -> String {
    macro_rules! named {
        ($($name:ident)*) => { [$((libc::$name, stringify!($name))),*] };
    }
    let known = named! {
        SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM
        SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGXCPU SIGXFSZ SIGSYS
    };
    let found = known.iter().find(|(number, _)| *number == signal);
    found.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}
