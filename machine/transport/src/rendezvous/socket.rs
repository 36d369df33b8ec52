//! Records and descriptors over a SOCK_SEQPACKET socket. Nothing here blocks or allocates.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use mapwire_host::descriptors::above_stdio;

use super::message::{MAX_BYTES, Record};

/// Result of one receive.
pub(super) enum Received {
    /// A record of a possible length with at most one descriptor. `fds` counts what came.
    Record { record: Record, fd: Option<OwnedFd>, fds: usize },
    /// A record whose descriptor was lost, since this process has no free one.
    NoDescriptor(Record),
    /// A record that no honest peer sends: too short, too long, or with a heap of descriptors.
    Garbage,
    /// Nothing waits.
    Empty,
    /// The peer closed its end, or the connection broke.
    Closed,
}

pub(super) fn send(socket: impl AsFd, record: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds;
    if let Some(fd) = fd {
        fds = [fd];
        // The space is made for exactly this message.
        let pushed = control.push(SendAncillaryMessage::ScmRights(&fds));
        debug_assert!(pushed);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &[IoSlice::new(record)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

pub(super) fn receive(socket: impl AsFd) -> Received {
    // One byte more than a record, to tell a longer one.
    let mut bytes = [0_u8; MAX_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut resets = 0;
    let got = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            // A peer that closed with records of ours unread sets this error once, and it hides
            // the records that the peer itself had sent before.
            Err(Errno::CONNRESET) if resets == 0 => resets += 1,
            Err(Errno::AGAIN) => return Received::Empty,
            Err(_) => return Received::Closed,
        }
    };
    let mut fd = None;
    let mut fds = 0;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for right in rights {
                fds += 1;
                fd = above_stdio(right).ok();
            }
        }
    }
    if got.bytes == 0 && fds == 0 {
        // No record of ours is empty, so a zero length is the end of the connection.
        return Received::Closed;
    }
    if got.flags.contains(ReturnFlags::TRUNC) || fds > 1 {
        return Received::Garbage;
    }
    let Some(record) = bytes.get(..got.bytes).and_then(Record::from_bytes) else {
        return Received::Garbage;
    };
    // There was room for another descriptor, so the kernel could not give it a number, or none above 2.
    if got.flags.contains(ReturnFlags::CTRUNC) || fds > 0 && fd.is_none() {
        return Received::NoDescriptor(record);
    }
    Received::Record { record, fd, fds }
}
