//! Receiving: buffers that the kernel fills.

use core::net::SocketAddr;
use core::ops::Range;
use core::ptr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::address::{RAW_BYTES, RawAddress};
use super::last_error;
use super::memory::Slab;

/// Buffers that one call fills at most.
const MAX_SLOTS: usize = 16;
/// Datagrams that the kernel joins at most (`UDP_GRO_CNT_MAX`).
const MAX_JOINED: usize = 64;
/// Room for the control messages of a receive: the length of segments, and one more that nobody asks for.
const CONTROL_WORDS: usize = 6;

/// Result of a receive into one buffer.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct FilledBuffer {
    pub(in super::super) bytes: usize,
    /// Length of each datagram among them, the last may be shorter; 0 when they are one datagram.
    pub(in super::super) segment_bytes: usize,
    /// Sender, if the kernel was asked.
    pub(in super::super) from: Option<SocketAddr>,
    /// Whether the buffer was too short for them, or their sender could not be answered.
    pub(in super::super) is_malformed: bool,
}

/// Buffers for datagrams that come.
#[derive(Debug)]
pub(in super::super) struct Inbox {
    slab: Slab,
    buffer_bytes: usize,
    slots: Box<[FilledBuffer]>,
}

impl Inbox {
    /// `buffers` buffers of `buffer_bytes` bytes.
    pub(in super::super) fn new(buffers: usize, buffer_bytes: usize) -> Result<Self, Errno> {
        let empty = FilledBuffer { bytes: 0, segment_bytes: 0, from: None, is_malformed: false };
        let buffers = buffers.min(MAX_SLOTS);
        Ok(Self { slab: Slab::new(buffers * buffer_bytes)?, buffer_bytes, slots: vec![empty; buffers].into() })
    }

    /// Number of buffers.
    pub(in super::super) fn buffers(&self) -> usize {
        self.slots.len()
    }

    /// Result of the last receive into buffer `slot`.
    #[inline(always)]
    pub(in super::super) fn slot(&self, slot: usize) -> &FilledBuffer {
        &self.slots[slot]
    }

    /// The bytes of `range` of buffer `slot`.
    #[inline(always)]
    pub(in super::super) fn slice(&mut self, slot: usize, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.buffer_bytes);
        let base = slot * self.buffer_bytes;
        self.slab.slice(base + range.start..base + range.end)
    }

    /// Fills up to `wanted` buffers from the first on, and says how many. [`Errno::AGAIN`] when nothing is there.
    #[inline(always)]
    pub(in super::super) fn receive(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> Result<usize, Errno> {
        match wanted.min(self.slots.len()) {
            0 => Ok(0),
            1 => self.receive_one(socket),
            several => self.receive_many(socket, several),
        }
    }

    /// Fills the first buffer without asking who has sent what is there, nor where its datagrams end: `first_length` tells of the first,
    /// and the kernel joins equally long ones only, of which the last may be shorter. That is about a tenth of a small datagram's latency.
    #[inline(always)]
    pub(in super::super) fn receive_unnamed(
        &mut self,
        socket: BorrowedFd<'_>,
        first_length: fn(&[u8]) -> usize,
    ) -> Result<usize, Errno> {
        let buffer = self.slice(0, 0..self.buffer_bytes);
        // Without the detour of the C library, whose call can be cancelled.
        let (_, bytes) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
        // Whoever lies about it gets no more datagrams looked at than the kernel would have joined.
        let first = first_length(self.slice(0, 0..bytes));
        let is_possible = bytes <= first.saturating_mul(MAX_JOINED);
        self.slots[0] =
            FilledBuffer { bytes, segment_bytes: if is_possible { first } else { 0 }, from: None, is_malformed: false };
        Ok(1)
    }

    #[inline(always)]
    fn receive_one(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut name = RawAddress::zeroed();
        let mut control = [0; CONTROL_WORDS];
        let mut iovec = self.iovec(0);
        let mut header = header(&mut name, &mut iovec, &mut control);
        // SAFETY: the header describes `name`, `control` and the first buffer with their lengths; all live through the call.
        let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
        let bytes = usize::try_from(bytes).map_err(|_| last_error())?;
        // SAFETY: that was a receive, and its buffers live.
        self.slots[0] = unsafe { slot(bytes, &header) };
        Ok(1)
    }

    #[inline(never)]
    fn receive_many(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> Result<usize, Errno> {
        let mut names = [RawAddress::zeroed(); MAX_SLOTS];
        let mut controls = [[0; CONTROL_WORDS]; MAX_SLOTS];
        let mut iovecs: [_; MAX_SLOTS] = core::array::from_fn(|at| self.iovec(at.min(self.slots.len() - 1)));
        let mut headers: [libc::mmsghdr; MAX_SLOTS] = core::array::from_fn(|at| libc::mmsghdr {
            msg_hdr: header(&mut names[at], &mut iovecs[at], &mut controls[at]),
            msg_len: 0,
        });
        // SAFETY: `wanted` headers, each of which describes a name, a control buffer and a buffer of its own with their lengths;
        // all live through the call.
        let count = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), wanted as libc::c_uint, 0, ptr::null_mut())
        };
        let count = usize::try_from(count).map_err(|_| last_error())?;
        for (to, filled) in self.slots.iter_mut().zip(&headers[..count]) {
            // SAFETY: that was a receive, and its buffers live.
            *to = unsafe { slot(filled.msg_len as usize, &filled.msg_hdr) };
        }
        Ok(count)
    }

    #[inline(always)]
    fn iovec(&self, slot: usize) -> libc::iovec {
        libc::iovec { iov_base: self.slab.address(slot * self.buffer_bytes).cast(), iov_len: self.buffer_bytes }
    }
}

#[inline(always)]
fn header(name: &mut RawAddress, iovec: &mut libc::iovec, control: &mut [u64; CONTROL_WORDS]) -> libc::msghdr {
    // SAFETY: a message header of zeros names nothing.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_name = ptr::from_mut(name).cast();
    header.msg_namelen = RAW_BYTES;
    header.msg_iov = iovec;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(control) as _;
    header
}

/// Result of the receive that `header` describes.
///
/// # Safety
/// The header's name and control buffer live, and the last use of it was a receive.
#[inline(always)]
unsafe fn slot(bytes: usize, header: &libc::msghdr) -> FilledBuffer {
    // SAFETY: the name lives, by this function's contract; `header` made it point to a `RawAddress`.
    let name = unsafe { &*header.msg_name.cast::<RawAddress>() };
    let from = name.read(header.msg_namelen);
    FilledBuffer {
        bytes,
        // SAFETY: this function's contract.
        segment_bytes: unsafe { segment_bytes(header) },
        from,
        is_malformed: header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
            || from.is_none_or(|from| from.port() == 0),
    }
}

/// The length of segments that the control messages of a receive tell, or 0.
///
/// # Safety
/// The header's control buffer lives, and the last use of it was a receive.
#[inline(always)]
unsafe fn segment_bytes(header: &libc::msghdr) -> usize {
    // SAFETY: the control buffer lives, and holds as many bytes of messages as its length says since the kernel wrote both; an
    // `int` follows a message of this type.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = at.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO) {
                let value = libc::CMSG_DATA(at).cast::<i32>().read_unaligned();
                return usize::try_from(value).unwrap_or(0);
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    0
}
