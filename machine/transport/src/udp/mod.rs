//! The UDP sockets of a process: many datagrams by one system call, payloads sent from where they are and received where they
//! can be changed. Loss, order and congestion are the link's affair.
//!
//! | step | call |
//! |---|---|
//! | open | [`Udp::bind`] |
//! | send | [`Udp::batch`], then [`Batch::push`] or [`Batch::reserve`] for each datagram, [`Batch::finish`] |
//! | receive | [`Udp::receive`] until it gives `None`; to sleep, poll [`Udp::fds`] |
//! | be faster | [`Udp::connect`] to those to whom much is sent |
//! | ask | [`Udp::addresses`], [`Udp::max_bytes_towards`] |
//!
//! Sending and receiving allocate nothing.

mod batch;
mod config;
mod lossy;
mod mtu;
mod receive;
mod socket;
#[allow(unsafe_code)]
mod sys;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

pub use batch::{Batch, Destination, Outcome, Shortened};
pub use config::{MAX_CONNECTED, MAX_SOCKETS, UdpConfig, UdpError};
pub use lossy::{Faults, Loss, LossError, Lossy};
pub use mtu::MAX_DATAGRAM_BYTES;
pub use receive::Datagram;

use batch::ARENA_BYTES;
use receive::Incoming;
use socket::Socket;
use sys::{Message, Outbox};

/// The sockets of a process.
#[derive(Debug)]
pub struct Udp {
    /// Those that receive, then up to [`MAX_CONNECTED`] that only send.
    sockets: Vec<Socket>,
    receiving: usize,
    /// The connected one to be replaced next when there are as many as may be.
    oldest: usize,
    send_buffer_bytes: usize,
    outbox: Outbox,
    /// Of the batch that is being made, [`MAX_MESSAGES`](sys::MAX_MESSAGES) at most.
    messages: Vec<Message>,
    incoming: Incoming,
}

impl Udp {
    /// Opens one socket for each address.
    ///
    /// # Errors
    /// [`UdpError`]. A refused option that would only be faster is not an error.
    pub fn bind(config: &UdpConfig) -> Result<Self, UdpError> {
        match config.addresses.len() {
            0 => return Err(UdpError::NoAddress),
            1..=MAX_SOCKETS => {}
            more => return Err(UdpError::TooManyAddresses(more)),
        }
        let opened = config.addresses.iter().map(|&address| Socket::open(address, config));
        let mut sockets: Vec<_> = opened.collect::<Result<_, _>>()?;
        let resources = |source| UdpError::Resources { source };
        let incoming = Incoming::new(&sockets, config.first_length).map_err(resources)?;
        let outbox = Outbox::new(ARENA_BYTES).map_err(resources)?;
        let receiving = sockets.len();
        sockets.reserve_exact(MAX_CONNECTED);
        Ok(Self {
            sockets,
            receiving,
            oldest: 0,
            send_buffer_bytes: config.send_buffer_bytes,
            outbox,
            messages: Vec::with_capacity(sys::MAX_MESSAGES),
            incoming,
        })
    }

    /// The address of each socket with its port, in the order of the configuration.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = SocketAddr> {
        self.receiving().iter().map(Socket::address)
    }

    /// The descriptor of each socket, to be polled for input.
    pub fn fds(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.receiving().iter().map(AsFd::as_fd)
    }

    fn receiving(&self) -> &[Socket] {
        &self.sockets[..self.receiving]
    }

    /// Gives the index of a socket that sends to `to` only, from the address of socket `via` but from another port: the kernel
    /// looks up its route once and not for each datagram, which is an eighth of the latency of a small one. At most
    /// [`MAX_CONNECTED`]; the next replaces the first, whose index still sends to any address. Nothing is received there, so
    /// receivers must answer to an address that they know, and not to the one that a datagram came from.
    ///
    /// # Errors
    /// No such socket, no route, or no descriptor or port is left. Then go on with `via`.
    pub fn connect(&mut self, via: usize, to: SocketAddr) -> Result<usize, Errno> {
        let from = self.receiving().get(via).ok_or(Errno::BADF)?;
        let ip = from.address().ip();
        let is_same = |known: &Socket| known.is_connected_to(&to) && known.address().ip() == ip;
        if let Some(known) = self.sockets.iter().position(is_same) {
            return Ok(known);
        }
        let socket = from.connect(to, self.send_buffer_bytes)?;
        if self.sockets.len() < self.receiving + MAX_CONNECTED {
            self.sockets.push(socket);
            return Ok(self.sockets.len() - 1);
        }
        let via = self.receiving + self.oldest;
        self.sockets[via] = socket;
        self.oldest = (self.oldest + 1) % MAX_CONNECTED;
        Ok(via)
    }

    /// Longest datagram, in bytes of UDP payload, that passes from socket `via` to `to` unfragmented, as far as the kernel
    /// knows: by the MTU of the route, and by what routers on the way have told. What every path lets pass if there is no
    /// route. Five system calls.
    #[must_use]
    pub fn max_bytes_towards(&self, via: usize, to: &SocketAddr) -> usize {
        let unspecified = || match to {
            SocketAddr::V4(_) => core::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => core::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = self.sockets.get(via).map_or_else(unspecified, |via| via.address().ip());
        mtu::max_bytes(from, to)
    }

    /// Begins a batch of datagrams to be sent.
    #[inline(always)]
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::begin_in(&mut self.outbox, &mut self.messages, &mut self.sockets)
    }

    /// Whether the kernel is asked who has sent a datagram, as it is at first. Where it is not, a datagram that comes alone has no
    /// [`from`](Datagram::from), and those that were joined are told apart by [`UdpConfig::first_length`], without which this does
    /// nothing.
    pub fn set_naming(&mut self, on: bool) {
        self.incoming.set_naming(on);
    }

    /// Whether [`receive`](Self::receive) gives something without a system call.
    #[inline(always)]
    #[must_use]
    pub fn has_received(&self) -> bool {
        self.incoming.has_next()
    }

    /// The first byte of what [`receive`](Self::receive) gives next, if it gives something; 0 if that has none. It costs one system
    /// call when no datagram has been received.
    pub fn peek(&mut self) -> Option<u8> {
        self.incoming.peek(&self.sockets[..self.receiving])
    }

    /// Takes the next datagram that has come. When nothing is there it costs one system call, however many sockets there are.
    #[inline(always)]
    pub fn receive(&mut self) -> Option<Datagram<'_>> {
        let arrived = self.incoming.poll(&self.sockets[..self.receiving])?;
        Some(self.incoming.datagram(arrived))
    }
}
