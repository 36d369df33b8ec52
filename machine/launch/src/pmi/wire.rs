//! Bytes to and from the launcher, with a limit on their number and on the time.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use mapwire_transport::local;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::LaunchError;
use crate::error::excerpt;

/// Longest line of the launcher, in bytes: twice what PMI-1 allows.
const MAX_LINE_BYTES: usize = 2048;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    what: &'static str,
    after: Duration,
    /// `None`: later than a clock can tell.
    at: Option<Instant>,
}

impl Limit {
    pub(super) fn new(what: &'static str, after: Duration) -> Self {
        let at = Instant::now().checked_add(after);
        Self { what, after, at }
    }
}

/// The launcher's socket. Once a call has failed, all later ones do.
#[derive(Debug)]
pub(super) struct Wire {
    socket: OwnedFd,
    /// What has come and is not read yet.
    unread: Vec<u8>,
    is_spent: bool,
}

impl Wire {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, unread: Vec::new(), is_spent: false }
    }

    pub(super) fn send(&mut self, bytes: &[u8], limit: Limit) -> Result<(), LaunchError> {
        if self.is_spent {
            return Err(LaunchError::Spent);
        }
        self.send_anyway(bytes, limit)
    }

    /// [`Wire::send`] of what is not answered, even after a failure.
    pub(super) fn send_anyway(&mut self, mut bytes: &[u8], limit: Limit) -> Result<(), LaunchError> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => self.wait_for(PollFlags::OUT, limit)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return self.fail(LaunchError::Closed),
                Err(errno) => return self.fail(("send", errno).into()),
            }
        }
        Ok(())
    }

    /// The next line, without its end.
    pub(super) fn read_line(&mut self, limit: Limit) -> Result<Vec<u8>, LaunchError> {
        let mut seen = 0;
        loop {
            if let Some(at) = self.unread[seen..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=seen + at).collect();
                line.pop();
                return Ok(line);
            }
            seen = self.unread.len();
            if seen >= MAX_LINE_BYTES {
                let answer = excerpt(&self.unread);
                return self.fail(malformed(answer, "a line of at most 2048 bytes"));
            }
            self.receive(limit)?;
        }
    }

    pub(super) fn read(&mut self, length: usize, limit: Limit) -> Result<Vec<u8>, LaunchError> {
        while self.unread.len() < length {
            self.receive(limit)?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn receive(&mut self, limit: Limit) -> Result<(), LaunchError> {
        if self.is_spent {
            return Err(LaunchError::Spent);
        }
        let mut bytes = [0; 2048];
        loop {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.fail(LaunchError::Closed),
                Ok((count, _)) => {
                    self.unread.extend(&bytes[..count]);
                    return Ok(());
                }
                Err(Errno::AGAIN) => self.wait_for(PollFlags::IN, limit)?,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return self.fail(LaunchError::Closed),
                Err(errno) => return self.fail(("recv", errno).into()),
            }
        }
    }

    fn wait_for(&mut self, flags: PollFlags, limit: Limit) -> Result<(), LaunchError> {
        match local::wait_for(&self.socket, flags, limit.at) {
            Ok(true) => Ok(()),
            Ok(false) => self.fail(LaunchError::Timeout { what: limit.what, after: limit.after }),
            Err(failure) => self.fail(failure.into()),
        }
    }

    /// Whether the launcher has closed its end, as far as can be told without waiting.
    pub(super) fn is_closed(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        matches!(recv(self.socket.as_fd(), &mut byte, flags), Ok((0, _)) | Err(Errno::CONNRESET))
    }

    /// Notes that nothing the launcher says from now on can be trusted to answer what was asked.
    pub(super) fn fail<T>(&mut self, error: LaunchError) -> Result<T, LaunchError> {
        self.is_spent = true;
        Err(error)
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    /// Whether a character stands between fields.
    separates: fn(char) -> bool,
}

impl Answer {
    /// Takes what came for an answer that is named `name`.
    pub(super) fn read(
        wire: &mut Wire,
        protocol: &'static str,
        bytes: Vec<u8>,
        separates: fn(char) -> bool,
        name: &'static str,
    ) -> Result<Self, LaunchError> {
        let malformed = |bytes: &[u8]| LaunchError::Protocol { protocol, answer: excerpt(bytes), expected: name };
        let answer = match String::from_utf8(bytes) {
            Ok(text) => Self { text, separates },
            Err(error) => return wire.fail(malformed(error.as_bytes())),
        };
        match answer.field("cmd") {
            Some(named) if named == name => Ok(answer),
            _ => wire.fail(malformed(answer.text.as_bytes())),
        }
    }

    /// The value of `name`. A separator in a value, which only messages have, ends it.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.text.split(self.separates).filter_map(|field| field.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(super) fn excerpt(&self) -> String {
        excerpt(self.text.as_bytes())
    }
}

fn malformed(answer: String, expected: &'static str) -> LaunchError {
    LaunchError::Protocol { protocol: "PMI", answer, expected }
}
