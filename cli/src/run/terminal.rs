//! A pseudo-terminal as the standard output of a rank.
//!
//! To a terminal the C library writes each line at once. To a pipe it writes blocks of some KiB, and the last one is lost when the
//! rank is ended because another has failed. The terminal is raw: bytes pass through as they are.

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Stdout {
    Terminal,
    Pipe,
}

/// Opens a terminal whose lines are as wide as those of ours, less `tag` columns: the launcher's end, then the rank's, which can
/// only be written.
pub(crate) fn open(tag: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags | OpenptFlags::RDWR)?;
    unlockpt(&ours)?;
    let write_only = OpenptFlags::from_bits_retain(libc::O_WRONLY as _);
    let theirs = ioctl_tiocgptpeer(&ours, flags | write_only)?;
    let mut mode = tcgetattr(&theirs)?;
    mode.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &mode)?;
    if let Ok(Winsize { ws_row, ws_col, .. }) = tcgetwinsize(rustix::stdio::stdout()) {
        let size = Winsize { ws_row, ws_col: ws_col.saturating_sub(tag), ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size)?;
    }
    Ok((ours, theirs))
}

/// The variables that tell a rank what its terminal can do: nothing but lines where ours goes to a file or a pipe.
pub(super) fn variables(stdout: Stdout) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    match stdout {
        Stdout::Terminal if !io::stdout().is_terminal() => vec![("TERM".into(), "dumb".into())],
        _ => Vec::new(),
    }
}
