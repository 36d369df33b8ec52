//! Threads that serve other threads' faults.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use mapwire_host::descriptors::above_stdio;
use mapwire_host::memory::Errno;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno as Os;

use crate::core::Core;
use crate::error::PagerError;
use crate::faults::follow::Follower;
use crate::faults::uffd::{self, EVENTS, Event};
use crate::frames::Frames;

/// Threads that serve faults until this is dropped.
#[derive(Debug)]
pub(crate) struct Handlers {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self, PagerError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .and_then(above_stdio)
            .map_err(|errno| PagerError::system("eventfd", 0, 0, errno))?;
        let count = core.config.threads;
        let mut handlers = Self { stop: Arc::new(stop), threads: Vec::with_capacity(count) };
        let (ready, starts) = std::sync::mpsc::channel();
        for _ in 0..count {
            let (core, stop) = (Arc::clone(core), Arc::clone(&handlers.stop));
            let buffer = Frames::new(core.config.window_pages())?;
            let ready = ready.clone();
            let thread = std::thread::Builder::new()
                .name("mapwire-pager".into())
                .spawn(move || {
                    // A handler of the program that touches a region here would wait for this thread.
                    mapwire_host::masking::mask_for_good();
                    mapwire_host::scheduling::ask_for_short_turns();
                    let _ = ready.send(());
                    drop(ready);
                    serve_until_stopped(&core, &buffer, &stop);
                })
                .map_err(|error| PagerError::Thread { errno: error.into() })?;
            handlers.threads.push(thread);
        }
        // What a thread allocates at its start may come from a region, once there is one. It would then wait for itself.
        for _ in 0..count {
            let _ = starts.recv();
        }
        Ok(handlers)
    }

    /// The event that tells the threads to stop.
    pub(crate) fn stop(&self) -> &OwnedFd {
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

fn serve_until_stopped(core: &Core, buffer: &Frames, stop: &OwnedFd) {
    let mut events = [Event::default(); EVENTS];
    let mut follower = Follower::new();
    loop {
        match uffd::read_events(&core.uffd, &mut events) {
            Ok(count) => {
                for event in &events[..count] {
                    follower.fault(event.thread);
                    core.serve_fault(*event, buffer);
                }
            }
            Err(Os::AGAIN | Os::INTR) => {
                let mut fds = [&core.uffd, stop].map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
                let _ = poll(&mut fds, None);
                if !fds[1].revents().is_empty() {
                    return;
                }
            }
            Err(errno) => {
                mapwire_host::stderr::say_in_handler(format_args!(
                    "far memory: page faults are no longer served: {}",
                    Errno::from(errno)
                ));
                return;
            }
        }
    }
}
