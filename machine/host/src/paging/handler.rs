//! Threads that serve the faults of others.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::core::Core;
use super::error::PagerError;
use super::serve::Served;
use crate::descriptors::above_stdio;
use crate::faults::uffd_paging::{self, EVENTS, Event};
use crate::page::PAGE_BYTES;

/// Threads that serve faults until this is dropped.
#[derive(Debug)]
pub(super) struct Handlers {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    pub(super) fn start(core: &Arc<Core>, threads: usize) -> Result<Self, PagerError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .and_then(above_stdio)
            .map_err(|errno| PagerError::system("eventfd", 0, 0, errno))?;
        let mut handlers = Self {
            stop: Arc::new(stop),
            threads: Vec::with_capacity(threads),
        };
        for _ in 0..threads {
            let (core, stop) = (Arc::clone(core), Arc::clone(&handlers.stop));
            let thread = std::thread::Builder::new()
                .name("mapwire-pager".into())
                .spawn(move || {
                    // A handler of the program that touches a region here would wait for this thread.
                    crate::masking::mask_for_good();
                    serve_until_stopped(&core, &stop);
                })
                .map_err(|error| PagerError::Thread {
                    errno: error.into(),
                })?;
            handlers.threads.push(thread);
        }
        Ok(handlers)
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

fn serve_until_stopped(core: &Core, stop: &OwnedFd) {
    let mut events = [Event::default(); EVENTS];
    loop {
        match uffd_paging::read_events(&core.uffd, &mut events) {
            Ok(count) => {
                for event in &events[..count] {
                    serve(core, *event);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                let mut fds = [
                    PollFd::from_borrowed_fd(core.uffd.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
                ];
                let _ = poll(&mut fds, None);
                if !fds[1].revents().is_empty() {
                    return;
                }
            }
            Err(errno) => {
                super::complaint::complain(format_args!(
                    "far memory: page faults are no longer served: {}",
                    crate::errno::Errno(errno)
                ));
                return;
            }
        }
    }
}

fn serve(core: &Core, event: Event) {
    if core.serve(event.address, event.write, false) == Served::Refused {
        // It tries again, and meets what is there now: poison, or no memory.
        core.wake(event.address & !(PAGE_BYTES - 1), PAGE_BYTES);
    }
}
