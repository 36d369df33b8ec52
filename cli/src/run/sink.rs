//! Writes to the user's stdout or stderr, or to a pipe, from a thread of its own, so that a reader who pauses
//! (a pager, Ctrl-S) never stops the loop that must serve ranks and signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::hosts::frames_of;

/// With more than this waiting, the ranks' pipes are left unread, so that ranks wait for the reader.
const FULL: usize = 1 << 20;

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    writing: bool,
    /// Nothing more comes.
    is_closed: bool,
    lost: Option<Errno>,
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    /// Readable after each write: there is room, or nothing waits, or the reader has gone.
    written: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent between any two statements.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Closer(Arc<Shared>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.more.notify_one();
    }
}

/// One output stream. Clones write to the same.
#[derive(Clone)]
pub(super) struct Sink {
    shared: Arc<Shared>,
    _closer: Arc<Closer>,
    frame: Option<u8>,
}

impl Sink {
    /// Starts the writer of `target`, which is dropped when all is written and the sink has gone.
    pub(super) fn start(target: impl AsFd + Send + 'static) -> io::Result<Self> {
        let written = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Mutex::new(Queue::default());
        let shared = Arc::new(Shared { queue, more: Condvar::new(), written });
        let writers = shared.clone();
        std::thread::Builder::new()
            .name("output".into())
            .stack_size(128 * 1024)
            .spawn(move || write_forever(&writers, target.as_fd()))?;
        let _closer = Arc::new(Closer(shared.clone()));
        Ok(Self { shared, _closer, frame: None })
    }

    /// The same stream, for bytes that become frames of this kind.
    pub(super) fn framed(&self, kind: u8) -> Self {
        Self { frame: Some(kind), ..self.clone() }
    }

    /// Queues bytes; never blocks.
    pub(super) fn push(&self, bytes: &[u8]) {
        if let Some(kind) = self.frame {
            let frames = frames_of(kind, bytes);
            return self.append(&frames);
        }
        self.append(bytes);
    }

    fn append(&self, bytes: &[u8]) {
        let mut queue = self.shared.lock();
        if queue.lost.is_none() && !bytes.is_empty() {
            queue.bytes.extend_from_slice(bytes);
            self.shared.more.notify_one();
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.shared.lock().bytes.len() >= FULL
    }

    pub(super) fn is_empty(&self) -> bool {
        let queue = self.shared.lock();
        queue.lost.is_some() || (queue.bytes.is_empty() && !queue.writing)
    }

    /// Why nothing more can be written: `EPIPE` when the reader has gone, `ENOSPC` on a full disk.
    pub(super) fn lost(&self) -> Option<Errno> {
        self.shared.lock().lost
    }

    /// Takes note of the event that the descriptor told.
    pub(super) fn clear_event(&self) {
        let _ = rustix::io::read(&self.shared.written, &mut [0; 8]);
    }
}

/// Why the ranks' output is lost, and the exit code of the job.
pub(super) fn lost_output(errno: Errno) -> (String, u8) {
    match errno {
        Errno::PIPE => ("nobody reads the output any more".to_owned(), 128 + libc::SIGPIPE as u8),
        _ => (format!("cannot write the ranks' output: {errno}"), 1),
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.written.as_fd()
    }
}

fn write_forever(shared: &Shared, target: BorrowedFd<'_>) {
    loop {
        let mut queue = shared.lock();
        while queue.bytes.is_empty() {
            if queue.is_closed {
                return;
            }
            queue = shared.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = std::mem::take(&mut queue.bytes);
        queue.writing = true;
        drop(queue);
        let outcome = write_all(target, &bytes);
        let mut queue = shared.lock();
        queue.writing = false;
        queue.lost = outcome.err();
        // Of a reader that has gone, what waits is of no use.
        if queue.lost.is_some() {
            queue.bytes.clear();
        }
        drop(queue);
        let _ = rustix::io::write(&shared.written, &1_u64.to_ne_bytes());
        if outcome.is_err() {
            return;
        }
    }
}

fn write_all(target: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Somebody made the user's stdout non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(target, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
