//! Descriptors that become readable when something has come for this process: for programs that sleep in `epoll` and its like.
//!
//! A descriptor is *armed* once for each sleep, then the program looks at what it waits for, and only then sleeps. What came before
//! the arming is found by that look. What comes after it makes the descriptor readable:
//!
//! * Packets and the broker's news. Whoever runs a turn of the duty cycle that did something writes to the descriptors that are
//!   armed (`Driver::fire_events`). Arming and turns exclude each other by the driver's lock, so that a turn either is over when the
//!   program looks, or finds the descriptor armed. Packets that nobody serves ring the service thread, as ever. Handlers of
//!   notifications run behind their turn: whoever runs one writes once more after it.
//! * Direct stores. Arming marks the status of every export that importers have mapped ([`SharedBuffer::set_watched`]), also of those
//!   to come, and makes the fence for both sides ([`barrier::heavy`]): an importer that stores later sees the mark, and rings the
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
use std::sync::{Arc, PoisonError};

use mapwire_host::barrier;
use mapwire_host::descriptors::above_stdio;
use mapwire_transport::fabric::{Doorbells, Fabric};
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::Driver;
use crate::engine::Engine;
use crate::error::DriverError;
use crate::exports::DirectMemory;

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

    #[cfg(test)]
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Makes the descriptor readable if it is armed. Whether it was. May be called from a signal handler.
    fn fire(&self) -> bool {
        let was_armed = self.armed.swap(false, Ordering::SeqCst);
        if was_armed {
            self.make_readable();
        }
        was_armed
    }

    fn make_readable(&self) {
        // It fails when the count is at its end; the descriptor is readable then.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        // It fails when there is nothing to read.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.make_readable();
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<F: Fabric> Driver<F> {
    /// Makes all armed descriptors readable. Whether there were any.
    pub(crate) fn fire_events(&self) -> bool {
        let fired = |any, events: &Arc<Events>| events.fire() | any;
        self.events.iter().fold(false, fired)
    }

    /// The service thread was rung, or has slept long: importers may have stored to memory that they have mapped.
    fn handle_ring(&mut self, rung: bool) {
        if !self.watching || !rung && self.watched_buffers().next().is_none() {
            return;
        }
        if !self.fire_events() && rung {
            self.set_watching(false);
        }
    }

    /// Has importers ring after each direct store from here on, or no longer. Whether an importer is asked that was not before.
    fn set_watching(&mut self, on: bool) -> bool {
        self.watching = on;
        let mut any = false;
        for buffer in self.watched_buffers() {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            any |= buffer.set_watched(on) && on;
        }
        any
    }

    /// The buffers that importers may have mapped.
    fn watched_buffers(&self) -> impl Iterator<Item = &std::sync::Mutex<mapwire_host::memory::SharedBuffer>> {
        self.exports.iter().filter_map(|local| match local.direct() {
            Some(DirectMemory::Buffer(buffer)) => Some(&**buffer),
            _ => None,
        })
    }
}

impl<F: Fabric> Engine<F> {
    /// Makes a descriptor, not armed yet.
    ///
    /// # Errors
    /// No descriptor left; this process has left the job, or is a forked child.
    pub fn open_events(&self) -> Result<Arc<Events>, DriverError> {
        self.check_here()?;
        let events = Arc::new(Events::new()?);
        self.has_events.store(true, Ordering::Relaxed);
        self.lock().events.push(Arc::clone(&events));
        Ok(events)
    }

    /// The descriptor is needed no more.
    pub fn close_events(&self, events: &Arc<Events>) {
        if !self.is_here() {
            return;
        }
        self.lock().events.retain(|other| !Arc::ptr_eq(other, events));
    }

    /// Makes the descriptor not readable, and arms it: what comes from here on makes it readable again. Look once more after this.
    ///
    /// # Errors
    /// [`DriverError::Left`]: the descriptor stays readable. [`DriverError::Forked`].
    pub fn arm_events(&self, events: &Events) -> Result<(), DriverError> {
        self.check_here()?;
        {
            // One at a time: who finds the importers asked relies on the fence behind that.
            let _alone = self.arming.lock().unwrap_or_else(PoisonError::into_inner);
            events.clear();
            let asks = {
                let mut driver = self.lock();
                events.armed.swap(true, Ordering::SeqCst);
                driver.set_watching(true)
            };
            if asks {
                barrier::heavy();
            }
        }
        if events.closed.load(Ordering::SeqCst) {
            events.make_readable();
            return Err(DriverError::Left);
        }
        Ok(())
    }

    /// Ends all descriptors: this process has left.
    pub(crate) fn end_events(&self) {
        let ended = core::mem::take(&mut self.lock().events);
        ended.iter().for_each(|events| events.close());
    }

    /// For the service thread, before it sleeps and when it wakes: notices rings, and that it has slept long.
    #[inline]
    pub(crate) fn notice_rings(&self, was_nap: bool) {
        if !self.has_events.load(Ordering::Relaxed) {
            return;
        }
        let rings = self.bells.service_rings();
        let rung = self.seen_rings.swap(rings, Ordering::Relaxed) != rings;
        if rung || was_nap {
            self.lock().handle_ring(rung);
        }
    }
}
