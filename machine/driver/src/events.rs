//! Descriptors that become readable when something has come for this process: for programs that sleep in `epoll` and its like.
//!
//! A descriptor is *armed* once for each sleep, then the program looks at what it waits for, and only then sleeps. What came before
//! the arming is found by that look. What comes after it makes the descriptor readable:
//!
//! * Packets and the broker's news. Whoever runs a turn of the duty cycle that did something writes to the descriptors that are
//!   armed (`Outcomes::fire_events`). Arming and turns exclude each other by the driver's lock, so that a turn either is over when the
//!   program looks, or finds the descriptor armed. Packets that nobody serves ring the service thread, as ever. Handlers of
//!   notifications run behind their turn: whoever runs one writes once more after it.
//! * Direct stores. Arming marks the status of every export that importers have mapped ([`SharedBuffer::set_watched`]), also of those
//!   to come, and makes the fence for both sides ([`heavy`](mapwire_host::barrier::heavy)): an importer that stores later sees the mark, and rings the
//!   service thread's bell behind its store. That thread keeps the number of rings that it has seen, so that none is missed while it
//!   runs, and writes to the descriptors that are armed. If none is, the program has not armed since: its next arming follows that
//!   look at `armed`, which follows the store. The marks are then taken off, so that importers ring no more than once in vain.
//!
//! A store by a mere pointer rings nobody, and a hostile rank can hide a ring. So the service thread also writes after each nap
//! ([`NAP`](mapwire_transport::board::NAP)) while importers may have mapped memory.
//!
//! Nothing of this is done before the first descriptor is made.
//!
//! [`SharedBuffer::set_watched`]: mapwire_host::memory::SharedBuffer::set_watched

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mapwire_host::descriptors::above_stdio;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::DriverError;

/// One such descriptor.
#[derive(Debug)]
pub struct Events {
    fd: OwnedFd,
    armed: AtomicBool,
    /// This process has left the job: the descriptor stays readable.
    closed: AtomicBool,
}

impl Events {
    pub(crate) fn new() -> Result<Self, DriverError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).and_then(above_stdio).map_err(|errno| DriverError::EventFd(errno.into()))?;
        Ok(Self { fd, armed: AtomicBool::new(false), closed: AtomicBool::new(false) })
    }

    /// Has the next [`fire`](Self::fire) make the descriptor readable.
    pub(crate) fn arm(&self) {
        self.armed.swap(true, Ordering::SeqCst);
    }

    /// Makes the descriptor readable if it is armed. Whether it was. May be called from a signal handler.
    pub(crate) fn fire(&self) -> bool {
        let was_armed = self.armed.swap(false, Ordering::SeqCst);
        if was_armed {
            self.make_readable();
        }
        was_armed
    }

    pub(crate) fn make_readable(&self) {
        // It fails when the count is at its end; the descriptor is readable then.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // It fails when there is nothing to read.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.make_readable();
    }

    /// Whether this process has left the job.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
