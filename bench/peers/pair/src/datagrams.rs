//! The baseline between hosts: datagrams between bare sockets over loopback, both sides spinning, as in `mapwire bench`.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::memory::{EXCHANGE_BYTES, Shared};
use crate::{Error, MOST_BYTES};

/// Bytes of a datagram at most: what loopback carries whole.
const DATAGRAM_BYTES: usize = 65_000;
/// Bytes that may be under way: nothing else keeps the receiver's buffer from running over.
const UNDER_WAY_BYTES: usize = 1 << 20;
/// Datagrams that may be under way.
const MOST_UNDER_WAY: usize = 256;
/// Bytes of the sockets' buffers, if the system allows.
static SOCKET_BYTES: libc::c_int = 8 << 20;
/// How long a datagram may take.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Datagrams {
    socket: UdpSocket,
    received: Vec<u8>,
    sent: u64,
    taken: u64,
}

impl Datagrams {
    /// A socket that is connected to that of the other process.
    pub(crate) fn new(shared: &Shared) -> Result<Self, Error> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            // SAFETY: the option reads one c_int. Without the right to it the socket has what it has.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const SOCKET_BYTES).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
        }
        let mut theirs = vec![0; EXCHANGE_BYTES];
        let mine = socket.local_addr()?.port().to_ne_bytes();
        shared.exchange(&mine, theirs.as_mut_ptr());
        socket.connect(("127.0.0.1", u16::from_ne_bytes([theirs[0], theirs[1]])))?;
        Ok(Self { socket, received: vec![0; MOST_BYTES], sent: 0, taken: 0 })
    }

    pub(crate) fn send(&mut self, shared: &Shared, data: &[u8]) -> Result<(), Error> {
        for piece in data.chunks(DATAGRAM_BYTES) {
            let most = (UNDER_WAY_BYTES / piece.len()).clamp(1, MOST_UNDER_WAY) as u64;
            while shared.datagrams_there() + most <= self.sent {}
            while let Err(error) = self.socket.send(piece) {
                if error.kind() != ErrorKind::WouldBlock {
                    return Err(error.into());
                }
            }
            self.sent += 1;
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, shared: &Shared, bytes: usize) -> Result<&[u8], Error> {
        let (mut got, mut start) = (0, None);
        while got < bytes {
            match self.socket.recv(&mut self.received[got..bytes]) {
                Ok(length) => {
                    got += length;
                    self.taken += 1;
                    shared.note_datagrams(self.taken);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if start.get_or_insert_with(Instant::now).elapsed() > LIMIT {
                        return Err("the baseline lost a datagram on loopback".into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(&self.received[..bytes])
    }
}
