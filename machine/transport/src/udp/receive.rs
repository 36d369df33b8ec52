//! Receiving: many datagrams by one call, several of one sender in one buffer.

use core::net::SocketAddr;
use core::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::config::MAX_SOCKETS;
use super::socket::Socket;
use super::sys::Inbox;

/// Buffers that one call fills at most: more would not stay in a processor's cache.
const BUFFERS: usize = 8;
/// Bytes of a buffer: the kernel joins datagrams up to the length of an IP packet.
const BUFFER_BYTES: usize = 1 << 16;
/// Calls that take from one socket before the others get their turn.
const MAX_STREAK: usize = 32;

/// A datagram that has come.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// Index of the socket that it came to.
    pub via: usize,
    /// Sender, as UDP reports it; `None` if the kernel was not asked.
    pub from: Option<SocketAddr>,
    /// Contents, which may be changed in place.
    pub bytes: &'a mut [u8],
}

#[derive(Clone, Debug)]
pub(super) struct Arrived {
    via: usize,
    from: Option<SocketAddr>,
    slot: usize,
    range: Range<usize>,
}

/// Received datagrams that were not taken yet.
#[derive(Debug)]
pub(super) struct Incoming {
    inbox: Inbox,
    /// Tells which of several sockets has something.
    ready: Option<OwnedFd>,
    /// The socket that filled the buffers.
    via: usize,
    /// Buffers that are filled, the one that is read and the place in it.
    filled: usize,
    slot: usize,
    at: usize,
    /// Whether that socket may have more.
    may_have_more: bool,
    /// Calls in a row that found something there.
    streak: usize,
    /// Length of the first of several joined datagrams, if the kernel is not asked.
    first_length: Option<fn(&[u8]) -> usize>,
    /// The kernel is asked for senders' addresses.
    is_naming: bool,
}

impl Incoming {
    /// Ready to receive from `sockets`.
    pub(super) fn new(sockets: &[Socket], first_length: Option<fn(&[u8]) -> usize>) -> Result<Self, Errno> {
        Self::with_buffers(sockets, BUFFERS, BUFFER_BYTES, first_length)
    }

    pub(super) fn with_buffers(
        sockets: &[Socket],
        buffers: usize,
        buffer_bytes: usize,
        first_length: Option<fn(&[u8]) -> usize>,
    ) -> Result<Self, Errno> {
        Ok(Self {
            inbox: Inbox::new(buffers, buffer_bytes)?,
            ready: match sockets {
                [] | [_] => None,
                several => Some(watch(several)?),
            },
            via: 0,
            filled: 0,
            slot: 0,
            at: 0,
            may_have_more: false,
            streak: 0,
            first_length,
            is_naming: true,
        })
    }

    /// Whether the kernel is asked who has sent what.
    pub(super) fn set_naming(&mut self, on: bool) {
        self.is_naming = on || self.first_length.is_none();
    }

    /// The next datagram. `None` when nothing is there, or when all that one call received was malformed.
    #[inline(always)]
    pub(super) fn poll(&mut self, sockets: &[Socket]) -> Option<Arrived> {
        self.next().or_else(|| {
            self.fill(sockets);
            self.next()
        })
    }

    /// The first byte of the next datagram, which is not taken; 0 where there is none in it.
    pub(super) fn peek(&mut self, sockets: &[Socket]) -> Option<u8> {
        let arrived = self.poll(sockets)?;
        (self.slot, self.at) = (arrived.slot, arrived.range.start);
        let bytes = self.inbox.slice(arrived.slot, arrived.range);
        Some(bytes.first().copied().unwrap_or_default())
    }

    /// Whether the buffers hold something.
    #[inline(always)]
    pub(super) fn has_next(&self) -> bool {
        self.slot < self.filled
    }

    /// The datagram that was polled last.
    #[inline(always)]
    pub(super) fn datagram(&mut self, arrived: Arrived) -> Datagram<'_> {
        Datagram { via: arrived.via, from: arrived.from, bytes: self.inbox.slice(arrived.slot, arrived.range) }
    }

    /// The next datagram that is in the buffers already.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Arrived> {
        while self.slot < self.filled {
            let slot = self.inbox.slot(self.slot);
            if slot.is_malformed {
                self.slot += 1;
                continue;
            }
            let from = slot.from;
            let left = slot.bytes - self.at;
            let bytes = match slot.segment_bytes {
                0 => left,
                segment_bytes => left.min(segment_bytes),
            };
            let arrived = Arrived { via: self.via, from, slot: self.slot, range: self.at..self.at + bytes };
            self.at += bytes;
            if self.at >= slot.bytes {
                self.slot += 1;
                self.at = 0;
            }
            return Some(arrived);
        }
        None
    }

    #[inline(always)]
    fn fill(&mut self, sockets: &[Socket]) {
        self.slot = 0;
        self.at = 0;
        self.filled = 0;
        if self.ready.is_none() {
            self.fill_from(sockets);
        } else {
            self.fill_from_any(sockets);
        }
    }

    /// Looks at the socket in turn. After several looks in a row that found something, it takes more at once.
    #[inline(always)]
    fn fill_from(&mut self, sockets: &[Socket]) {
        let Some(socket) = sockets.get(self.via) else {
            return;
        };
        let wanted = self.streak.clamp(1, self.inbox.buffers());
        let first_length = self.first_length.filter(|_| wanted == 1 && !self.is_naming);
        let received = match first_length {
            Some(first_length) => self.inbox.receive_unnamed(socket.as_fd(), first_length),
            None => self.inbox.receive(socket.as_fd(), wanted),
        };
        match received {
            Ok(filled) => {
                self.filled = filled;
                self.streak += 1;
            }
            Err(_) => {
                self.streak = 0;
                self.may_have_more = false;
            }
        }
    }

    fn fill_from_any(&mut self, sockets: &[Socket]) {
        if self.may_have_more && self.streak < MAX_STREAK {
            self.fill_from(sockets);
        }
        if self.filled == 0
            && let Some(via) = self.next_ready()
        {
            self.via = via;
            self.streak = 0;
            self.may_have_more = true;
            self.fill_from(sockets);
        }
    }

    /// The next socket in turn that has something.
    fn next_ready(&self) -> Option<usize> {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; MAX_SOCKETS];
        let count = epoll::wait(self.ready.as_ref()?, &mut events, Some(&NOW)).ok()?;
        let ready = || events[..count].iter().map(|event| event.data.u64() as usize);
        ready().filter(|&via| via > self.via).min().or_else(|| ready().min())
    }
}

fn watch(sockets: &[Socket]) -> Result<OwnedFd, Errno> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = mapwire_host::descriptors::above_stdio(watch)?;
    for (via, socket) in sockets.iter().enumerate() {
        let data = epoll::EventData::new_u64(via as u64);
        epoll::add(&watch, socket, data, epoll::EventFlags::IN)?;
    }
    Ok(watch)
}
