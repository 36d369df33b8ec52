//! Services: those of the program, and those of the library such as the shared memory.

use std::sync::{Arc, Mutex};

use mapwire_host::memory::SharedBuffer;
use mapwire_host::waiting::now_ns;
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::RequestId;
use mapwire_vmmc::service::{Figures, Service};
use mapwire_wire::{Endpoint, ExportId, HandlerId, ImportId, NodeId, Rights};

use super::Driver;
use crate::error::DriverError;
use crate::host_bell::HostBell;
use crate::ids::PROCESS;
use crate::service_memory::ServiceMemory;

impl<F: Fabric> Driver<F> {
    /// Registers a service, with the memory that it shares with its peers, if it does. That is kept until the service is
    /// [taken away](Self::deregister_service).
    ///
    /// # Errors
    /// An id that the process has given already.
    pub fn register_service(
        &mut self,
        handler: HandlerId,
        mut service: Box<dyn Service>,
        memory: Option<ServiceMemory>,
    ) -> Result<(), DriverError> {
        // Word of those that go from here on comes through the node.
        for gone in self.paths.all().filter(|&rank| memory.is_some() && self.is_gone(rank)) {
            service.handle_peer_gone(now_ns(), gone);
        }
        self.local.node.register(PROCESS, handler, service)?;
        if let Some(memory) = memory {
            self.local.memories.set_of_service(handler, memory);
        }
        self.poll();
        Ok(())
    }

    /// Takes a service and its memory away.
    pub fn deregister_service(&mut self, handler: HandlerId) -> (Option<Box<dyn Service>>, Option<ServiceMemory>) {
        self.left_meeting.take_if(|(of, _)| *of == handler);
        let meetings = self.local.memories.of_service(handler).map(ServiceMemory::take_meetings);
        for request in meetings.into_iter().flatten() {
            self.abandon_import(request);
        }
        let memory = self.local.memories.take_of_service(&mut self.local.node, handler);
        let service = self.local.node.deregister(PROCESS, handler);
        if let Some(service) = &service {
            self.figures_before = self.figures_before + service.figures();
        }
        (service, memory)
    }

    /// What services have counted, those that are gone too.
    pub(crate) fn service_figures(&self) -> Figures {
        self.figures_before + self.local.node.figures(PROCESS)
    }

    #[inline]
    pub fn service_memory(&mut self, handler: HandlerId) -> Option<&mut ServiceMemory> {
        self.local.memories.of_service(handler)
    }

    /// Whether a service keeps others waiting for a moment.
    pub(crate) fn is_holding(&self) -> bool {
        self.local.node.is_holding(PROCESS)
    }

    /// Carries out what services ask for, and sends what came of it.
    #[inline]
    pub(crate) fn carry_out(&mut self) {
        if self.local.node.has_asks() && self.serve_services() {
            self.paths.transmit(&mut self.local);
            self.paths.ask_for_attention(&self.local.node);
        }
    }

    /// `from` imports an export; whether that is the memory of a service. Then it will be answered, and so is met while others still come.
    pub(super) fn hear(&mut self, export: ExportId, from: Endpoint) -> bool {
        let Some(handler) = self.local.memories.service_of(export) else { return false };
        if let Some(service) = self.local.node.service_mut(PROCESS, handler) {
            service.hear(Endpoint::first_of(from.node));
        }
        self.meet(handler, from.node);
        true
    }

    /// Imports the memory of a service from a peer, unless that is done or under way: the service sends nothing to the peer before, since
    /// whoever has imported its memory knows that it is there. The page-fault handler leaves it to others.
    pub fn meet(&mut self, handler: HandlerId, peer: NodeId) {
        if self.local.node.is_confined() {
            self.left_meeting = Some((handler, peer));
            self.local.node.leave_for_later();
            return;
        }
        let memory = self.local.memories.of_service(handler).filter(|_| peer != self.paths.me());
        let Some(name) = memory.and_then(|memory| memory.name_to_meet(peer)) else { return };
        let from = Endpoint::first_of(peer);
        // Whoever registers the service sees to it that this does not take too long.
        let asked = self.local.node.ask_import(now_ns(), PROCESS, from, name, Rights::ALL, None, u64::MAX);
        let asked = asked.map_err(|error| self.import_error(error));
        if let Some(memory) = self.local.memories.of_service(handler) {
            memory.begin_meeting(peer, asked);
        }
    }

    /// Ends a meeting if its import is complete: messages go to the peer from here on.
    pub(super) fn end_meeting(&mut self, request: RequestId) {
        let mut all = self.local.memories.of_services();
        let meeting = all.find_map(|(handler, memory)| Some((handler, memory.meeting(request)?)));
        drop(all);
        let Some((handler, peer)) = meeting else { return };
        let Some(outcome) = self.take_import(request) else { return };
        let is_gone = self.is_gone(peer);
        if let Some(memory) = self.local.memories.of_service(handler) {
            memory.end_meeting(request, peer, outcome, is_gone);
        }
        if let Some(service) = self.local.node.service_mut(PROCESS, handler) {
            service.handle_met(Endpoint::first_of(peer));
        }
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
