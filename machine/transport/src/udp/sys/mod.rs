//! The system calls that move datagrams, and the memory that the kernel reads and writes in them.
//!
//! Only here do addresses of memory meet lengths and control messages, for which `rustix` has no safe form: segmented sends
//! (`UDP_SEGMENT`), segmented receives (`UDP_GRO`), and pieces that others may change meanwhile, so that they are no slices.

mod address;
mod inbox;
mod memory;
mod outbox;

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

pub(super) use inbox::Inbox;
pub(super) use outbox::{Gather, MAX_MESSAGES, Message, Outbox};

/// Sets an option of a socket that is an `int`.
pub(super) fn set_option(socket: impl AsFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    let fd = socket.as_fd().as_raw_fd();
    let bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads an `int` from `value`, which lives through the call.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), bytes) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
