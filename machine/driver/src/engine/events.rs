//! Descriptors for event loops: made, armed, and fired behind direct stores. [`events`](crate::events) says why none is missed.

use core::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use mapwire_host::barrier;
use mapwire_transport::fabric::{Doorbells, Fabric};

use super::Engine;
use crate::error::DriverError;
use crate::events::Events;

impl<F: Fabric> Engine<F> {
    /// Makes a descriptor, not armed yet.
    ///
    /// # Errors
    /// No descriptor left; this process has left the job, or is a forked child.
    pub fn open_events(&self) -> Result<Arc<Events>, DriverError> {
        self.check_here()?;
        let events = Arc::new(Events::new()?);
        self.has_events.store(true, Ordering::Relaxed);
        self.lock().outcomes().add_events(Arc::clone(&events));
        Ok(events)
    }

    /// The descriptor is needed no more.
    pub fn close_events(&self, events: &Arc<Events>) {
        if !self.is_here() {
            return;
        }
        self.lock().outcomes().remove_events(events);
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
                events.arm();
                driver.watch()
            };
            if asks {
                barrier::heavy();
            }
        }
        if events.is_closed() {
            events.make_readable();
            return Err(DriverError::Left);
        }
        Ok(())
    }

    /// For the service thread, before it sleeps and when it wakes: notices rings, and that it has slept long.
    #[inline]
    pub(super) fn notice_rings(&self, was_nap: bool) {
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
