//! The plainest way to a rank and back: flags in memory that both have mapped, or datagrams where they have none.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;

use mapwire::Node;

use crate::BenchError;
use crate::flags::Flags;
use crate::words::Words;

/// Bytes of a datagram that asks: about those of the shared memory's shortest message with its headers.
const QUESTION_BYTES: usize = 128;

/// Where the ranks say which ports they have, behind the words of the steps.
const PORTS: usize = 2048;

/// One rank's end.
#[expect(clippy::large_enum_variant, reason = "there is one of it, made once")]
pub(super) enum Trip {
    Flags(Flags),
    /// Sockets that nothing else uses, and the bytes of an answer.
    Datagrams(UdpSocket, usize),
}

impl Trip {
    /// A socket for ranks 0 and 1, which answers with `bytes`.
    pub(super) fn datagrams(node: &Node, words: Words, bytes: usize) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        let port = |rank: usize| PORTS + 64 * rank;
        if node.rank() < 2 {
            words.store(port(node.rank()), socket.local_addr()?.port().into());
            let peer = loop {
                match words.load(port(1 - node.rank())) {
                    0 => {}
                    port => break port as u16,
                }
            };
            socket.connect(("127.0.0.1", peer))?;
        }
        Ok(Self::Datagrams(socket, bytes))
    }

    /// Rank 0: nanoseconds of a round trip.
    pub(super) fn ask(&self, times: u64) -> Result<f64, BenchError> {
        let (socket, bytes) = match self {
            Self::Flags(flags) => return Ok(flags.ask(times)),
            Self::Datagrams(socket, bytes) => (socket, *bytes),
        };
        let mut answer = vec![0; bytes];
        let start = Instant::now();
        for _ in 0..times {
            socket.send(&[1; QUESTION_BYTES])?;
            take(socket, &mut answer)?;
        }
        Ok(start.elapsed().as_nanos() as f64 / times as f64)
    }

    /// Rank 1: answers so many.
    pub(super) fn answer(&self, times: u64) -> Result<(), BenchError> {
        let (socket, bytes) = match self {
            Self::Flags(flags) => {
                flags.answer(times);
                return Ok(());
            }
            Self::Datagrams(socket, bytes) => (socket, *bytes),
        };
        let answer = vec![2; bytes];
        for _ in 0..times {
            take(socket, &mut [0; QUESTION_BYTES])?;
            socket.send(&answer)?;
        }
        Ok(())
    }
}

fn take(socket: &UdpSocket, into: &mut [u8]) -> Result<(), BenchError> {
    let mut looks = 0_u64;
    loop {
        match socket.recv(into) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => looks += 1,
            Err(error) => return Err(error.into()),
        }
        if looks > 20_000_000 {
            return Err("the baseline lost a datagram on loopback".into());
        }
    }
}
