//! The limit of what goes over UDP: datagrams between bare sockets, whose ends spin.

use std::io::{self, ErrorKind};
use std::net::{ToSocketAddrs, UdpSocket};

use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};

use super::BenchError;
use super::job::SHARED_BYTES;
use super::words::Words;

/// Bytes of a datagram at most: what loopback carries whole.
pub(crate) const DATAGRAM_BYTES: usize = 65_000;
/// Bytes of the sockets' buffers, if the system allows.
const SOCKET_BYTES: usize = 8 << 20;
/// Looks at an empty socket after which a datagram is lost: some seconds.
const MOST_LOOKS: u64 = 20_000_000;

/// The port of rank 0 in the memory of all ranks; those of the others follow in lines of their own.
const PORTS: usize = SHARED_BYTES - 8192;

/// A socket that does not block.
pub(crate) fn bind(address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    for set_buffer in [set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force] {
        // Without the right to it the baseline has what it has.
        let _ = set_buffer(&socket, SOCKET_BYTES);
    }
    Ok(socket)
}

/// A socket of this computer, whose port `shared` tells the other ranks.
pub(crate) fn announced(shared: Words, rank: usize) -> Result<UdpSocket, BenchError> {
    let socket = bind("127.0.0.1:0")?;
    shared.store(PORTS + 64 * rank, socket.local_addr()?.port().into());
    Ok(socket)
}

/// The port of another rank, once it has announced it.
pub(crate) fn port_of(shared: Words, rank: usize) -> u16 {
    loop {
        match shared.load(PORTS + 64 * rank) {
            0 => std::thread::yield_now(),
            port => return port as u16,
        }
    }
}

/// The socket of rank 0 or 1, connected to that of the other.
pub(crate) fn connected(shared: Words, rank: usize) -> Result<UdpSocket, BenchError> {
    let socket = announced(shared, rank)?;
    socket.connect(("127.0.0.1", port_of(shared, 1 - rank)))?;
    Ok(socket)
}

/// The outcome of a call of a socket; `None` where it would block.
pub(crate) fn now<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Repeats a call of a socket until it no longer blocks.
///
/// # Errors
/// The call fails, or a datagram has been lost.
pub(crate) fn spin<T>(mut call: impl FnMut() -> io::Result<T>) -> Result<T, BenchError> {
    for _ in 0..MOST_LOOKS {
        if let Some(value) = now(call())? {
            return Ok(value);
        }
    }
    Err("the baseline lost a datagram on loopback".into())
}
