//! One end of the talk between the head and an agent.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::sink::Sink;
use super::frame::{Frames, Message, SILENCE};

/// Frames come in from a descriptor that is [read](Self::receive) when it is readable, and go out by a sink.
pub(super) struct Connection {
    pub(super) frames: Frames,
    pub(super) out: Sink,
    heard_at: Instant,
}

impl Connection {
    pub(super) fn new(frames: Frames, out: Sink) -> Self {
        Self { frames, out, heard_at: Instant::now() }
    }

    /// Reads what has come, without waiting. The end of the stream is an error, [`io::ErrorKind::UnexpectedEof`].
    pub(super) fn receive(&mut self, input: BorrowedFd<'_>, now: Instant) -> io::Result<()> {
        let mut fds = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        if matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..)) {
            let mut bytes = [0; 64 * 1024];
            match rustix::io::read(input, &mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.frames.feed(&bytes[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.heard_at = now;
        }
        Ok(())
    }

    /// Sends a message; one to an end that has gone goes nowhere.
    pub(super) fn tell(&self, message: &Message) {
        self.out.push(&message.to_frame());
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now >= self.heard_at + SILENCE
    }

    /// Takes the other end as heard of: nobody could listen meanwhile.
    pub(super) fn excuse(&mut self) {
        self.heard_at = Instant::now();
    }
}
