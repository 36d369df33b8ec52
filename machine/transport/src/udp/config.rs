//! Configuration of sockets, and errors of opening them.

use core::net::IpAddr;

use rustix::io::Errno;

/// Addresses at which one process receives at most.
pub const MAX_SOCKETS: usize = 8;
/// Receivers at most for which a process has a socket of their own ([`Udp::connect`](super::Udp::connect)).
pub const MAX_CONNECTED: usize = 56;

/// Configuration of the sockets of a process.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// One socket each, at most [`MAX_SOCKETS`]. Addresses of either family, `0.0.0.0` and `::` for all of this host.
    pub addresses: Vec<IpAddr>,
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
    #[error("no address to receive datagrams at; name at least one of this host")]
    NoAddress,
    #[error("{0} addresses to receive datagrams at; name at most {MAX_SOCKETS}")]
    TooManyAddresses(usize),
    /// An address cannot be used.
    #[error("cannot receive datagrams at {address}, any port: {source}; {}", mend(*.source))]
    Bind { address: IpAddr, source: Errno },
    /// There is no memory or descriptor for what is common to all sockets.
    #[error("cannot prepare to receive datagrams: {source}; {}", mend(*.source))]
    Resources { source: Errno },
}

fn mend(why: Errno) -> &'static str {
    match why {
        Errno::ADDRNOTAVAIL => "name an address of this host (`ip address` lists them)",
        Errno::AFNOSUPPORT => "this kernel lacks the address's family; name an address of the other",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (`ulimit -n`)",
        Errno::INVAL => "name an address that needs no interface (not fe80::…)",
        Errno::NOMEM | Errno::NOBUFS => "free memory",
        _ => "name another address",
    }
}
