//! Sending: datagrams are gathered, those to one address that are equally long go to the kernel as one message, and many
//! messages go by one call.

use core::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::mtu::{self, MAX_DATAGRAM_BYTES};
use super::socket::Socket;
use super::sys::{Gather, MAX_MESSAGES, Message, Outbox};
use crate::payload::Payload;

/// Datagrams in one message at most, as kernels since 4.18 have it.
const MAX_SEGMENTS: usize = 64;
/// Payloads up to here are copied behind their heads: measured to cost less than one more piece for the kernel to look at,
/// by far for many of 1400 bytes, hardly for one of 4096.
const COPIED_BYTES: usize = 4096;
/// Bytes copied or made in a batch before it is flushed: four messages of sealed datagrams.
pub(super) const ARENA_BYTES: usize = 4 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Index of the socket that sends it.
    pub via: usize,
    pub to: SocketAddr,
    /// Whether it may be sent in fragments if the path's MTU is shorter: for one that was made before the path shrank.
    /// Others are refused as too long then.
    pub may_fragment: bool,
}

/// Counts of a batch's datagrams, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Datagrams that the kernel took.
    pub sent: u32,
    /// Datagrams not sent because the socket's buffer was full: the last ones pushed for this socket.
    pub blocked: u32,
    /// Datagrams not sent for another reason: a firewall, no route, nobody at the next hop, a receiver that refused earlier ones, a socket
    /// that does not exist, an address of the other family.
    pub failed: u32,
    /// Datagrams not sent because they are longer than the path allows.
    pub too_long: u32,
    /// To whom one of those was addressed, and what the path allows.
    pub shortened: Option<Shortened>,
}

/// A path that does not let long datagrams pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortened {
    pub via: usize,
    /// The address at the other end.
    pub to: SocketAddr,
    /// Longest datagram that passes, in bytes of UDP payload.
    pub max_bytes: usize,
}

/// Datagrams to be sent, in order. A batch that is dropped unfinished sends no more of them.
#[derive(Debug)]
#[must_use = "what is gathered is sent by `finish`"]
pub struct Batch<'a> {
    sockets: &'a mut [Socket],
    gather: Gather<'a>,
    messages: &'a mut Vec<Message>,
    /// The socket of all messages that wait here.
    via: usize,
    /// Whether they may be fragmented.
    may_fragment: bool,
    /// Whether the last message takes another datagram of the same length.
    is_open: bool,
    /// Bit of each socket whose buffer is full.
    blocked: u64,
    outcome: Outcome,
}

impl<'a> Batch<'a> {
    #[inline(always)]
    pub(super) fn begin_in(outbox: &'a mut Outbox, messages: &'a mut Vec<Message>, sockets: &'a mut [Socket]) -> Self {
        messages.clear();
        Self {
            sockets,
            gather: outbox.gather(),
            messages,
            via: 0,
            may_fragment: false,
            is_open: false,
            blocked: 0,
            outcome: Outcome::default(),
        }
    }

    /// Adds a datagram: `head`, which is copied, then `payload`, which is read while the batch is flushed, then `tail`, which is copied.
    #[inline(always)]
    pub fn push(&mut self, destination: &Destination, head: &[u8], payload: Payload<'a>, tail: &[u8]) {
        self.push_behind(destination, (&[], head), payload, tail);
    }

    /// As [`push`](Self::push), with a head of two parts.
    #[inline(always)]
    pub fn push_behind(
        &mut self,
        destination: &Destination,
        (front, head): (&[u8], &[u8]),
        payload: Payload<'a>,
        tail: &[u8],
    ) {
        let payload_bytes = payload.len_bytes();
        let ends_bytes = front.len() + head.len() + tail.len();
        let bytes = ends_bytes.saturating_add(payload_bytes);
        let is_copied = payload_bytes <= COPIED_BYTES;
        let (made, pieces) = match is_copied {
            true => (bytes, 1),
            false => (ends_bytes, 4),
        };
        if !self.begin(destination, bytes, made, pieces) {
            return;
        }
        let Some(message) = self.messages.last_mut() else {
            return;
        };
        if is_copied {
            let into = self.gather.reserve(message, made);
            let (this, into) = into.split_at_mut(front.len());
            this.copy_from_slice(front);
            let (this, mut into) = into.split_at_mut(head.len());
            this.copy_from_slice(head);
            for piece in payload.pieces() {
                let (this, rest) = into.split_at_mut(piece.len());
                piece.copy_to_slice(this);
                into = rest;
            }
            into.copy_from_slice(tail);
        } else {
            (self.gather.reserve(message, front.len())).copy_from_slice(front);
            (self.gather.reserve(message, head.len())).copy_from_slice(head);
            for &piece in payload.pieces() {
                self.gather.lend(message, piece);
            }
            if !tail.is_empty() {
                (self.gather.reserve(message, tail.len())).copy_from_slice(tail);
            }
        }
    }

    /// Adds a datagram of `bytes` bytes, which the caller writes now: unwritten ones have any value. `None` if it is too long.
    #[inline(always)]
    pub fn reserve(&mut self, destination: &Destination, bytes: usize) -> Option<&mut [u8]> {
        if !self.begin(destination, bytes, bytes, 1) {
            return None;
        }
        let message = self.messages.last_mut()?;
        Some(self.gather.reserve(message, bytes))
    }

    /// Sends what waits, and tells what became of all datagrams.
    #[inline(always)]
    pub fn finish(mut self) -> Outcome {
        self.flush();
        self.outcome
    }

    /// Sees that a datagram of `bytes` bytes can be added to the last message: a new one, or that of the datagram before. There is
    /// room for `made` bytes in the arena and for `pieces` pieces then. False if it is too long.
    #[inline(always)]
    fn begin(&mut self, destination: &Destination, bytes: usize, made: usize, pieces: usize) -> bool {
        if bytes > MAX_DATAGRAM_BYTES {
            self.count_too_long(destination.via, destination.to, 1);
            return false;
        }
        let is_other = (self.via, self.may_fragment) != (destination.via, destination.may_fragment);
        if is_other || !self.gather.has_room(pieces, made) {
            self.flush();
            self.via = destination.via;
            self.may_fragment = destination.may_fragment;
        }
        if !self.joins(&destination.to, bytes) {
            self.begin_message(destination, bytes);
        }
        true
    }

    /// Whether a datagram can join the last message.
    #[inline(always)]
    fn joins(&mut self, to: &SocketAddr, bytes: usize) -> bool {
        if !self.is_open {
            return false;
        }
        let Some(last) = self.messages.last_mut() else {
            return false;
        };
        // The first datagram makes the length of all; an open message has at most half of what is possible.
        let segment_bytes = match last.segment_bytes {
            0 => last.bytes,
            segment_bytes => segment_bytes.into(),
        };
        if bytes == 0 || bytes > segment_bytes || last.to != *to {
            return false;
        }
        last.segment_bytes = segment_bytes as u16;
        let with_next = last.bytes + bytes + segment_bytes;
        self.is_open =
            bytes == segment_bytes && with_next <= segment_bytes * MAX_SEGMENTS && with_next <= MAX_DATAGRAM_BYTES;
        true
    }

    #[inline(always)]
    fn begin_message(&mut self, destination: &Destination, bytes: usize) {
        if self.messages.len() == MAX_MESSAGES {
            self.flush();
        }
        let socket = self.sockets.get(self.via);
        let cuts = socket.is_some_and(Socket::cuts);
        let is_named = socket.is_none_or(|socket| !socket.is_connected_to(&destination.to));
        self.is_open = cuts && !self.may_fragment && bytes > 0 && 2 * bytes <= MAX_DATAGRAM_BYTES;
        let message = self.gather.message(destination.to, is_named);
        self.messages.push(message);
    }

    #[inline(always)]
    fn flush(&mut self) {
        if !self.messages.is_empty() {
            self.send();
            self.messages.clear();
            self.gather.clear();
            self.is_open = false;
        }
    }

    #[inline(always)]
    fn send(&mut self) {
        let Some(socket) = self.sockets.get(self.via) else {
            self.outcome.failed += datagrams(self.messages);
            return;
        };
        if self.blocked & 1 << self.via != 0 {
            self.outcome.blocked += datagrams(self.messages);
            return;
        }
        if self.may_fragment && socket.set_fragmenting(true).is_err() {
            self.outcome.failed += datagrams(self.messages);
            return;
        }
        self.send_from(0);
        if self.may_fragment {
            // It was set when the socket was opened, so it can be set now.
            let _ = self.sockets[self.via].set_fragmenting(false);
        }
    }

    /// Sends the messages from `first` on.
    #[inline(always)]
    fn send_from(&mut self, mut first: usize) {
        let mut refused = None;
        while first < self.messages.len() {
            let socket = self.sockets[self.via].as_fd();
            match self.gather.send(socket, &self.messages[first..]) {
                Ok(count) => {
                    let end = (first + count).min(self.messages.len());
                    self.outcome.sent += datagrams(&self.messages[first..end]);
                    first = end;
                }
                Err(Errno::INTR) => {}
                // A connected socket tells so of what it sent before, once. Whether the receiver is there is not decided by that:
                // anybody may send such a message.
                Err(Errno::CONNREFUSED) if refused != Some(first) => refused = Some(first),
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    self.blocked |= 1 << self.via;
                    self.outcome.blocked += datagrams(&self.messages[first..]);
                    return;
                }
                Err(why) => {
                    let message = self.messages[first];
                    self.handle_error(&message, why);
                    first += 1;
                }
            }
        }
    }

    /// A message was not sent.
    #[cold]
    fn handle_error(&mut self, message: &Message, why: Errno) {
        let may_be_cutting = matches!(why, Errno::INVAL | Errno::IO | Errno::OPNOTSUPP);
        // Where the others are too long, a shorter last one may pass.
        if message.segment_bytes > 0 && (may_be_cutting || why == Errno::MSGSIZE) {
            let some_passed = self.send_singly(message);
            if some_passed && may_be_cutting {
                self.sockets[self.via].stop_cutting();
            }
            return;
        }
        self.count_lost(message.to, datagrams(&[*message]), why);
    }

    /// Sends the datagrams of a message one by one, as a device that computes no checksums needs it, and sockets and kernels
    /// with other limits. Whether one was sent.
    fn send_singly(&mut self, message: &Message) -> bool {
        let (mut sent, mut too_long, mut other_error) = (0, 0, None);
        let socket = self.sockets[self.via].as_fd();
        self.gather.send_singly(socket, message, |outcome| {
            match outcome {
                Ok(()) => sent += 1,
                Err(Errno::MSGSIZE) => too_long += 1,
                Err(why) => other_error = Some(why),
            }
            other_error.is_none()
        });
        self.outcome.sent += sent;
        if too_long > 0 {
            self.count_too_long(self.via, message.to, too_long);
        }
        if let Some(why) = other_error {
            let unsent = datagrams(&[*message]) - sent - too_long;
            self.count_lost(message.to, unsent, why);
        }
        sent > 0
    }

    fn count_lost(&mut self, to: SocketAddr, datagrams: u32, why: Errno) {
        match why {
            Errno::MSGSIZE => self.count_too_long(self.via, to, datagrams),
            Errno::AGAIN | Errno::NOBUFS => self.outcome.blocked += datagrams,
            _ => self.outcome.failed += datagrams,
        }
    }

    #[cold]
    fn count_too_long(&mut self, via: usize, to: SocketAddr, datagrams: u32) {
        self.outcome.too_long += datagrams;
        let is_known = |known: Shortened| (known.via, known.to) == (via, to);
        if !self.outcome.shortened.is_some_and(is_known)
            && let Some(socket) = self.sockets.get(via)
        {
            let max_bytes = mtu::max_bytes(socket.address().ip(), &to);
            self.outcome.shortened = Some(Shortened { via, to, max_bytes });
        }
    }
}

/// Number of datagrams in messages.
#[inline(always)]
fn datagrams(messages: &[Message]) -> u32 {
    let each = |message: &Message| match message.segment_bytes {
        0 => 1,
        segment_bytes => message.bytes.div_ceil(segment_bytes.into()) as u32,
    };
    messages.iter().map(each).sum()
}
