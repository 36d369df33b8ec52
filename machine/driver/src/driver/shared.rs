//! The shared memory: the model, which is a service of the node, and this computer's port to it.

use mapwire_dsm::{Dsm, Outcome, Protection};
use mapwire_host::faults::Access;
use mapwire_host::waiting::now_ns;
use mapwire_node::{SharedEnd, SharedMemory};
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::RequestId;
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId, Rights, TraceOp};

use super::Driver;
use crate::breach::Breach;
use crate::error::SharedError;
use crate::ids::{PROCESS, SHARED_HANDLER};
use crate::shared::SharedPort;

impl<F: Fabric> Driver<F> {
    /// The views of the shared memory, while it is open.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedPort> {
        self.shared.as_deref()
    }

    /// The model of the shared memory, while it is open.
    #[inline]
    #[must_use]
    pub fn shared_memory(&self) -> Option<&SharedMemory> {
        self.local.node.service(PROCESS, SHARED_HANDLER)
    }

    #[inline]
    pub(crate) fn call_shared<T>(&mut self, call: impl FnOnce(&mut SharedMemory) -> T) -> Option<T> {
        self.local.node.call(PROCESS, SHARED_HANDLER, call)
    }

    /// What the shared memories of this process did so far, also those that are closed.
    pub(crate) fn all_shared_counters(&self) -> mapwire_dsm::Counters {
        self.shared_before + self.shared_counters()
    }

    /// What the shared memory did so far; nothing when it is not open.
    #[must_use]
    pub fn shared_counters(&self) -> mapwire_dsm::Counters {
        self.shared_memory().map_or_else(Default::default, |memory| memory.dsm().counters())
    }

    /// Whether a service lets a thread finish an access for a moment more.
    pub(crate) fn is_holding(&self) -> bool {
        self.shared_memory().is_some_and(|memory| memory.dsm().poll_hold().is_some())
    }

    /// Carries out what the shared memory asks for, and sends what came of it.
    #[inline]
    pub(crate) fn serve_shared(&mut self) {
        if self.local.node.has_asks() && self.serve_services() {
            self.transmit();
            self.paths.ask_for_attention(&self.local.node);
        }
    }

    /// Puts the shared memory in place.
    pub(crate) fn open_shared(&mut self, dsm: Dsm, mut port: SharedPort) -> Result<(), SharedError> {
        let mut memory = Box::new(SharedMemory::new(dsm, 1).with_meetings());
        // Word of those that go from here on comes through the node.
        if let Some(gone) = self.paths.all().find(|&rank| self.is_gone(rank)) {
            memory.handle_peer_gone(now_ns(), gone);
        }
        self.local.node.register(PROCESS, SHARED_HANDLER, memory)?;
        if let Some(memory) = port.take_memory() {
            self.local.memories.set_of_service(SHARED_HANDLER, memory);
        }
        self.shared = Some(Box::new(port));
        Ok(())
    }

    /// `from` imports the shared memory's segment: its messages are of this opening from here on. It will be answered, so it is met while
    /// others still come.
    pub(super) fn hear(&mut self, from: Endpoint) {
        let _ = self.call_shared(|memory| memory.hear(Endpoint::first_of(from.node)));
        self.meet_sharer(from.node);
    }

    /// Imports the privileged view of a peer, unless that is done or under way: the shared memory sends nothing to the peer before, since
    /// whoever has imported its view knows that it has opened the memory. The page-fault handler leaves it to others.
    pub fn meet_sharer(&mut self, peer: NodeId) {
        if self.local.node.is_confined() {
            self.left_meeting = Some(peer);
            self.local.node.leave_for_later();
            return;
        }
        let Some(port) = self.shared.as_ref().filter(|port| peer != self.paths.me() && !port.knows(peer)) else {
            return;
        };
        let from = Endpoint::first_of(peer);
        // Whoever opens the memory sees to it that this does not take too long.
        let (now_ns, forever) = (now_ns(), u64::MAX);
        let asked = (self.local.node).ask_import(now_ns, PROCESS, from, port.name(), Rights::ALL, None, forever);
        let asked = asked.map_err(|error| self.import_error(error));
        if let Some(port) = &mut self.shared {
            match asked {
                Ok(request) => port.begin_meeting(request, peer),
                Err(error) => port.lose(peer, error),
            }
        }
    }

    /// Ends a meeting if its import is complete: messages go to the peer from here on.
    pub(super) fn end_meeting(&mut self, request: RequestId) {
        let Some(peer) = self.shared.as_ref().and_then(|port| port.meeting(request)) else {
            return;
        };
        let Some(outcome) = self.take_import(request) else {
            return;
        };
        // What this computer found out of a peer that is gone is told by the shared memory.
        let is_gone = self.is_gone(peer);
        if let Some(port) = &mut self.shared {
            port.end_meeting(request, outcome.as_ref().ok());
            match outcome {
                Ok(local) => self.local.memories.set_peer(SHARED_HANDLER, peer, local.into()),
                Err(_) if is_gone => {}
                Err(error) => port.lose(peer, error),
            }
        }
        let _ = self.call_shared(|memory| memory.handle_met(Endpoint::first_of(peer)));
    }

    /// Whether a peer has been met; `None`: not yet.
    ///
    /// # Errors
    /// The shared memory is at its end.
    pub fn has_met(&self, peer: NodeId) -> Option<Result<(), SharedError>> {
        match (self.check_shared(), &self.shared) {
            (Err(error), _) => Some(Err(error)),
            (Ok(()), Some(port)) if port.has_met(peer) => Some(Ok(())),
            _ => None,
        }
    }

    /// Takes the shared memory away.
    pub(crate) fn close_shared(&mut self) -> (Option<Box<SharedPort>>, Option<Box<dyn Service>>) {
        self.local.memories.drop_left_store(&mut self.local.node, SHARED_HANDLER);
        self.left_meeting = None;
        let meetings = self.shared.as_mut().map(|port| port.take_meetings());
        for request in meetings.into_iter().flatten() {
            self.abandon_import(request);
        }
        self.shared_before = self.all_shared_counters();
        let memory = self.local.memories.take_of_service(&mut self.local.node, SHARED_HANDLER);
        let model = self.local.node.deregister(PROCESS, SHARED_HANDLER);
        let mut port = self.shared.take();
        if let Some(port) = &mut port {
            port.put_memory(memory);
        }
        (port, model)
    }

    /// How a thread's operation ended, once; or why it never will.
    ///
    /// # Errors
    /// When the shared memory is broken and the outcome is not there.
    #[inline]
    pub(crate) fn take_outcome(&mut self, thread: u16) -> Option<Result<Outcome, SharedError>> {
        match self.call_shared(|memory| memory.take_outcome(thread)) {
            None => Some(Err(SharedError::NotOpen)),
            Some(None) => self.check_port().err().map(Err),
            Some(Some(Ok(outcome))) => Some(Ok(outcome)),
            // What this computer found out says more than what follows from it.
            Some(Some(Err(end))) => Some(self.check_port().and(Err(self.shared_error(end)))),
        }
    }

    /// Whether the shared memory is at its end.
    ///
    /// # Errors
    /// Why.
    #[inline]
    pub fn check_shared(&self) -> Result<(), SharedError> {
        let memory = self.shared_memory().ok_or(SharedError::NotOpen)?;
        self.check_port()?;
        match memory.end() {
            None => Ok(()),
            Some(end) => Err(self.shared_error(end)),
        }
    }

    #[inline]
    fn check_port(&self) -> Result<(), SharedError> {
        self.shared.as_ref().map_or(Ok(()), |port| port.check())
    }

    #[cold]
    fn shared_error(&self, end: SharedEnd) -> SharedError {
        let gone = |node, breach: Option<Breach>| match breach {
            Some(breach) => SharedError::RankBroken { peer: node, breach },
            None => SharedError::RankGone(node),
        };
        match end {
            SharedEnd::Gone(node) => gone(node, self.paths.breach_of(node)),
            SharedEnd::Lost(node) if self.is_gone(node) => gone(node, self.paths.breach_of(node)),
            SharedEnd::Lost(node) => gone(node, Some(mapwire_node::Breach::Overfull.into())),
            SharedEnd::Peer(error) => SharedError::Peer(error),
            SharedEnd::Garbled(from) => SharedError::Garbled(from.node),
        }
    }

    /// Begins an operation of the program, if the shared memory is not at its end.
    #[inline]
    pub(crate) fn begin_shared<T>(
        &mut self,
        begin: impl FnOnce(&mut SharedMemory, &SharedPort) -> T,
    ) -> Result<T, SharedError> {
        let port = self.shared.as_deref().ok_or(SharedError::NotOpen)?;
        port.check()?;
        let begun = self
            .local
            .node
            .call(PROCESS, SHARED_HANDLER, |memory: &mut SharedMemory| match memory.end() {
                None => Ok(begin(memory, port)),
                Some(end) => Err(end),
            })
            .ok_or(SharedError::NotOpen)?;
        begun.map_err(|end| self.shared_error(end))
    }

    /// Sets the protection of the page at `address` to what the model says that it is.
    pub(crate) fn reopen(&mut self, address: usize) {
        let Some(port) = &mut self.shared else {
            return;
        };
        let memory: Option<&SharedMemory> = self.local.node.service(PROCESS, SHARED_HANDLER);
        let at = port.locate(address);
        let protection = at.zip(memory).and_then(|((view, page), memory)| memory.dsm().minipage_at(view, page));
        let access = match protection {
            Some((_, Protection::Read)) => Access::Read,
            Some((_, Protection::Write)) => Access::Write,
            _ => return,
        };
        if let (Some((view, page)), Some(pages)) = (at, self.local.memories.pages(SHARED_HANDLER))
            && let Err(error) = pages.reopen(view, page, access)
        {
            port.handle_unprotected(error);
        }
    }

    /// Notes how long a thread has computed up to a call. Allocates nothing.
    #[cold]
    pub(crate) fn note_computing(&mut self, thread: u16, began_ns: u64, computed_ns: u64) {
        self.local.outcomes.note(&mut self.local.node, |capture, _| capture.note_thread(began_ns, thread, computed_ns));
    }

    /// Notes a call of a thread that is over. Allocates nothing.
    #[cold]
    pub(crate) fn note_call(&mut self, thread: u16, op: TraceOp, (address, bytes): (u64, u64)) {
        self.local
            .outcomes
            .note(&mut self.local.node, |capture, _| capture.note_call(now_ns(), thread, op, address, bytes));
    }
}
