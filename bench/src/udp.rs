//! The limit of what goes over UDP: datagrams between bare sockets, whose ends spin.

use std::io::{self, ErrorKind};
use std::net::{ToSocketAddrs, UdpSocket};

use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};

use super::BenchError;
use super::job::SHARED_BYTES;
use super::loops::Message;
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

/// Bytes and datagrams of messages that may be under way: nothing else keeps the receiver's buffer from running over.
const UNDER_WAY_BYTES: usize = 1 << 20;
const UNDER_WAY_DATAGRAMS: usize = 256;

/// Messages in datagrams between rank 0 and rank 1.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    /// A line for each rank: how many datagrams it has taken.
    taken: [Words; 2],
    sent_datagrams: u64,
    taken_datagrams: u64,
}

impl Datagrams {
    /// Both ranks call it, with the memory of all ranks and a part of it of 256 bytes, which was zero.
    pub(crate) fn new(shared: Words, lines: Words, rank: usize) -> Result<Self, BenchError> {
        let line = |of: usize| lines.part(128 * of, 8);
        Ok(Self {
            socket: connected(shared, rank)?,
            taken: [line(rank), line(1 - rank)],
            sent_datagrams: 0,
            taken_datagrams: 0,
        })
    }

    pub(crate) fn send(&mut self, data: &[u8], message: Message) -> Result<(), BenchError> {
        for piece in data.chunks(DATAGRAM_BYTES) {
            if message.is_stream || data.len() > DATAGRAM_BYTES {
                let most = (UNDER_WAY_BYTES / piece.len()).clamp(1, UNDER_WAY_DATAGRAMS) as u64;
                while self.taken[1].load(0) + most <= self.sent_datagrams {}
            }
            self.sent_datagrams += 1;
            spin(|| self.socket.send(piece))?;
        }
        Ok(())
    }

    /// Takes a message of `bytes` to `offset` of `memory`.
    pub(crate) fn take(&mut self, memory: Words, offset: usize, bytes: usize) -> Result<(), BenchError> {
        let mut done = 0;
        while done < bytes {
            let part = memory.part(offset + done, DATAGRAM_BYTES.min(bytes - done));
            done += spin(|| part.receive(&self.socket))?;
            self.taken_datagrams += 1;
            self.taken[0].store(0, self.taken_datagrams);
        }
        Ok(())
    }
}
