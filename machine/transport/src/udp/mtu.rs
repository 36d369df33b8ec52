//! The longest datagram that a path lets pass, by the kernel's knowledge.

use core::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::sockopt;

use super::socket::unbound;

/// Longest datagram, in bytes of UDP payload: what fits into an IPv4 packet.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Bytes of the headers of IP and UDP, without options.
const V4_HEADERS: usize = 20 + 8;
const V6_HEADERS: usize = 40 + 8;
/// What every host accepts (RFC 791) and every link carries (RFC 8200 §5), in bytes of the IP packet.
const V4_LEAST: usize = 576;
const V6_LEAST: usize = 1280;

/// Bytes of UDP payload that pass from the local address `from` to `to` unfragmented: by the MTU of the route, and what ICMP has told
/// of hops behind it. What every path lets pass if there is no route.
pub(super) fn max_bytes(from: IpAddr, to: &SocketAddr) -> usize {
    let (headers, least) = match to {
        SocketAddr::V4(_) => (V4_HEADERS, V4_LEAST),
        SocketAddr::V6(_) => (V6_HEADERS, V6_LEAST),
    };
    let path = path_mtu(from, to).unwrap_or(least);
    path.saturating_sub(headers).min(MAX_DATAGRAM_BYTES)
}

/// The kernel tells the MTU of a connected socket only.
fn path_mtu(from: IpAddr, to: &SocketAddr) -> Result<usize, Errno> {
    let socket = unbound(from)?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    rustix::net::connect(&socket, to)?;
    let mtu = match to {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?,
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
    };
    Ok(mtu as usize)
}
