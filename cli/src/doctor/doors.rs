//! The three ways to a userfaultfd, each tried.
//!
//! `unsafe`: the descriptors are made by calls that rustix and libc leave unsafe. They are closed at
//! once and never see a page.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;

/// Faults of user mode only, which needs no privilege since Linux 5.11.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);
/// `USERFAULTFD_IOC_NEW` of `linux/userfaultfd.h`.
const IOC_NEW: libc::c_ulong = 0xAA00;

fn call(flags: UserfaultfdFlags) -> Result<(), Errno> {
    // SAFETY: no range is registered with the descriptor, which is closed at once.
    unsafe { rustix::mm::userfaultfd(UserfaultfdFlags::CLOEXEC.union(flags)) }.map(drop)
}

fn device() -> Result<(), Errno> {
    let device = rustix::fs::open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the call takes flags by value, touches no memory of ours, and gives a descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW as _, libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: `fd` was just opened and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Each way by name, and what came of it.
pub(super) fn try_all() -> [(&'static str, Result<(), Errno>); 3] {
    [
        ("system call, faults of user mode", call(USER_MODE_ONLY)),
        ("/dev/userfaultfd", device()),
        ("system call, all faults", call(UserfaultfdFlags::empty())),
    ]
}
