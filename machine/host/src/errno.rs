//! The kernel's error numbers, printed by name.

use core::fmt;

/// A kernel error number, printed as its name and the system's description.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub rustix::io::Errno);

impl Errno {
    /// The number, as `errno` would hold it.
    pub fn number(self) -> i32 {
        self.0.raw_os_error()
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno)
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(rustix::io::Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The system's description already ends in "(os error N)".
        write!(f, "{}", std::io::Error::from_raw_os_error(self.number()))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A system call on memory that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} of {bytes} bytes at {address:#x}: {errno}")]
pub struct CallError {
    pub call: &'static str,
    /// First address; 0 if the kernel was to choose.
    pub address: usize,
    pub bytes: usize,
    pub errno: Errno,
}

impl CallError {
    pub fn new(call: &'static str, address: usize, bytes: usize, errno: rustix::io::Errno) -> Self {
        Self { call, address, bytes, errno: errno.into() }
    }
}
