//! One socket: how it is opened, and what the kernel gave it.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mapwire_host::descriptors::above_stdio;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery as V4Discovery, Ipv6PathMtuDiscovery as V6Discovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::config::{Refused, UdpConfig, UdpError};
use super::sys;

/// A socket bound to an address of this host.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    address: SocketAddr,
    /// Whether the kernel cuts datagrams out of one message (`UDP_SEGMENT`).
    cuts: bool,
    /// The only address that it sends to without being told.
    peer: Option<SocketAddr>,
}

impl Socket {
    /// A socket at `address`. Options that are refused are added to `refused`.
    pub(super) fn open(address: IpAddr, config: &UdpConfig, refused: &mut Vec<Refused>) -> Result<Self, UdpError> {
        let bound = bind(address, config.ports.as_ref());
        let (fd, address) = bound.map_err(|source| UdpError::Bind { address, ports: config.ports.clone(), source })?;
        let mut socket = Self { fd, address, cuts: true, peer: None };
        socket.set_buffers(config.send_buffer_bytes, config.receive_buffer_bytes);
        let mut ask = |option, outcome: Result<(), Errno>| {
            refused.extend(outcome.err().map(|why| Refused { address, option, why }));
            outcome.is_ok()
        };
        let fd = &socket.fd;
        ask("path MTU discovery", socket.set_fragmenting(false));
        let gro = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        ask("UDP_GRO", gro);
        let gso = sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        let cuts = ask("UDP_SEGMENT", gso);
        if let Some(us) = config.busy_poll_us {
            let us = i32::try_from(us).unwrap_or(i32::MAX);
            let poll = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, us);
            ask("SO_BUSY_POLL", poll);
            let prefer = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1);
            ask("SO_PREFER_BUSY_POLL", prefer);
        }
        socket.cuts = cuts;
        Ok(socket)
    }

    /// A socket that only sends, to `to`, from the address of `self` and another port.
    pub(super) fn connect(&self, to: SocketAddr, send_buffer_bytes: usize) -> Result<Self, Errno> {
        let fd = unbound(self.address.ip())?;
        rustix::net::bind(&fd, &SocketAddr::new(self.address.ip(), 0))?;
        rustix::net::connect(&fd, &to)?;
        let socket = Self { fd, address: self.address, cuts: self.cuts, peer: Some(to) };
        socket.set_buffers(send_buffer_bytes, 0);
        socket.set_fragmenting(false)?;
        Ok(socket)
    }

    /// Sets the lengths of its buffers, in bytes, or what is nearest.
    fn set_buffers(&self, send: usize, receive: usize) {
        // Privileged processes may go beyond the limits in net.core. What was given is asked for later.
        if sockopt::set_socket_send_buffer_size_force(self, send).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(self, send);
        }
        if sockopt::set_socket_recv_buffer_size_force(self, receive).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(self, receive);
        }
    }

    /// Whether datagrams longer than the path's MTU are fragmented from now on, or refused.
    pub(super) fn set_fragmenting(&self, may_fragment: bool) -> Result<(), Errno> {
        match (self.address, may_fragment) {
            (SocketAddr::V4(_), false) => sockopt::set_ip_mtu_discover(self, V4Discovery::DO),
            (SocketAddr::V4(_), true) => sockopt::set_ip_mtu_discover(self, V4Discovery::WANT),
            (SocketAddr::V6(_), false) => sockopt::set_ipv6_mtu_discover(self, V6Discovery::DO),
            (SocketAddr::V6(_), true) => sockopt::set_ipv6_mtu_discover(self, V6Discovery::WANT),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it was made by [`connect`](Self::connect) to `to`.
    #[inline(always)]
    pub(super) fn is_connected_to(&self, to: &SocketAddr) -> bool {
        self.peer.as_ref() == Some(to)
    }

    #[inline(always)]
    pub(super) fn cuts(&self) -> bool {
        self.cuts
    }

    /// Has every datagram handed over alone from now on.
    pub(super) fn stop_cutting(&mut self) {
        self.cuts = false;
    }
}

impl AsFd for Socket {
    #[inline(always)]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A non-blocking socket of the family of `address`.
pub(super) fn unbound(address: IpAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let fd = above_stdio(fd)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

fn bind(address: IpAddr, ports: Option<&RangeInclusive<u16>>) -> Result<(OwnedFd, SocketAddr), Errno> {
    let fd = unbound(address)?;
    let mut why = Errno::INVAL;
    for port in ports.cloned().unwrap_or(0..=0) {
        match rustix::net::bind(&fd, &SocketAddr::new(address, port)) {
            Ok(()) => {
                let bound = rustix::net::getsockname(&fd)?;
                let bound = SocketAddr::try_from(bound).map_err(|_| Errno::AFNOSUPPORT)?;
                return Ok((fd, bound));
            }
            Err(error) => why = error,
        }
        if why != Errno::ADDRINUSE {
            break;
        }
    }
    Err(why)
}
