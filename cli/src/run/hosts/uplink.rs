//! The agent's way to the head: frames on standard input and output.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use mapwire_transport::rendezvous::Broker;

use super::super::sink::Sink;
use super::connection::Connection;
use super::frame::{BEAT, Frames, MESSAGE, Message, STDERR, STDIN, STDOUT};

pub(in super::super) struct Uplink {
    /// This host, as the user calls it.
    host: String,
    connection: Connection,
    stdin: Option<Sink>,
    /// A part of the standard input is on its way to the rank.
    is_pouring: bool,
    beat_at: Instant,
    /// The head is stopped, and says nothing.
    is_paused: bool,
    is_gone: bool,
    seen: Range<u32>,
}

impl Uplink {
    pub(super) fn new(host: String, frames: Frames, seen: Range<u32>) -> io::Result<Self> {
        let out = Sink::start(rustix::stdio::stdout())?;
        Ok(Self {
            host,
            connection: Connection::new(frames, out),
            stdin: None,
            is_pouring: false,
            beat_at: Instant::now(),
            is_paused: false,
            is_gone: false,
            seen,
        })
    }

    pub(in super::super) fn sinks(&self) -> [Sink; 2] {
        [STDOUT, STDERR].map(|kind| self.connection.out.framed(kind))
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
        self.stdin = Some(Sink::start(target)?);
        Ok(())
    }

    pub(super) fn tell(&self, message: &Message) {
        self.connection.tell(message);
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

    /// Carries words between the broker and the head, and gives what the head orders; `None` once, when it is gone.
    pub(in super::super) fn serve(&mut self, broker: &mut Broker, now: Instant) -> Vec<Option<Message>> {
        let mut orders = Vec::new();
        if !self.is_gone
            && let Err(error) = self.hear(broker, now, &mut orders)
        {
            tracing::debug!(%error, "the head is gone");
            self.is_gone = true;
            orders.push(None);
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

    fn hear(&mut self, broker: &mut Broker, now: Instant, orders: &mut Vec<Option<Message>>) -> io::Result<()> {
        self.connection.receive(self.input(), now)?;
        while let Some((kind, body)) = self.connection.frames.next()? {
            match kind {
                MESSAGE => {
                    let message: Message = serde_json::from_slice(&body)?;
                    if self.is_order(&message, broker, now)? {
                        orders.push(Some(message));
                    }
                }
                STDIN => self.pour(&body),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        if !self.is_paused && self.connection.is_silent(now) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Takes a message; true if the ranks must be told.
    fn is_order(&mut self, message: &Message, broker: &mut Broker, now: Instant) -> io::Result<bool> {
        match message {
            Message::Card { .. } | Message::State { .. } => {
                let word = message.to_word().ok_or(io::ErrorKind::InvalidData)?;
                broker.handle_word(word, now).map_err(io::Error::other)?;
            }
            Message::End { .. } | Message::Kill => return Ok(true),
            Message::Stop | Message::Continue => {
                self.is_paused = matches!(message, Message::Stop);
                return Ok(true);
            }
            Message::Beat { .. } => {}
            Message::Start(_)
            | Message::Here { .. }
            | Message::Taken
            | Message::Figures { .. }
            | Message::Over { .. } => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(false)
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
        while !self.connection.out.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Sends a frame that may be long, when there is room.
    pub(super) fn send(&self, frame: &[u8]) {
        while self.connection.out.is_full() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.connection.out.push(frame);
    }
}
