//! One agent, as the head sees it: a process whose output is read as it comes.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::super::sink::Sink;
use super::super::spawn;
use super::super::start::explain;
use super::super::supervisor::{FIRST_TOKEN, Supervisor};
use super::super::terminal::Stdout;
use super::clock::Clock;
use super::command::Template;
use super::connection::Connection;
use super::frame::{Frames, STDERR, STDOUT};

/// Longest line of a launch agent that is shown as one.
const LONGEST_LINE: usize = 4096;

/// Input from an agent.
#[derive(Debug)]
pub(super) enum Heard {
    Greeting(String),
    /// A frame that is no output.
    Frame(u8, Vec<u8>),
}

pub(super) struct Peer {
    pub(super) name: String,
    pub(super) ranks: Range<u32>,
    pub(super) pid: Pid,
    pub(super) connection: Connection,
    /// Its output, and what the launch agent says, until their ends.
    pipes: [Option<OwnedFd>; 2],
    is_watched: bool,
    /// The part of a line that the launch agent has said.
    words: Vec<u8>,
    /// The line that greets has come.
    has_answered: bool,
    pub(super) clock: Clock,
    /// It is one, of this version.
    pub(super) has_greeted: bool,
    /// The job's part there is over, with this exit code.
    pub(super) over: Option<u8>,
    /// Its output has ended then, for this reason if not by itself.
    pub(super) stream_end: Option<(Instant, Option<String>)>,
    pub(super) process_end: Option<(Instant, String, Option<i32>)>,
    pub(super) is_lost: bool,
}

impl Peer {
    /// Starts the agent of a host.
    pub(super) fn start((name, ranks): (&str, Range<u32>), template: &Template) -> Result<Self, crate::Failure> {
        let program = template
            .command(name)
            .map_err(|error| (error.exit_code(), format!("host {name}: --launch-agent: {error}")))?;
        let wrong = |error: io::Error| (126, format!("host {name}: cannot start its agent: {}", explain(&error)));
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| wrong(e.into()))?;
        let started = spawn::start(&program, &[], theirs.into(), Stdout::Pipe, None, None).map_err(wrong)?;
        let out = Sink::start(ours).map_err(wrong)?;
        Ok(Self {
            name: name.to_owned(),
            ranks,
            pid: started.pid,
            connection: Connection::new(Frames::default(), out),
            pipes: [Some(started.stdout), Some(started.stderr)],
            is_watched: false,
            words: Vec::new(),
            has_answered: false,
            clock: Clock::default(),
            has_greeted: false,
            over: None,
            stream_end: None,
            process_end: None,
            is_lost: false,
        })
    }

    /// Begins or ceases to listen, as the user's output has room or not. It is agent `number`.
    pub(super) fn watch(&mut self, supervisor: &Supervisor, number: usize, has_room: bool) {
        if !has_room {
            self.connection.excuse();
        }
        if self.is_watched == has_room {
            return;
        }
        self.is_watched = has_room;
        for (pipe, token) in self.pipes.iter().zip(FIRST_TOKEN + 2 * number as u64..) {
            let Some(pipe) = pipe else { continue };
            let _ = if has_room { supervisor.listen(pipe, token) } else { supervisor.forget(pipe) };
        }
    }

    /// Reads its output: passes on lines of the ranks, and gives what else was heard.
    pub(super) fn read_output(&mut self, supervisor: &Supervisor, now: Instant) -> Vec<Heard> {
        let mut heard = Vec::new();
        if let Err(error) = self.take_frames(supervisor, &mut heard, now) {
            self.pipes[0] = None;
            let why = (error.kind() != io::ErrorKind::UnexpectedEof).then(|| error.to_string());
            self.stream_end = Some((now, why));
        }
        heard
    }

    fn take_frames(&mut self, supervisor: &Supervisor, heard: &mut Vec<Heard>, now: Instant) -> io::Result<()> {
        let Some(pipe) = &self.pipes[0] else {
            return Ok(());
        };
        self.connection.receive(pipe.as_fd(), now)?;
        if !self.has_answered {
            let Some(text) = self.connection.frames.greeting()? else {
                return Ok(());
            };
            self.has_answered = true;
            heard.push(Heard::Greeting(text));
        }
        while let Some((kind, body)) = self.connection.frames.next()? {
            match kind {
                STDOUT | STDERR => supervisor.sinks[usize::from(kind == STDERR)].push(&body),
                _ => heard.push(Heard::Frame(kind, body)),
            }
        }
        Ok(())
    }

    /// Passes on what the launch agent itself says, a line at a time.
    pub(super) fn read_words(&mut self, supervisor: &Supervisor) {
        let Some(pipe) = &self.pipes[1] else { return };
        let mut bytes = [0; LONGEST_LINE];
        let is_over = match rustix::io::read(pipe, &mut bytes) {
            Ok(count) => {
                self.words.extend(&bytes[..count]);
                count == 0
            }
            Err(errno) => errno != Errno::INTR,
        };
        if is_over {
            self.pipes[1] = None;
        }
        while !self.words.is_empty() {
            let end = self.words.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let end = end.or_else(|| (is_over || self.words.len() >= LONGEST_LINE).then_some(self.words.len()));
            let Some(end) = end else { return };
            let line: Vec<u8> = self.words.drain(..end).collect();
            let text = String::from_utf8_lossy(line.trim_ascii_end());
            if !text.is_empty() {
                supervisor.say(&format!("host {}: {text}", self.name));
            }
        }
    }

    /// Whether all that the launch agent said has been passed on.
    pub(super) fn have_words_ended(&self) -> bool {
        self.pipes[1].is_none()
    }

    /// Whether nothing more is awaited of it.
    pub(super) fn is_done(&self) -> bool {
        self.is_lost || (self.over.is_some() && self.stream_end.is_some())
    }
}
