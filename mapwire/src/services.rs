//! Services of a program's own: protocols between ranks that run where packets are taken, not where a thread waits for them.

use core::time::Duration;

use std::sync::Arc;

use mapwire_driver::DriverError;
use mapwire_driver::service_memory::{PeerMemory, ServiceMemory};
/// What a [`Service`] is made of.
pub use mapwire_vmmc::service::{Access, Action, Broken, Region, Service};
pub use mapwire_wire::{Endpoint, HandlerId, NodeId};

use mapwire_vmmc::Importers;
use mapwire_wire::{ExportId, Rights};

use crate::buffer::Buffer;
use crate::error::Result;
use crate::node::Node;

/// The first handler id of services of programs: the library has those below.
const FIRST_HANDLER: u32 = 16;

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
        self.register(handler, Box::new(service), None)
    }

    fn register(&self, handler: HandlerId, service: Box<dyn Service>, memory: Option<ServiceMemory>) -> Result<()> {
        self.check_process()?;
        if handler.0 < FIRST_HANDLER {
            return Err(DriverError::from(mapwire_node::RegisterError::Reserved(handler)).into());
        }
        Ok(self.engine().lock().register_service(handler, service, memory)?)
    }

    /// Registers a service with memory: the [`Region`]s of its [`Action::Store`] lie in `buffer`, and `at` counts in the buffer that the
    /// receiver has given. Buffers may differ in length; who stores beyond the end of one finds the store lost. All ranks of the job call it, and it
    /// comes back when all have. What it gives keeps the memory offered; the service stays until it is
    /// [deregistered](Self::deregister_service), which comes first.
    ///
    /// # Errors
    /// As [`register_service`](Self::register_service); a rank does not come.
    pub fn register_service_with_memory(
        &self,
        handler: HandlerId,
        service: impl Service,
        buffer: &Buffer,
    ) -> Result<ServiceBuffer> {
        self.check_process()?;
        let engine = self.engine();
        let name = format!("mapwire.service.{}", handler.0);
        let export = buffer.offer(engine, name.clone(), Importers::Job)?;
        let mut offered = ServiceBuffer { node: self.clone(), export, peers: Arc::new(PeerMemory::new(engine.size())) };
        offered.import_all(&name)?;
        let memory = ServiceMemory::new(Arc::clone(buffer.memory()), Arc::clone(&offered.peers));
        self.register(handler, Box::new(service), Some(memory))?;
        // What a service sends before its peer is there would be dropped.
        self.barrier()?;
        Ok(offered)
    }

    /// Takes a service away; messages that come for it from here on are dropped. `None` when there is none.
    pub fn deregister_service(&self, handler: HandlerId) -> Option<Box<dyn Service>> {
        self.check_process().ok().filter(|()| handler.0 >= FIRST_HANDLER)?;
        self.engine().lock().deregister_service(handler).0
    }

    /// Calls a service, and sends what it asks for.
    ///
    /// # Errors
    /// No service of type `T` under this id.
    pub fn call_service<T: Service, R>(&self, handler: HandlerId, call: impl FnOnce(&mut T) -> R) -> Result<R> {
        self.check_process()?;
        let mut driver = self.engine().lock();
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
        let engine = self.engine();
        let what = || format!("what the service under {handler} waits for");
        let found = engine.wait_for(timeout, what, |driver| match driver.call_service(handler, &mut check) {
            None => Some(Err(DriverError::NoService(handler))),
            Some(found) => found.map(Ok),
        })?;
        Ok(found?)
    }
}

/// Memory of a service that is offered to other ranks, until this is dropped.
#[derive(Debug)]
pub struct ServiceBuffer {
    node: Node,
    export: ExportId,
    peers: Arc<PeerMemory>,
}

impl ServiceBuffer {
    /// Imports what all other ranks offer under `name`.
    fn import_all(&mut self, name: &str) -> Result<()> {
        let engine = self.node.engine();
        let timeout = engine.timeout();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut requests = Vec::new();
        for rank in (0..engine.size()).filter(|&rank| rank != engine.rank()) {
            let peer = NodeId(rank as u16);
            requests.push((peer, engine.lock().ask_import(peer, name, Rights::ALL, None, timeout_ns)?));
        }
        for (peer, request) in requests {
            let late = || format!("rank {} has not registered its service", peer.0);
            let local = engine.wait_for(Some(timeout), late, |driver| driver.take_import(request))??;
            // Nobody else has it yet.
            if let Some(peers) = Arc::get_mut(&mut self.peers) {
                peers.set(peer, local);
            }
        }
        Ok(())
    }

    /// Copies bytes from offset `at` of the buffer that rank `from` has given, without a word to it. It may change them meanwhile: they
    /// are what a checksum says, or nothing. False where that memory is not mapped here: rank `from` is on another host.
    #[must_use]
    pub fn load(&self, from: u16, at: usize, to: &mut [u8]) -> bool {
        self.node.check_process().is_ok() && self.peers.load(NodeId(from), at, to)
    }
}

impl Drop for ServiceBuffer {
    fn drop(&mut self) {
        if self.node.check_process().is_err() {
            return;
        }
        let mut driver = self.node.engine().lock();
        let _ = driver.unexport(self.export);
        for (id, grant) in self.peers.imports() {
            driver.release_import(id, &grant);
        }
    }
}
