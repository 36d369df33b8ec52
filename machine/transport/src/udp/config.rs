//! What sockets are opened with, and why they cannot be.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use rustix::io::Errno;

/// Addresses at which one process receives at most.
pub const MAX_SOCKETS: usize = 8;
/// Receivers at most for which a process has a socket of their own ([`Udp::connect`](super::Udp::connect)).
pub const MAX_CONNECTED: usize = 56;

/// What the sockets of a process are opened with.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// One socket each, at most [`MAX_SOCKETS`]. Addresses of either family, `0.0.0.0` and `::` for all of this host.
    pub addresses: Vec<IpAddr>,
    /// The ports to choose from, the first that is free for each address; `None` for whichever the kernel gives.
    pub ports: Option<RangeInclusive<u16>>,
    /// Bytes of datagrams that wait in the kernel to be sent, asked for each socket. The kernel may give less.
    pub send_buffer_bytes: usize,
    /// Bytes of datagrams that wait in the kernel to be received, asked for each socket. The kernel may give less.
    pub receive_buffer_bytes: usize,
    /// Microseconds for which the kernel polls the network device when a socket is empty, instead of waiting for an
    /// interrupt. It concerns devices with NAPI polling, not the loopback.
    pub busy_poll_us: Option<u32>,
    /// Bytes of the first of several datagrams that the kernel has joined, as it says itself. With this, senders' addresses and the
    /// lengths of joined datagrams need not be asked of the kernel: see [`Udp::set_naming`](super::Udp::set_naming).
    pub first_length: Option<fn(&[u8]) -> usize>,
}

impl UdpConfig {
    /// Sockets at `addresses`, with ports of the kernel's choice and buffers of 4 MiB for sending and 16 MiB for receiving.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            ports: None,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 16 << 20,
            busy_poll_us: None,
            first_length: None,
        }
    }
}

/// Why sockets cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// No address is given.
    #[error("no address to receive datagrams at; name at least one of this host")]
    NoAddress,
    /// More addresses than [`MAX_SOCKETS`].
    #[error("{0} addresses to receive datagrams at; name at most {MAX_SOCKETS}")]
    TooManyAddresses(usize),
    /// An address or its port cannot be used.
    #[error("cannot receive datagrams at {address}, {}: {source}; {}", PortsText(.ports), mend(*.source))]
    Bind {
        /// The address.
        address: IpAddr,
        /// The ports that were tried.
        ports: Option<RangeInclusive<u16>>,
        /// Why.
        source: Errno,
    },
    /// There is no memory or descriptor for what is common to all sockets.
    #[error("cannot prepare to receive datagrams: {source}; {}", mend(*.source))]
    Resources {
        /// Why.
        source: Errno,
    },
}

struct PortsText<'a>(&'a Option<RangeInclusive<u16>>);

impl fmt::Display for PortsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("any port"),
            Some(ports) if ports.start() == ports.end() => write!(f, "port {}", ports.start()),
            Some(ports) => write!(f, "ports {} to {}", ports.start(), ports.end()),
        }
    }
}

fn mend(why: Errno) -> &'static str {
    match why {
        Errno::ADDRNOTAVAIL => "name an address of this host (`ip address` lists them)",
        Errno::ADDRINUSE => "state other ports, or end the program that uses these (`ss -ulpn`)",
        Errno::ACCESS => "state ports from 1024 on",
        Errno::AFNOSUPPORT => "this kernel lacks the address's family; name an address of the other",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)",
        Errno::INVAL => "name an address that needs no interface (not fe80::…) and a range that is not empty",
        Errno::NOMEM | Errno::NOBUFS => "free memory",
        _ => "name another address",
    }
}

/// An option that the kernel refused. Everything works without it, more slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The socket's address.
    pub address: SocketAddr,
    /// What was asked for, as the kernel names it.
    pub option: &'static str,
    /// Why.
    pub why: Errno,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refused {} at {}: {}", self.option, self.address, self.why)
    }
}
