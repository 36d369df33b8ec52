//! Services of a program's own: protocols between ranks that run where packets are taken, not where a thread waits for them.

use core::time::Duration;

use mapwire_driver::DriverError;
/// What a [`Service`] is made of.
pub use mapwire_service::{Access, Action, Broken, Region, Service};
pub use mapwire_wire::{Endpoint, HandlerId, NodeId};

use crate::error::Result;
use crate::node::Node;

/// The process that is rank `rank`.
#[must_use]
pub const fn endpoint(rank: u16) -> Endpoint {
    Endpoint::first_of(NodeId(rank))
}

impl Node {
    /// Registers a service under `handler`, an id from 16 to 255. Messages of services under the same id of other ranks go to it from
    /// here on, whichever thread takes them; it must not call this crate, and must not take long.
    ///
    /// # Errors
    /// An id outside that range, or that this process has given already.
    pub fn register_service(&self, handler: HandlerId, service: impl Service) -> Result<()> {
        let mut driver = self.inner.engine.lock();
        Ok(driver.register_service(handler, Box::new(service))?)
    }

    /// Takes a service away; messages that come for it from here on are dropped. `None` when there is none.
    pub fn deregister_service(&self, handler: HandlerId) -> Option<Box<dyn Service>> {
        self.inner.engine.lock().deregister_service(handler)
    }

    /// Calls a service, and sends what it asks for.
    ///
    /// # Errors
    /// No service of type `T` under this id.
    pub fn call_service<T: Service, R>(
        &self,
        handler: HandlerId,
        call: impl FnOnce(&mut T) -> R,
    ) -> Result<R> {
        let mut driver = self.inner.engine.lock();
        let called = driver.call_service(handler, call);
        Ok(called.ok_or(DriverError::NoService(handler))?)
    }

    /// Waits until `check` finds something in a service, for `timeout` at most.
    ///
    /// # Errors
    /// No service of type `T` under this id. [`DriverError::Timeout`] when the time is over.
    pub fn wait_for_service<T: Service, R>(
        &self,
        handler: HandlerId,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut T) -> Option<R>,
    ) -> Result<R> {
        let engine = &self.inner.engine;
        let what = || format!("what the service under {handler} waits for");
        let found = engine.wait_for(timeout, what, |driver| {
            match driver.call_service(handler, &mut check) {
                None => Some(Err(DriverError::NoService(handler))),
                Some(found) => found.map(Ok),
            }
        })?;
        Ok(found?)
    }
}
