//! Sending: pieces of memory gathered into messages.

use core::net::SocketAddr;
use core::ptr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::address::RawAddress;
use super::last_error;
use super::memory::Slab;
use crate::payload::Piece;

/// Messages that one call sends at most.
pub(in super::super) const MAX_MESSAGES: usize = 32;
/// Pieces of one message at most, as the kernel has it (`UIO_MAXIOV`).
const MAX_PIECES_EACH: usize = 1024;
/// Pieces of all messages together.
const MAX_PIECES: usize = 1024;

/// Part of a send call for one address: a datagram, or several that the kernel cuts out of it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Message {
    pub(in super::super) to: SocketAddr,
    /// Length of all datagrams together, in bytes.
    pub(in super::super) bytes: usize,
    /// Length of each datagram, the last may be shorter; 0 for one datagram.
    pub(in super::super) segment_bytes: u16,
    /// Whether the kernel is told the address, as it must be unless the socket is connected to it.
    is_named: bool,
    first: usize,
    count: usize,
}

impl Message {
    /// The address as the kernel is told it, and its length: 0 if it knows.
    #[inline(always)]
    fn name(&self) -> (RawAddress, libc::socklen_t) {
        if self.is_named { RawAddress::new(&self.to) } else { (RawAddress::zeroed(), 0) }
    }
}

/// Room for what a batch gathers, used anew by each.
#[derive(Debug)]
pub(in super::super) struct Outbox {
    arena: Slab,
    used: usize,
    pieces: Box<[libc::iovec]>,
    count: usize,
}

// SAFETY: the addresses in `pieces` are used only through a `Gather`, which begins with none and vouches for its own.
unsafe impl Send for Outbox {}
// SAFETY: a shared reference to it gives no use of them at all.
unsafe impl Sync for Outbox {}

impl Outbox {
    /// Room for `arena_bytes` bytes that are copied or made in it.
    pub(in super::super) fn new(arena_bytes: usize) -> Result<Self, Errno> {
        let none = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Ok(Self { arena: Slab::new(arena_bytes)?, used: 0, pieces: vec![none; MAX_PIECES].into(), count: 0 })
    }

    #[inline(always)]
    pub(in super::super) fn gather<'a>(&'a mut self) -> Gather<'a> {
        self.count = 0;
        self.used = 0;
        Gather { outbox: self }
    }
}

/// Pieces that are readable for `'a`, in the order in which they were added.
///
/// Invariant: the first `count` pieces of the outbox are memory that is mapped for loads for `'a`, or bytes of its arena before
/// `used`, of which no slice exists while the gather is not borrowed.
#[derive(Debug)]
pub(in super::super) struct Gather<'a> {
    outbox: &'a mut Outbox,
}

impl<'a> Gather<'a> {
    #[inline(always)]
    pub(in super::super) fn clear(&mut self) {
        self.outbox.count = 0;
        self.outbox.used = 0;
    }

    /// Whether `pieces` more pieces, and `bytes` more bytes in the arena, find room.
    #[inline(always)]
    pub(in super::super) fn has_room(&self, pieces: usize, bytes: usize) -> bool {
        let outbox = &*self.outbox;
        outbox.count + pieces <= outbox.pieces.len() && bytes <= outbox.arena.len_bytes() - outbox.used
    }

    /// Begins a message with the pieces that are added next.
    #[inline(always)]
    pub(in super::super) fn message(&self, to: SocketAddr, is_named: bool) -> Message {
        Message { to, is_named, bytes: 0, segment_bytes: 0, first: self.outbox.count, count: 0 }
    }

    /// Adds the next `bytes` bytes of the arena, and gives them to be written. The caller has seen that there is room.
    #[inline(always)]
    pub(in super::super) fn reserve(&mut self, message: &mut Message, bytes: usize) -> &mut [u8] {
        let at = self.outbox.used;
        self.outbox.used += bytes;
        let address = self.outbox.arena.address(at);
        let range = at..self.outbox.used;
        // What follows the message's last piece in memory makes that longer.
        match self.last_of(message) {
            Some(last) if at > 0 && last.iov_base.wrapping_byte_add(last.iov_len) == address.cast() => {
                last.iov_len += bytes;
            }
            _ => self.add(message, address, bytes),
        }
        message.bytes += bytes;
        self.outbox.arena.slice(range)
    }

    /// Adds a piece, which the kernel reads where it is.
    #[inline(always)]
    pub(in super::super) fn lend(&mut self, message: &mut Message, piece: Piece<'a>) {
        if !piece.is_empty() {
            self.add(message, piece.as_ptr().cast_mut(), piece.len());
            message.bytes += piece.len();
        }
    }

    #[inline(always)]
    fn last_of(&mut self, message: &Message) -> Option<&mut libc::iovec> {
        let end = message.first + message.count;
        (message.count > 0).then(|| &mut self.outbox.pieces[end - 1])
    }

    #[inline(always)]
    fn add(&mut self, message: &mut Message, address: *mut u8, bytes: usize) {
        debug_assert_eq!(message.first + message.count, self.outbox.count);
        self.outbox.pieces[self.outbox.count] = libc::iovec { iov_base: address.cast(), iov_len: bytes };
        self.outbox.count += 1;
        message.count += 1;
    }

    /// The bytes of a message of one piece, if that lies in the arena.
    fn made(&mut self, message: &Message) -> Option<&[u8]> {
        let piece = self.outbox.pieces[message.first];
        let at = (piece.iov_base as usize).checked_sub(self.outbox.arena.address(0) as usize)?;
        let end = at.checked_add(piece.iov_len)?;
        (end <= self.outbox.used).then(|| &*self.outbox.arena.slice(at..end))
    }

    fn pieces(&mut self, message: &Message) -> &mut [libc::iovec] {
        &mut self.outbox.pieces[..self.outbox.count][message.first..][..message.count]
    }

    /// Sends the first `MAX_MESSAGES` of `messages`, or the first of them, and says how many. An error is that of the first.
    #[inline(always)]
    pub(in super::super) fn send(&mut self, socket: BorrowedFd<'_>, messages: &[Message]) -> Result<usize, Errno> {
        match messages {
            [] => Ok(0),
            [message] => self.send_one(socket, message),
            several => self.send_many(socket, several),
        }
    }

    #[inline(always)]
    fn send_one(&mut self, socket: BorrowedFd<'_>, message: &Message) -> Result<usize, Errno> {
        if message.count == 1
            && message.segment_bytes == 0
            && !message.is_named
            && let Some(bytes) = self.made(message)
        {
            // Without the detour of the C library, whose call can be cancelled.
            return rustix::net::send(socket, bytes, SendFlags::empty()).map(|_| 1);
        }
        let (name, name_bytes) = message.name();
        let pieces = self.pieces(message);
        if let ([piece], 0) = (&*pieces, message.segment_bytes) {
            // SAFETY: the piece is readable, by the invariant, and `name` has the length that is given; both live through the call.
            let sent = unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    piece.iov_base,
                    piece.iov_len,
                    0,
                    pointer(&name, name_bytes).cast(),
                    name_bytes,
                )
            };
            return if sent < 0 { Err(last_error()) } else { Ok(1) };
        }
        let mut control = Control::new(message.segment_bytes);
        let header = header(&name, name_bytes, pieces, &mut control);
        // SAFETY: the header describes `name`, `control` and the message's pieces, which are readable, by the invariant; all live
        // through the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, 0) };
        if sent < 0 { Err(last_error()) } else { Ok(1) }
    }

    #[inline(never)]
    fn send_many(&mut self, socket: BorrowedFd<'_>, messages: &[Message]) -> Result<usize, Errno> {
        let count = messages.len().min(MAX_MESSAGES);
        let at = |at: usize| &messages[at.min(count - 1)];
        let names: [_; MAX_MESSAGES] = core::array::from_fn(|message| at(message).name());
        let mut controls: [_; MAX_MESSAGES] = core::array::from_fn(|message| Control::new(at(message).segment_bytes));
        let mut headers: [_; MAX_MESSAGES] = core::array::from_fn(|message| {
            let (name, bytes) = &names[message];
            let pieces = self.pieces(at(message));
            libc::mmsghdr { msg_hdr: header(name, *bytes, pieces, &mut controls[message]), msg_len: 0 }
        });
        // SAFETY: `count` headers, each of which describes a name, a control message and the pieces of a message, which are
        // readable, by the invariant; all live through the call.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, 0) };
        usize::try_from(sent).map_err(|_| last_error())
    }

    /// Sends the datagrams of a message one by one, for sockets that cannot cut it. `outcome` is told of each, and says whether
    /// to go on.
    pub(in super::super) fn send_singly(
        &mut self,
        socket: BorrowedFd<'_>,
        message: &Message,
        mut outcome: impl FnMut(Result<(), Errno>) -> bool,
    ) {
        let (name, name_bytes) = message.name();
        let pieces = self.pieces(message);
        let mut rest = &mut *pieces;
        let mut left = message.bytes;
        while left > 0 {
            let mut wanted = left.min(usize::from(message.segment_bytes).max(1));
            left -= wanted;
            // The pieces of this datagram: those that end in it, and the first part of the next.
            let mut whole = 0;
            while whole < rest.len() && rest[whole].iov_len <= wanted {
                wanted -= rest[whole].iov_len;
                whole += 1;
            }
            let cut = rest.get(whole).copied().filter(|_| wanted > 0);
            if cut.is_some() {
                rest[whole].iov_len = wanted;
            }
            let these = &mut rest[..whole + usize::from(cut.is_some())];
            let header = header(&name, name_bytes, these, &mut Control::new(0));
            // SAFETY: as in `send_one`: the pieces are parts of the message's.
            let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, 0) };
            if !outcome(if sent < 0 { Err(last_error()) } else { Ok(()) }) {
                break;
            }
            rest = &mut rest[whole..];
            if let (Some(piece), Some(next)) = (cut, rest.first_mut()) {
                next.iov_base = piece.iov_base.wrapping_byte_add(wanted);
                next.iov_len = piece.iov_len - wanted;
            }
        }
    }
}

/// The control message that tells the kernel where to cut.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control {
    header: libc::cmsghdr,
    segment_bytes: u16,
}

impl Control {
    #[inline(always)]
    fn new(segment_bytes: u16) -> Self {
        // SAFETY: a header of zeros is one; its fields are integers.
        let mut header: libc::cmsghdr = unsafe { core::mem::zeroed() };
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _;
        Self { header, segment_bytes }
    }
}

/// Where the kernel finds a name of that length. It takes an address of memory for a name even if the length is 0.
#[inline(always)]
fn pointer(name: &RawAddress, name_bytes: libc::socklen_t) -> *const RawAddress {
    if name_bytes == 0 { ptr::null() } else { name }
}

#[inline(always)]
fn header(
    name: &RawAddress,
    name_bytes: libc::socklen_t,
    pieces: &mut [libc::iovec],
    control: &mut Control,
) -> libc::msghdr {
    debug_assert!(pieces.len() <= MAX_PIECES_EACH);
    // SAFETY: a message header of zeros names nothing.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    // The kernel only reads the name.
    header.msg_name = pointer(name, name_bytes).cast_mut().cast();
    header.msg_namelen = name_bytes;
    header.msg_iov = pieces.as_mut_ptr();
    header.msg_iovlen = pieces.len() as _;
    if control.segment_bytes > 0 {
        header.msg_control = ptr::from_mut(control).cast();
        header.msg_controllen = size_of::<Control>() as _;
    }
    header
}
