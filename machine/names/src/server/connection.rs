//! One connection to the server: first a stranger's, then a client's.
//!
//! A hello proves that its first sender had the secret; whoever recorded it can send it again. So a connection becomes a client's only
//! when one of its messages has opened under the keys of its own session, which nobody but the hello's maker has.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::channel::{Channel, ChannelKey};
use crate::protocol::{HELLO_BYTES, Hello, MAX_REQUEST_BYTES, Release, Request, Response, VERSION, Verdict, Welcome};

/// Time from its connection until a stranger's first message must open.
const STRANGER_PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for a client to read an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Longest silence of a client, which reconnects when it needs something.
const IDLE: Duration = Duration::from_secs(60);
/// Requests answered before other connections have their turn.
const MAX_TURN: usize = 16;

/// State of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for input.
    Reads,
    /// It waits for room to send.
    Writes,
    /// It is over: the other side has closed it, or the server cannot continue.
    Ended,
    /// It is over: the input is malformed.
    Malformed,
    /// It is over: the other side does not prove the secret.
    WrongSecret,
    /// It is over: the other side speaks another version.
    OtherVersion,
}

#[derive(Debug)]
enum Stage {
    /// It has sent this part of its hello.
    Silent(Vec<u8>),
    Answered(Channel),
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    stage: Stage,
    /// Output; bytes from `sent` on are not sent yet.
    out: Vec<u8>,
    sent: usize,
    /// When it was accepted; for a client, when something was last opened or sent.
    progress: Instant,
    fate: Fate,
}

/// Refuses a connection for lack of room.
pub(super) fn refuse(mut stream: TcpStream) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write(&welcome(Verdict::Room));
    }
}

fn welcome(verdict: Verdict) -> Vec<u8> {
    let release = Release::own();
    Welcome { release, verdict }.emit().into()
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> Self {
        // Without it, answers are late; nothing worse.
        let _ = stream.set_nodelay(true);
        Self { stream, stage: Stage::Silent(Vec::new()), out: Vec::new(), sent: 0, progress: now, fate: Fate::Reads }
    }

    /// Whether none of its messages has opened yet.
    pub(super) fn is_stranger(&self) -> bool {
        match &self.stage {
            Stage::Silent(_) => true,
            Stage::Answered(channel) => channel.opened() == 0,
        }
    }

    /// Records what it waits for; returns whether that has changed.
    pub(super) fn is_newly(&mut self, fate: Fate) -> bool {
        std::mem::replace(&mut self.fate, fate) != fate
    }

    /// Whether it has been inactive for too long.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let patience = match self.fate {
            _ if self.is_stranger() => STRANGER_PATIENCE,
            Fate::Writes => ANSWER_PATIENCE,
            _ => IDLE,
        };
        now >= self.progress + patience
    }

    /// Sends pending output, reads input, and answers it.
    pub(super) fn serve(
        &mut self,
        key: &ChannelKey,
        buffer: &mut [u8],
        answer: &mut dyn FnMut(Request) -> Option<Response>,
        now: Instant,
    ) -> Fate {
        for _ in 0..MAX_TURN {
            match self.flush(now) {
                Ok(true) => {}
                Ok(false) => return Fate::Writes,
                Err(_) => return Fate::Ended,
            }
            if let Stage::Answered(channel) = &mut self.stage {
                let before = channel.opened();
                let message = channel.open(MAX_REQUEST_BYTES);
                if channel.opened() != before {
                    self.progress = now;
                }
                match message {
                    Err(_) => return Fate::Malformed,
                    Ok(None) => {}
                    Ok(Some(message)) => {
                        let Ok(request) = Request::parse(&message) else {
                            return Fate::Malformed;
                        };
                        let Some(response) = answer(request) else {
                            return Fate::Ended;
                        };
                        if channel.seal(&response.emit(), &mut self.out).is_err() {
                            return Fate::Ended;
                        }
                        continue;
                    }
                }
            }
            let room = match &self.stage {
                Stage::Silent(hello) => HELLO_BYTES - hello.len(),
                Stage::Answered(_) => buffer.len(),
            };
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Fate::Ended,
                Ok(count) => {
                    if let Some(over) = self.take(&buffer[..count], key) {
                        return over;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Reads,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Fate::Ended,
            }
        }
        // More input may wait. As soon as the kernel takes bytes, it is this connection's turn again.
        Fate::Writes
    }

    fn take(&mut self, bytes: &[u8], key: &ChannelKey) -> Option<Fate> {
        let hello = match &mut self.stage {
            Stage::Answered(channel) => {
                channel.feed(bytes);
                return None;
            }
            Stage::Silent(hello) => {
                hello.extend(bytes);
                // No need to wait for a peer that speaks something else.
                if !b"mwnames".starts_with(&hello[..hello.len().min(7)]) {
                    return Some(Fate::Malformed);
                }
                hello.first_chunk::<HELLO_BYTES>()?
            }
        };
        let (verdict, fate) = match Hello::parse(hello) {
            Err(_) => return Some(Fate::Malformed),
            Ok(hello) if hello.version != VERSION => (Verdict::Version, Fate::OtherVersion),
            Ok(hello) => match key.answer(&hello) {
                None => (Verdict::Secret, Fate::WrongSecret),
                Some((answer, channel)) => {
                    self.stage = Stage::Answered(channel);
                    self.out = welcome(Verdict::Welcome(answer));
                    return None;
                }
            },
        };
        let _ = self.stream.write(&welcome(verdict));
        Some(fate)
    }

    /// Sends pending output. Returns whether none is left.
    fn flush(&mut self, now: Instant) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent += count;
                    if !self.is_stranger() {
                        self.progress = now;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
