//! Descriptors of this process that stay clear of standard input, output and error.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The lowest descriptor that is not a standard stream.
const FIRST: i32 = 3;

/// Moves a new descriptor above 2. A program that has closed its standard streams gets their
/// numbers from the next call that makes a descriptor; what it then prints must not land in
/// memory or in a socket of mapwire.
///
/// Every descriptor that mapwire makes or receives goes through here, or through a loop that does
/// the same ([`is_above_stdio`]).
///
/// # Errors
/// No descriptor is left above 2.
pub fn above_stdio(fd: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if is_above_stdio(&fd) {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), FIRST)
}

/// Whether a descriptor is none of the standard streams.
pub fn is_above_stdio(fd: &impl AsRawFd) -> bool {
    fd.as_raw_fd() >= FIRST
}

/// Opens `/dev/null` for each standard stream that is closed, for good: before a library makes descriptors that does not know of them.
pub fn occupy_stdio() {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    while let Ok(fd) = rustix::fs::open("/dev/null", flags, Mode::empty())
        && !is_above_stdio(&fd)
    {
        core::mem::forget(fd);
    }
}
