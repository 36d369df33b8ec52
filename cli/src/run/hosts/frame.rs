//! What the head and an agent tell each other.
//!
//! An agent begins with a line, so that what a login shell prints before it can be told apart: `mapwire agent PROTOCOL VERSION`. All
//! else are frames: length `u32` (little-endian, of what follows), kind `u8`, body. The body of kind 0 is a [`Message`] as JSON, that of the
//! others are bytes of a stream.

use std::ffi::OsString;
use std::io::{self, Read};

use mapwire_transport::board::RankState;
use mapwire_transport::rendezvous::{Card, Word};
use serde::{Deserialize, Serialize};

use super::super::gathering::Written;
use crate::config::Settings;

pub(super) const PROTOCOL: u32 = 5;
/// Prefix of the first line.
pub(super) const GREETING: &str = "mapwire agent ";
/// Longest body, in bytes: a line of output and its tag fit.
pub(super) const LONGEST: usize = 4 << 20;

/// Kinds of frames.
pub(super) const MESSAGE: u8 = 0;
/// Whole lines of the ranks' standard output.
pub(super) const STDOUT: u8 = 1;
/// Whole lines of their standard error, and what the agent says itself.
pub(super) const STDERR: u8 = 2;
/// Standard input of rank 0; empty at its end.
pub(super) const STDIN: u8 = 3;
/// A part of a file that ranks wrote: length of its name (`u8`), name, bytes that follow those before.
pub(super) const FILE: u8 = 4;

/// How often each side says something, and for how long the other may be silent.
pub(super) const BEAT: std::time::Duration = std::time::Duration::from_secs(1);
pub(super) const SILENCE: std::time::Duration = std::time::Duration::from_secs(4);

/// The part of a job for the agent of one host.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Start {
    pub(super) host: String,
    pub(super) number: u32,
    pub(super) counts: Vec<u32>,
    pub(super) secret: [u8; 32],
    pub(super) program: Vec<OsString>,
    pub(super) folder: OsString,
    /// Whether the folder was asked for, and must be there.
    pub(super) must_have_folder: bool,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) settings: Settings,
    pub(super) written: Written,
    /// Whether the head wants to see figures.
    pub(super) figures: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RankState")]
enum StateText {
    Absent,
    Joined,
    Left,
    Dead,
    Stopped,
}

/// A control message.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) enum Message {
    /// To the agent: the job. Comes once.
    Start(Box<Start>),
    /// How ranks of other hosts reach a rank.
    Card { rank: u32, bytes: Vec<u8> },
    State {
        rank: u32,
        #[serde(with = "StateText")]
        state: RankState,
    },
    /// The job ends, with this exit code.
    End { code: u8 },
    /// To the agent: kill the ranks.
    Kill,
    /// To the agent: stop the ranks, and let them continue.
    Stop,
    /// See [`Message::Stop`].
    Continue,
    /// To the head: the last of the standard input was taken.
    Taken,
    /// To the head: what a rank has counted, by the agent's clock.
    Figures { rank: u32, pid: u32, at_ns: u64, words: Vec<u64> },
    /// To the head: nothing of the job is left on this host.
    Over { code: u8 },
    /// To the head: the boot of the agent's kernel, by its name, and the agent's clock.
    Here { boot: String, clock_ns: u64 },
    /// The sender is there, and its clock.
    Beat { clock_ns: u64 },
}

impl Message {
    pub(super) fn here() -> Self {
        Self::Here { boot: boot(), clock_ns: clock_ns() }
    }

    pub(super) fn beat() -> Self {
        Self::Beat { clock_ns: clock_ns() }
    }

    pub(super) fn to_frame(&self) -> Vec<u8> {
        let body = serde_json::to_vec(self).unwrap_or_default();
        frame(MESSAGE, &body)
    }

    /// A broker's word for the others.
    pub(super) fn of_word(word: &Word) -> Self {
        match word {
            Word::Card { rank, card } => Self::Card { rank: *rank, bytes: card.bytes().to_vec() },
            Word::State { rank, state } => Self::State { rank: *rank, state: *state },
        }
    }

    /// Another broker's word, if this is one and valid.
    pub(super) fn to_word(&self) -> Option<Word> {
        match self {
            Self::Card { rank, bytes } => Card::new(bytes).map(|card| Word::Card { rank: *rank, card }),
            Self::State { rank, state } => Some(Word::State { rank: *rank, state: *state }),
            _ => None,
        }
    }
}

/// The name of this boot of the kernel and of the clocks of this process in it; processes for which it is the same have one clock.
/// Empty where it is not known.
pub(super) fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // A kernel without namespaces of time has one clock for all.
    let time = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    boot.map_or_else(|_| String::new(), |boot| boot + &time.to_string_lossy())
}

/// The clock by which ranks write traces and captures, in nanoseconds.
pub(super) fn clock_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

pub(super) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(5 + body.len());
    frame.extend((body.len() as u32 + 1).to_le_bytes());
    frame.push(kind);
    frame.extend(body);
    frame
}

pub(in super::super) fn frames_of(kind: u8, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(LONGEST - 1).flat_map(|part| frame(kind, part)).collect()
}

/// Cuts frames out of bytes as they come.
#[derive(Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// So many of them have come out.
    taken: usize,
}

/// Most bytes that a login shell may print before the agent's greeting.
const LONGEST_BANNER: usize = 64 * 1024;

impl Frames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame: its kind and body.
    pub(super) fn next(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let Some((&length, rest)) = self.bytes[self.taken..].split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 || length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if rest.len() < length {
            return Ok(None);
        }
        let (kind, body) = (rest[0], rest[1..length].to_vec());
        self.taken += 4 + length;
        Ok(Some((kind, body)))
    }

    /// The rest of the line that greets, once it has come. What a login shell prints before it is skipped.
    pub(super) fn greeting(&mut self) -> io::Result<Option<String>> {
        let mut at = self.taken;
        while let Some(length) = self.bytes[at..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.bytes[at..at + length]);
            at += length + 1;
            if let Some(rest) = line.trim_end().strip_prefix(GREETING) {
                let rest = rest.to_owned();
                self.taken = at;
                return Ok(Some(rest));
            }
        }
        match self.bytes.len() > LONGEST_BANNER {
            true => Err(io::Error::other("no greeting among the first 64 KiB of output")),
            false => Ok(None),
        }
    }

    /// Waits for the next frame; `None` at the end of the stream.
    pub(super) fn read(&mut self, stream: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut buffer = [0; 64 * 1024];
        loop {
            if let Some(frame) = self.next()? {
                return Ok(Some(frame));
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.feed(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_their_bytes_arrive() {
        let bytes = [frame(STDOUT, b"one\n"), Message::beat().to_frame(), frame(STDIN, b"")].concat();
        for step in [1, 3, bytes.len()] {
            let mut frames = Frames::default();
            let mut out = Vec::new();
            for part in bytes.chunks(step) {
                frames.feed(part);
                while let Some(frame) = frames.next().unwrap() {
                    out.push(frame);
                }
            }
            assert_eq!(out[0], (STDOUT, b"one\n".to_vec()));
            assert!(matches!(serde_json::from_slice(&out[1].1), Ok(Message::Beat { .. })));
            assert_eq!(out[2], (STDIN, vec![]));
        }
    }

    #[test]
    fn a_greeting_is_found_behind_what_a_login_shell_prints() {
        let mut frames = Frames::default();
        frames.feed(b"Welcome!\n\xff\nmapwire agent 1");
        assert_eq!(frames.greeting().unwrap(), None);
        frames.feed(b" 0.1.0\n");
        frames.feed(&frame(STDIN, b"rest"));
        assert_eq!(frames.greeting().unwrap().as_deref(), Some("1 0.1.0"));
        assert_eq!(frames.next().unwrap(), Some((STDIN, b"rest".to_vec())));
        let mut endless = Frames::default();
        endless.feed(&[b'x'; LONGEST_BANNER + 1]);
        assert!(endless.greeting().is_err());
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused() {
        for length in [0_u32, LONGEST as u32 + 1, u32::MAX] {
            let mut frames = Frames::default();
            frames.feed(&length.to_le_bytes());
            assert!(frames.next().is_err());
        }
    }

    #[test]
    fn a_word_reads_back_as_it_was_said_and_an_impossible_card_does_not() {
        let card = Card::new(&[1, 2, 3]).unwrap();
        for word in [Word::Card { rank: 7, card }, Word::State { rank: 0, state: RankState::Dead }] {
            assert_eq!(Message::of_word(&word).to_word(), Some(word));
        }
        let long = Message::Card { rank: 0, bytes: vec![0; 1000] };
        assert_eq!(long.to_word(), None);
    }
}
