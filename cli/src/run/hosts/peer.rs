//! One agent, as the head sees it: a process, and three threads that carry its words.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::super::sink::Sink;
use super::super::spawn;
use super::super::terminal::Stdout;
use super::clock::Clock;
use super::command::Template;
use super::frame::{Frames, GREETING, Message, STDERR, STDOUT};
use crate::run::start::explain;

/// What a login shell may print before the agent's greeting, in bytes.
const LONGEST_BANNER: u64 = 64 * 1024;

/// What was heard of an agent.
#[derive(Debug)]
pub(super) enum Heard {
    /// It greets: the numbers of its protocol and version.
    Greeting(String),
    /// A frame that is no output.
    Frame(u8, Vec<u8>),
    /// Its output has ended; why, if not by itself.
    End(Option<String>),
    /// All that the launch agent said has been passed on.
    WordsEnd,
}

/// What was heard of all agents, until the head takes it.
pub(super) struct Inbox {
    queue: Mutex<VecDeque<(usize, Heard)>>,
    event: OwnedFd,
    /// Nobody listens any more.
    is_closed: AtomicBool,
}

impl Inbox {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { queue: Mutex::default(), event, is_closed: AtomicBool::new(false) }))
    }

    fn push(&self, from: usize, heard: Heard) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back((from, heard));
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// All that was heard since the last call.
    pub(super) fn take(&self) -> VecDeque<(usize, Heard)> {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets threads end that wait for the reader of the output.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

pub(super) struct Peer {
    pub(super) name: String,
    pub(super) ranks: Range<u32>,
    pub(super) pid: Pid,
    orders: mpsc::Sender<Vec<u8>>,
    heard_at: Arc<Mutex<Instant>>,
    pub(super) clock: Clock,
    /// It is one, of this version.
    pub(super) has_greeted: bool,
    /// The job's part there is over, with this exit code.
    pub(super) over: Option<u8>,
    pub(super) stream_end: Option<(Instant, Option<String>)>,
    pub(super) process_end: Option<(Instant, String, Option<i32>)>,
    /// Whether all that the launch agent said has been passed on.
    pub(super) have_words_ended: bool,
    pub(super) is_lost: bool,
}

impl Peer {
    /// Starts the agent of a host, number `number` of the job's hosts.
    pub(super) fn start(
        number: usize,
        (name, ranks): (&str, Range<u32>),
        template: &Template,
        sinks: &[Sink; 2],
        inbox: &Arc<Inbox>,
    ) -> Result<Self, crate::Failure> {
        let program = template
            .command(name)
            .map_err(|error| (error.exit_code(), format!("host {name}: --launch-agent: {error}")))?;
        let wrong = |error: io::Error| (126, format!("host {name}: cannot start its agent: {}", explain(&error)));
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| wrong(e.into()))?;
        let started = spawn::start(&program, &[], theirs.into(), Stdout::Pipe, None, None).map_err(wrong)?;
        let (orders, inlet) = mpsc::channel();
        let heard_at = Arc::new(Mutex::new(Instant::now()));
        let listener = Listener { number, sinks: sinks.clone(), inbox: inbox.clone(), heard_at: heard_at.clone() };
        let stdout = File::from(started.stdout);
        thread("agent", move || listener.listen(stdout)).map_err(wrong)?;
        thread("orders", move || carry(&inlet, File::from(ours))).map_err(wrong)?;
        let (stderr, sink, host) = (File::from(started.stderr), sinks[1].clone(), name.to_owned());
        let inbox = inbox.clone();
        thread("words", move || {
            pass_on(stderr, &host, &sink);
            inbox.push(number, Heard::WordsEnd);
        })
        .map_err(wrong)?;
        Ok(Self {
            name: name.to_owned(),
            ranks,
            pid: started.pid,
            orders,
            heard_at,
            clock: Clock::default(),
            has_greeted: false,
            over: None,
            stream_end: None,
            process_end: None,
            have_words_ended: false,
            is_lost: false,
        })
    }

    /// Sends a message; one to an agent that has ended goes nowhere.
    pub(super) fn tell(&self, message: &Message) {
        self.send(message.to_frame());
    }

    pub(super) fn send(&self, frame: Vec<u8>) {
        let _ = self.orders.send(frame);
    }

    /// A way to send frames from another thread.
    pub(super) fn inlet(&self) -> mpsc::Sender<Vec<u8>> {
        self.orders.clone()
    }

    pub(super) fn heard_at(&self) -> Instant {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it as heard of: nobody could listen meanwhile.
    pub(super) fn excuse(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether nothing more is awaited of it.
    pub(super) fn is_done(&self) -> bool {
        self.is_lost || (self.over.is_some() && self.stream_end.is_some())
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = std::thread::Builder::new().name(name.into()).stack_size(256 * 1024);
    builder.spawn(work).map(drop)
}

fn carry(orders: &mpsc::Receiver<Vec<u8>>, mut pipe: File) {
    while let Ok(frame) = orders.recv() {
        if pipe.write_all(&frame).is_err() {
            return;
        }
    }
}

/// Passes on what the launch agent itself says, a line at a time.
fn pass_on(stderr: File, host: &str, sink: &Sink) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while matches!(reader.by_ref().take(4096).read_until(b'\n', &mut line), Ok(1..)) {
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        if !text.is_empty() {
            sink.push(format!("mapwire: host {host}: {text}\n").as_bytes());
        }
        line.clear();
    }
}

struct Listener {
    number: usize,
    sinks: [Sink; 2],
    inbox: Arc<Inbox>,
    heard_at: Arc<Mutex<Instant>>,
}

impl Listener {
    fn listen(self, stdout: File) {
        let mut stdout = BufReader::new(stdout);
        let outcome = match greeting(&mut stdout) {
            Ok(Some(text)) => {
                self.inbox.push(self.number, Heard::Greeting(text));
                self.take_frames(&mut stdout)
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let why = outcome.err().map(|error| error.to_string());
        self.inbox.push(self.number, Heard::End(why));
    }

    fn take_frames(&self, stdout: &mut impl Read) -> io::Result<()> {
        let mut frames = Frames::default();
        while let Some((kind, body)) = frames.read(stdout)? {
            self.hear();
            match kind {
                STDOUT | STDERR => self.print(usize::from(kind == STDERR), &body),
                _ => self.inbox.push(self.number, Heard::Frame(kind, body)),
            }
        }
        Ok(())
    }

    fn hear(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Queues lines for the user; waits while the user does not read.
    fn print(&self, stream: usize, lines: &[u8]) {
        self.sinks[stream].push(lines);
        while self.sinks[stream].is_full() && !self.inbox.is_closed.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
            self.hear();
        }
    }
}

/// The rest of the first line that is a greeting; `None` if the output ends without.
fn greeting(stdout: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut banner = stdout.take(LONGEST_BANNER);
    let mut line = Vec::new();
    while banner.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if let Some(rest) = text.trim_end().strip_prefix(GREETING) {
            return Ok(Some(rest.to_owned()));
        }
        line.clear();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_found_behind_what_a_login_shell_prints() {
        let mut text: &[u8] = b"Welcome!\n\xff\nmapwire agent 1 0.1.0\nrest";
        assert_eq!(greeting(&mut text).unwrap().as_deref(), Some("1 0.1.0"));
        assert_eq!(text, b"rest");
        let mut endless = io::repeat(b'x');
        assert_eq!(greeting(&mut BufReader::new(&mut endless)).unwrap(), None);
    }
}
