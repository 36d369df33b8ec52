//! One socket: how it is opened, and what the kernel gave it.

use core::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mapwire_host::descriptors::above_stdio;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery as V4Discovery, Ipv6PathMtuDiscovery as V6Discovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::config::{UdpConfig, UdpError};
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
    /// A socket at `address`. An option that the kernel refuses would only make it faster.
    pub(super) fn open(address: IpAddr, config: &UdpConfig) -> Result<Self, UdpError> {
        let (fd, address) = bind(address).map_err(|source| UdpError::Bind { address, source })?;
        let cuts = sys::set_option(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let _ = sys::set_option(&fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        if let Some(us) = config.busy_poll_us {
            let us = i32::try_from(us).unwrap_or(i32::MAX);
            let _ = sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, us);
            let _ = sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1);
        }
        let socket = Self { fd, address, cuts, peer: None };
        socket.set_buffers(config.send_buffer_bytes, config.receive_buffer_bytes);
        let _ = socket.set_fragmenting(false);
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

fn bind(address: IpAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let fd = unbound(address)?;
    rustix::net::bind(&fd, &SocketAddr::new(address, 0))?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&fd)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((fd, bound))
}
