//! Services of the program.

use std::sync::{Arc, Mutex};

use mapwire_host::memory::SharedBuffer;
use mapwire_host::waiting::now_ns;
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::service::Service;
use mapwire_wire::{HandlerId, ImportId, NodeId};

use super::Driver;
use crate::error::DriverError;
use crate::host_bell::HostBell;
use crate::ids::{FIRST_FREE_HANDLER, PROCESS};
use crate::service_memory::ServiceMemory;

impl<F: Fabric> Driver<F> {
    /// Registers a service of the program.
    ///
    /// # Errors
    /// An id that the library keeps for itself, or that the process has given already.
    pub fn register_service(&mut self, handler: HandlerId, service: Box<dyn Service>) -> Result<(), DriverError> {
        if handler.0 < FIRST_FREE_HANDLER {
            return Err(mapwire_node::RegisterError::Reserved(handler).into());
        }
        self.local.node.register(PROCESS, handler, service)?;
        self.poll();
        Ok(())
    }

    /// Takes a service of the program away.
    pub fn deregister_service(&mut self, handler: HandlerId) -> Option<Box<dyn Service>> {
        if handler.0 < FIRST_FREE_HANDLER {
            return None;
        }
        self.local.memories.take_of_service(&mut self.local.node, handler);
        self.local.node.deregister(PROCESS, handler)
    }

    /// Goes up whenever a service of the program is called, comes or goes. While it stands still, all are as they were.
    #[inline]
    #[must_use]
    pub fn service_calls(&self) -> u64 {
        self.local.node.service_calls(PROCESS)
    }

    /// Calls a service of the program, and sends what it asks for; `None` when there is none of this type under the id.
    #[inline]
    pub fn call_service<T: Service, R>(&mut self, handler: HandlerId, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        let done = self.ask_service(handler, call)?;
        if self.local.node.has_asks() {
            self.send_out();
            self.local.outcomes.fire_events();
            self.paths.ring_due();
        }
        Some(done)
    }

    /// As [`call_service`](Self::call_service), and leaves what the service asks for to the next turn: for a thread that waits next.
    #[inline]
    pub fn ask_service<T: Service, R>(&mut self, handler: HandlerId, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.local.node.call(PROCESS, handler, call)
    }

    /// Has messages that run on the host wait for whoever is told by `bell`, and calls [`serve_host`](Self::serve_host).
    pub fn set_host_bell(&mut self, bell: Option<Arc<HostBell>>) {
        self.local.outcomes.set_host_bell(bell);
    }

    /// Messages wait for the host: tells it once.
    #[cold]
    pub(super) fn call_host(&mut self) {
        if self.local.node.has_too_much_host_work(PROCESS) || !self.local.outcomes.ring_host() {
            while self.local.node.serve_on_host(now_ns(), PROCESS) {}
        }
    }

    /// Gives messages that wait for a thread of the host to their services, and sends what these ask for. Whether there were any.
    pub fn serve_host(&mut self) -> bool {
        self.local.outcomes.answer_host();
        let mut worked = false;
        while self.local.node.serve_on_host(now_ns(), PROCESS) {
            worked = true;
        }
        if self.local.node.has_asks() {
            self.poll();
        }
        worked
    }

    /// Gives tables of services so many bytes of NIC memory, in place of those that they had.
    ///
    /// # Errors
    /// The NIC has not as much left; they keep what they had.
    pub fn set_service_bytes(&mut self, bytes: usize) -> Result<(), DriverError> {
        Ok(self.local.node.set_service_bytes(bytes)?)
    }

    /// Gives a service of the program its memory, which it keeps until it is [taken away](Self::deregister_service).
    pub fn set_service_memory(&mut self, handler: HandlerId, memory: ServiceMemory) {
        self.local.memories.set_of_service(handler, memory);
    }

    /// Gives a service memory for one peer, or takes it away: what lies in it is stored into the peer's memory `import` by the NIC. Memory
    /// that is taken away is kept until the NIC is done with it.
    pub fn set_pair_memory(
        &mut self,
        handler: HandlerId,
        peer: NodeId,
        memory: Option<(Arc<Mutex<SharedBuffer>>, ImportId)>,
    ) {
        self.local.memories.set_pair(&self.local.node, handler, peer, memory);
    }

    /// Whether the NIC may still read memory of services, the shared memory among them.
    #[must_use]
    pub fn is_storing_for_services(&self) -> bool {
        self.local.node.is_storing(PROCESS)
    }
}
