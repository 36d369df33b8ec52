//! A descriptor for event loops.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};

use mapwire_driver::DriverError;
use mapwire_driver::engine::Engine;
use mapwire_driver::events::Events;

use crate::error::Result;
use crate::node::Node;

/// A descriptor that becomes readable when something has come for this process, for programs that sleep in `epoll`, `poll` or an
/// event loop built on them. Wait for it to be readable, and leave reading and writing to [`arm`](Self::arm).
///
/// For each sleep: [`arm`](Self::arm), look at everything that is waited for ([`Node::poll`], signals, requests), and sleep if there
/// is nothing. In this order nothing is missed. Between two armings the descriptor becomes readable once.
///
/// | what comes after the arming | makes it readable |
/// |---|---|
/// | a send, signal, fetch or notification by the ring; a request that ends; a rank that leaves or dies | at once |
/// | a send or signal on the direct path | at once |
/// | a store through [`Import::pointer`](crate::Import::pointer) | after half a second at most |
///
/// It may be readable though nothing has come: after what this process did itself, and up to five times a second while it is armed
/// and importers may have mapped memory of this process. It does not become readable while a [`Polling`](crate::Polling) lives, since
/// peers then leave everything to the thread that polls.
///
/// It does not keep this process in the job. When the process has left, the descriptor stays readable and `arm` fails.
#[derive(Debug)]
pub struct EventFd {
    events: Arc<Events>,
    engine: Weak<Engine>,
}

impl Node {
    /// Makes a descriptor for an event loop. Each loop needs one of its own.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn event_fd(&self) -> Result<EventFd> {
        let engine = self.engine();
        Ok(EventFd { events: engine.open_events()?, engine: Arc::downgrade(engine) })
    }
}

impl EventFd {
    /// Makes the descriptor not readable, and arms it: what comes from here on makes it readable. Look once more before you sleep:
    /// what came before is found by that look alone. Takes a few microseconds.
    ///
    /// # Errors
    /// This process has left the job; the descriptor is readable then.
    pub fn arm(&self) -> Result<()> {
        let engine = self.engine.upgrade().ok_or(DriverError::Left)?;
        Ok(engine.arm_events(&self.events)?)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.events.as_fd().as_raw_fd()
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.close_events(&self.events);
        }
    }
}
