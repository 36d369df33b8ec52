//! Threads that serve other threads' faults.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::core::Core;
use super::error::PagerError;
use super::follow::Follower;
use super::serve::Served;
use crate::descriptors::above_stdio;
use crate::faults::uffd_paging::{self, EVENTS, Event};
use crate::page::PAGE_BYTES;

/// A server of page faults.
pub(super) trait Serves: Send + Sync + 'static {
    /// The userfaultfd that reports them.
    fn uffd(&self) -> &OwnedFd;

    /// Serves one fault. `may_wait` on the thread that faulted, which can wait for the work of others. Returns whether that thread should
    /// retry, now or once it is woken.
    fn serve(&self, event: Event, may_wait: bool) -> bool;
}

impl Serves for Core {
    fn uffd(&self) -> &OwnedFd {
        &self.uffd
    }

    fn serve(&self, event: Event, may_wait: bool) -> bool {
        let served = self.serve_fault(event, may_wait);
        if served == Served::Refused {
            // It retries, and meets what is there now: poison, or no memory.
            self.wake(event.address & !(PAGE_BYTES - 1), PAGE_BYTES);
        }
        served != Served::Refused
    }
}

/// Threads that serve faults until this is dropped.
#[derive(Debug)]
pub(super) struct Handlers {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    pub(super) fn start(server: &Arc<impl Serves>, threads: usize) -> Result<Self, PagerError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .and_then(above_stdio)
            .map_err(|errno| PagerError::system("eventfd", 0, 0, errno))?;
        let mut handlers = Self { stop: Arc::new(stop), threads: Vec::with_capacity(threads) };
        let (ready, starts) = std::sync::mpsc::channel();
        for _ in 0..threads {
            let (server, stop) = (Arc::clone(server), Arc::clone(&handlers.stop));
            let ready = ready.clone();
            let thread = std::thread::Builder::new()
                .name("mapwire-pager".into())
                .spawn(move || {
                    // A handler of the program that touches a region here would wait for this thread.
                    crate::masking::mask_for_good();
                    crate::scheduling::ask_for_short_turns();
                    let _ = ready.send(());
                    drop(ready);
                    serve_until_stopped(&*server, &stop);
                })
                .map_err(|error| PagerError::Thread { errno: error.into() })?;
            handlers.threads.push(thread);
        }
        // What a thread allocates at its start may come from a region, once there is one. It would then wait for itself.
        for _ in 0..threads {
            let _ = starts.recv();
        }
        Ok(handlers)
    }
}

impl Handlers {
    /// The event that tells the threads to stop.
    pub(super) fn stop(&self) -> &OwnedFd {
        &self.stop
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Stays readable, for all threads to see.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve_until_stopped(server: &impl Serves, stop: &OwnedFd) {
    let mut events = [Event::default(); EVENTS];
    let mut follower = Follower::new();
    loop {
        match uffd_paging::read_events(server.uffd(), &mut events) {
            Ok(count) => {
                for event in &events[..count] {
                    follower.fault(event.thread);
                    server.serve(*event, false);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                let mut fds = [
                    PollFd::from_borrowed_fd(server.uffd().as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
                ];
                let _ = poll(&mut fds, None);
                if !fds[1].revents().is_empty() {
                    return;
                }
            }
            Err(errno) => {
                crate::saying::say_in_handler(format_args!(
                    "far memory: page faults are no longer served: {}",
                    crate::errno::Errno(errno)
                ));
                return;
            }
        }
    }
}
