//! The agent's way to the head: frames on standard input and output.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use mapwire_transport::rendezvous::Broker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::sink::Sink;
use super::frame::{BEAT, Frames, MESSAGE, Message, SILENCE, STDERR, STDIN, STDOUT};

/// What the head wants of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Order {
    /// End them; the job has this exit code.
    End(u8),
    /// Kill them.
    Kill,
    /// Stop them, until [`Order::Continue`].
    Stop,
    /// Let them continue.
    Continue,
    /// Nothing is heard of the head any more.
    HeadIsGone,
}

pub(in super::super) struct Uplink {
    /// This host, as the user calls it.
    host: String,
    frames: Frames,
    out: Sink,
    /// What rank 0 reads, if that is here.
    stdin: Option<Sink>,
    /// A part of the standard input is on its way to the rank.
    is_pouring: bool,
    heard_at: Instant,
    beat_at: Instant,
    /// The head is stopped, and says nothing.
    is_paused: bool,
    is_gone: bool,
    /// Ranks of which the head wants to see figures.
    seen: Range<u32>,
}

impl Uplink {
    pub(super) fn new(host: String, frames: Frames, seen: Range<u32>) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            host,
            frames,
            out: Sink::start(rustix::stdio::stdout())?,
            stdin: None,
            is_pouring: false,
            heard_at: now,
            beat_at: now,
            is_paused: false,
            is_gone: false,
            seen,
        })
    }

    /// The way of the ranks' standard output and standard error.
    pub(in super::super) fn sinks(&self) -> [Sink; 2] {
        [self.out.framed(STDOUT), self.out.framed(STDERR)]
    }

    pub(in super::super) fn host(&self) -> &str {
        &self.host
    }

    /// Readable when [`serve`](Self::serve) has work.
    pub(in super::super) fn input(&self) -> BorrowedFd<'static> {
        rustix::stdio::stdin()
    }

    /// Gives rank 0 its standard input by `target`.
    pub(in super::super) fn pour_into(&mut self, target: std::os::fd::OwnedFd) -> io::Result<()> {
        self.stdin = Some(Sink::into_pipe(target)?);
        Ok(())
    }

    pub(super) fn tell(&self, message: &Message) {
        self.out.push(&message.to_frame());
    }

    /// The ranks here are being ended with this exit code; the others must be too.
    pub(in super::super) fn tell_end(&self, code: u8) {
        self.tell(&Message::End { code });
    }

    /// Tells the head what the ranks have counted, if it wants to know.
    pub(in super::super) fn tell_figures(&self, broker: &Broker) {
        for rank in self.seen.clone() {
            let board = broker.board();
            if let Some(figures) = board.figures(rank) {
                self.tell(&Message::Figures {
                    rank,
                    pid: board.pid(rank),
                    at_ns: figures.at_ns,
                    words: figures.words.to_vec(),
                });
            }
        }
    }

    /// When [`serve`](Self::serve) wants to be called though nothing is readable.
    pub(in super::super) fn poll_at(&self) -> Instant {
        self.beat_at
    }

    /// Carries words between the broker and the head, and gives what the head wants.
    pub(in super::super) fn serve(&mut self, broker: &mut Broker, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        if !self.is_gone
            && let Err(error) = self.hear(broker, now, &mut orders)
        {
            tracing::debug!(%error, "the head is gone");
            self.is_gone = true;
            orders.push(Order::HeadIsGone);
        }
        while let Some(word) = broker.poll_word() {
            self.tell(&Message::of_word(&word));
        }
        if self.is_pouring && self.stdin.as_ref().is_none_or(Sink::is_empty) {
            self.is_pouring = false;
            self.tell(&Message::Taken);
        }
        if now >= self.beat_at {
            self.beat_at = now + BEAT;
            self.tell(&Message::beat());
            self.tell_figures(broker);
        }
        if self.is_pouring {
            // Looked at again soon: what takes it is another thread.
            self.beat_at = self.beat_at.min(now + BEAT / 100);
        }
        orders
    }

    fn hear(&mut self, broker: &mut Broker, now: Instant, orders: &mut Vec<Order>) -> io::Result<()> {
        let input = self.input();
        let mut fds = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
        if matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..)) {
            let mut bytes = [0; 64 * 1024];
            match rustix::io::read(input, &mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.frames.feed(&bytes[..count]),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.heard_at = now;
        }
        while let Some((kind, body)) = self.frames.next()? {
            match kind {
                MESSAGE => {
                    let message: Message = serde_json::from_slice(&body)?;
                    orders.extend(self.handle(&message, broker, now)?);
                }
                STDIN => self.pour(&body),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        if !self.is_paused && now >= self.heard_at + SILENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn handle(&mut self, message: &Message, broker: &mut Broker, now: Instant) -> io::Result<Option<Order>> {
        Ok(match message {
            Message::Card { .. } | Message::State { .. } => {
                let word = message.to_word().ok_or(io::ErrorKind::InvalidData)?;
                broker.handle_word(word, now).map_err(io::Error::other)?;
                None
            }
            Message::End { code } => Some(Order::End(*code)),
            Message::Kill => Some(Order::Kill),
            Message::Stop => {
                self.is_paused = true;
                Some(Order::Stop)
            }
            Message::Continue => {
                self.is_paused = false;
                Some(Order::Continue)
            }
            Message::Beat { .. } => None,
            Message::Start(_)
            | Message::Here { .. }
            | Message::Taken
            | Message::Figures { .. }
            | Message::Over { .. } => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        })
    }

    fn pour(&mut self, bytes: &[u8]) {
        match &self.stdin {
            Some(_) if bytes.is_empty() => self.stdin = None,
            Some(stdin) => {
                stdin.push(bytes);
                self.is_pouring = true;
            }
            None => {}
        }
    }

    /// The last word: nothing of the job is left here. Waits until the head has it, or is gone.
    pub(super) fn finish(self, code: u8) {
        self.tell(&Message::Over { code });
        while !self.out.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Sends a frame that may be long, when there is room.
    pub(super) fn send(&self, frame: &[u8]) {
        while self.out.is_full() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.out.push(frame);
    }
}
