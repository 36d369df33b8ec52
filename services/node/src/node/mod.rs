//! The node, and the inputs and outputs that are the NIC's.

mod asks;
mod calls;
mod datagrams;
mod messages;
mod nic;
mod pinning;

pub use asks::Ask;
pub use messages::{NOTICE_BYTES, NOTICE_HANDLER, notice};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_nic::{BufferId, Config, Nic, NicError, Source, Transmit, Verdict};
use mapwire_translation::{PinRules, TranslationDesign};
use mapwire_vmmc::Action as VmmcAction;
use mapwire_vmmc::service::{Figures, Service};
use mapwire_wire::{Endpoint, HandlerId, Header, INLINE_BYTES, Kind, NodeId, ProcessId, SIGNAL_TRAILER_BYTES};

use crate::confinement::Confinement;
use crate::payload::Payload;
use crate::peers::{Breach, Peers};
use crate::process::{Process, Processes};
use crate::registry::RegisterError;
use crate::told::{Backlog, Told};
use crate::tracing::{Event, Trace};

/// What a node is made with.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub nic: Config,
    /// The user of every process of the job, by numeric id, as the operating system says.
    pub uid: u32,
}

/// A node: one NIC and the processes behind it.
///
/// * Calls of programs: [`export`](Self::export), [`ask_import`](Self::ask_import) and their like; commands; services.
/// * `handle_*`: what happens.
/// * `poll_*`: what is to be done. After each of the others drain, in this order, [`poll_move`](Self::poll_move) (doing and reporting
///   each), [`poll_told`](Self::poll_told), [`poll_ask`](Self::poll_ask), [`poll_transmit`](Self::poll_transmit).
/// * [`poll_at`](Self::poll_at): when [`handle_time`](Self::handle_time) has something to do.
///
/// Over a transport that may lose packets, [`poll_datagram`](Self::poll_datagram) and [`handle_datagram`](Self::handle_datagram) take
/// the places of [`poll_transmit`](Self::poll_transmit) and [`handle_packet`](Self::handle_packet).
///
/// Time is `now_ns`, in nanoseconds of a clock that never goes back.
#[derive(Debug)]
pub struct Node<D> {
    nic: Nic<D>,
    processes: Processes,
    peers: Peers,
    uid: u32,
    confinement: Confinement,
    /// Peers whose queue was full.
    blocked: Vec<NodeId>,
    /// The model or services may have actions: set by whatever reaches one of them.
    has_actions: bool,
    /// One of them had a deadline when their actions had been carried out.
    has_deadlines: bool,
    /// A message that is looked at.
    message: Vec<u8>,
    /// What the packet that is being handled says against its sender.
    breach: Option<Breach>,
    told: VecDeque<Told>,
    trace: Trace,
}

impl<D: TranslationDesign> Node<D> {
    /// A node without processes, translating by `design`.
    ///
    /// # Errors
    /// As [`Nic::new`].
    pub fn new(config: NodeConfig, design: D) -> Result<Self, NicError> {
        let nodes = config.nic.reply_keys.len();
        let mut nic = Nic::new(config.nic, design)?;
        nic.make_room(nic.node());
        nic.install_handler(HandlerId::CONTROL)?;
        nic.install_handler(NOTICE_HANDLER)?;
        let message = Vec::with_capacity(nic.max_message_bytes());
        Ok(Self {
            nic,
            processes: Processes::default(),
            peers: Peers::new(nodes),
            uid: config.uid,
            confinement: Confinement::new(nodes),
            blocked: Vec::with_capacity(nodes),
            has_actions: false,
            has_deadlines: false,
            message,
            breach: None,
            told: VecDeque::with_capacity(16),
            trace: Trace::default(),
        })
    }

    /// Lets a process use the NIC. It may have `words` commands with a completion word under way, and pages pinned by `rules`.
    ///
    /// # Errors
    /// As [`Nic::open_process`].
    pub fn open_process(&mut self, process: ProcessId, rules: PinRules, words: usize) -> Result<(), NicError> {
        self.nic.open_process(process)?;
        let most_bytes = self.nic.max_message_bytes();
        let state = Process::new(process, rules, words, most_bytes, self.nic.translation());
        self.processes.insert(state);
        Ok(())
    }

    /// Takes a process away with all that it exported and imported, and tells its importers. Its pages are its pinner's to give back,
    /// once what was given to be transmitted and moved is finished.
    pub fn close_process(&mut self, process: ProcessId) {
        let Some(mut state) = self.processes.remove(process) else { return };
        state.withdraw_all();
        while let Some(action) = state.vmmc_mut().poll_action() {
            if let VmmcAction::Send { to, message } = action {
                let handler = HandlerId::CONTROL;
                let sent = self.nic.send_message(process, to, handler, &message);
                if !sent && !self.peers.is_gone(to.node) {
                    self.handle_breach(to.node, Breach::Overfull);
                }
            }
        }
        self.nic.close_process(process);
    }

    /// Registers a service of a process under a handler id.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(
        &mut self,
        process: ProcessId,
        handler: HandlerId,
        service: Box<dyn Service>,
    ) -> Result<(), RegisterError> {
        if [HandlerId::CONTROL, NOTICE_HANDLER].contains(&handler) {
            return Err(RegisterError::Reserved(handler));
        }
        let Some(state) = self.processes.get_mut(process) else { return Err(RegisterError::NoProcess(process)) };
        match self.nic.install_handler(handler) {
            // Of another process, or of this one before.
            Ok(()) | Err(NicError::HandlerTaken(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.has_actions = true;
        if state.services_mut().insert(handler, service) { Ok(()) } else { Err(RegisterError::Taken(handler)) }
    }

    /// Takes a service away. Messages that come for it from here on are dropped.
    pub fn deregister(&mut self, process: ProcessId, handler: HandlerId) -> Option<Box<dyn Service>> {
        self.processes.get_mut(process)?.services_mut().remove(handler)
    }

    /// The service of a process under a handler id, if it is a `T`.
    #[inline]
    #[must_use]
    pub fn service<T: Service>(&self, process: ProcessId, handler: HandlerId) -> Option<&T> {
        self.processes.get(process)?.services().of_type(handler)
    }

    /// Goes up whenever a service of a process is called, comes or goes. While it stands still, all are as they were.
    #[inline]
    #[must_use]
    pub fn service_calls(&self, process: ProcessId) -> u64 {
        let process = self.processes.get(process);
        process.map_or(0, |process| process.services().calls())
    }

    /// Calls that service for the program. If [anything is asked](Self::has_asks) now, drain [`poll_ask`](Self::poll_ask).
    #[inline]
    pub fn call<T: Service, R>(
        &mut self,
        process: ProcessId,
        handler: HandlerId,
        call: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let service = self.processes.get_mut(process)?.services_mut().of_type_mut::<T>(handler)?;
        let done = call(service);
        self.has_actions |= service.has_actions();
        Some(done)
    }

    /// As [`call`](Self::call), of whichever type the service is.
    pub fn service_mut(&mut self, process: ProcessId, handler: HandlerId) -> Option<&mut dyn Service> {
        self.has_actions = true;
        self.processes.get_mut(process)?.services_mut().get_mut(handler)
    }

    /// What the service under a handler id, if it is there, finds in a message: see [`Service::stored_before`].
    #[must_use]
    pub fn stored_before(&self, process: ProcessId, handler: HandlerId, message: &[u8]) -> Option<(u64, u64)> {
        self.processes.get(process)?.services().get(handler)?.stored_before(message)
    }

    /// Whether a service of a process [holds](Service::is_holding) something.
    #[inline]
    #[must_use]
    pub fn is_holding(&self, process: ProcessId) -> bool {
        self.processes.get(process).is_some_and(|process| process.services().iter().any(Service::is_holding))
    }

    /// What the services of a process have counted together.
    #[must_use]
    pub fn figures(&self, process: ProcessId) -> Figures {
        let services = self.processes.get(process).into_iter().flat_map(|process| process.services().iter());
        services.map(Service::figures).fold(Figures::default(), |sum, figures| sum + figures)
    }

    /// Whether messages wait for a thread of the host of this process ([`Service::runs_on_host`]).
    #[inline]
    #[must_use]
    pub fn has_host_work(&self, process: ProcessId) -> bool {
        let process = self.processes.get(process);
        process.is_some_and(|process| !process.on_host().is_empty())
    }

    /// Whether so many do that [`serve_on_host`](Self::serve_on_host) must be called before more packets are taken.
    #[must_use]
    pub fn has_too_much_host_work(&self, process: ProcessId) -> bool {
        let process = self.processes.get(process);
        process.is_some_and(|process| process.on_host().is_full())
    }

    /// Gives the message that has waited longest to its service. Drain [`poll_ask`](Self::poll_ask) then. False: none waits.
    pub fn serve_on_host(&mut self, now_ns: u64, process: ProcessId) -> bool {
        let served = self.processes.get_mut(process);
        let Some((from, taken)) = served.and_then(|process| process.serve_on_host(now_ns)) else { return false };
        self.has_actions = true;
        if taken.is_err() {
            self.handle_breach(from, Breach::Service);
        }
        true
    }

    /// Whether [`poll_ask`](Self::poll_ask) may have something to do.
    #[inline]
    #[must_use]
    pub fn has_asks(&self) -> bool {
        self.has_actions
    }

    /// Whether a confined node may take a packet.
    #[must_use]
    pub fn may_take(&self, header: &Header) -> bool {
        let is_message = header.kind == Kind::Handler as u8;
        let handler = HandlerId(header.message.get());
        if is_message && handler == HandlerId::CONTROL {
            return self.confinement.has_room();
        }
        // Traces and misses may make what keeps them grow; and messages belong to services that may.
        let grows = self.trace.is_on() || self.pins_on_miss();
        match is_message {
            true if handler == NOTICE_HANDLER => !grows,
            true => {
                let service = self
                    .processes
                    .get(ProcessId((header.export.get() & 0xffff) as u16))
                    .and_then(|process| process.services().get(handler));
                service.is_none_or(Service::allocates_nothing)
            }
            false => !grows,
        }
    }

    fn pins_on_miss(&self) -> bool {
        self.nic.translation().pinning_receive() == mapwire_translation::Pinning::OnMiss
    }

    /// Takes a packet of `from`, which the machine keeps as `buffer` until its moves are done. With [`Verdict::Wait`] nothing of it was
    /// taken: serve [the misses](Self::serve_misses), then give it again before any other of `from`.
    #[inline]
    pub fn handle_packet<P: Payload>(
        &mut self,
        from: NodeId,
        header: &Header,
        payload: &P,
        buffer: BufferId,
    ) -> Verdict {
        if self.peers.is_gone(from) {
            return Verdict::Taken;
        }
        let private = payload.private();
        let inline = if private.len() <= INLINE_BYTES { private } else { &[] };
        let trailer = || {
            let mut bytes = [0; SIGNAL_TRAILER_BYTES];
            if let Some(offset) = payload.len_bytes().checked_sub(SIGNAL_TRAILER_BYTES) {
                payload.copy_to_slice(offset, &mut bytes);
            }
            bytes
        };
        self.nic.handle_packet(from, header, inline, trailer, buffer)
    }

    /// Whether [`poll_told`](Self::poll_told) has something.
    #[inline]
    #[must_use]
    pub fn has_told(&self) -> bool {
        self.nic.has_completions() || !self.told.is_empty()
    }

    /// The next thing to tell a program or its log. Messages of the packet that was handled last, whose payload is given, go to their
    /// services meanwhile; `now_ns` is asked for if one of them wants to know.
    #[inline]
    pub fn poll_told<P: Payload>(&mut self, payload: &P, mut now_ns: impl FnMut() -> u64) -> Option<Told> {
        while let Some(completion) = self.nic.poll_completion() {
            let told = self.told_of(&mut now_ns, completion, payload);
            if told.is_some() {
                return told;
            }
        }
        self.told.pop_front()
    }

    /// All that `from` sent in the packet that was handled last has been told. Whether that broke the rules: then there is more to
    /// tell.
    #[inline]
    pub fn end_packet(&mut self, from: NodeId) -> bool {
        match self.breach.take() {
            Some(breach) => {
                self.handle_breach(from, breach);
                true
            }
            None => false,
        }
    }

    /// What the packet that is being handled says against its sender.
    fn note_breach(&mut self, breach: Breach) {
        self.breach.get_or_insert(breach);
    }

    /// The next packet to transmit. Transmit it, then call [`handle_transmitted`](Self::handle_transmitted), or
    /// [`handle_transmit_blocked`](Self::handle_transmit_blocked).
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<&Transmit> {
        if self.confinement.is_on() {
            self.leave_messages();
            if self.trace.is_on() {
                // What is cut is looked up, and noted in memory that may grow.
                if self.nic.has_uncut() {
                    self.confinement.leave();
                }
                return self.nic.poll_queued();
            }
        }
        self.nic.poll_transmit()
    }

    /// While the node is confined, packets whose memory would be given back stay.
    #[cold]
    fn leave_messages(&mut self) {
        loop {
            let packet = if self.trace.is_on() { self.nic.poll_queued() } else { self.nic.poll_transmit() };
            let to = match packet {
                Some(packet) if matches!(packet.source, Source::Message(_)) => packet.to,
                _ => return,
            };
            self.confinement.leave();
            self.handle_transmit_blocked(to);
        }
    }

    /// The transport has no room for packets to `to`, until [`retry_blocked`](Self::retry_blocked).
    pub fn handle_transmit_blocked(&mut self, to: NodeId) {
        self.nic.handle_transmit_blocked(to);
        self.blocked.push(to);
    }

    /// The transport may have room again for whoever it had none.
    #[inline]
    pub fn retry_blocked(&mut self) {
        while let Some(node) = self.blocked.pop() {
            self.nic.handle_transmit_ready(node);
        }
    }

    /// Peers that packets wait for room at.
    #[inline]
    #[must_use]
    pub fn blocked(&self) -> &[NodeId] {
        &self.blocked
    }

    /// The time that [`poll_at`](Self::poll_at) gave has come.
    pub fn handle_time(&mut self, now_ns: u64) {
        self.has_actions = true;
        let confined = self.confinement.is_on();
        if !confined {
            self.nic.handle_time(now_ns);
            self.take_link_events(now_ns);
        } else if !self.nic.handle_time_steadily(now_ns) {
            self.confinement.leave();
        }
        for process in self.processes.iter_mut() {
            process.handle_time(now_ns, confined);
        }
    }

    /// When [`handle_time`](Self::handle_time) has something to do, once [`poll_ask`](Self::poll_ask) has been drained. While the node
    /// is confined, what would allocate is left out.
    #[inline]
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        let services = if self.has_deadlines { self.next_deadline() } else { None };
        match (services, self.nic.poll_at()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let confined = self.confinement.is_on();
        self.processes.iter().filter_map(|process| process.poll_at(confined)).min()
    }

    /// A peer has left or died.
    pub fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId) {
        if node == self.nic.node() || !self.peers.note_gone(node) {
            return;
        }
        self.tell_gone(now_ns, node);
        if self.confinement.is_on() {
            self.confinement.note_gone(node);
        } else {
            self.nic.handle_peer_gone(node);
            self.forget_peer(now_ns, node);
        }
    }

    /// Tells the services that may be told anywhere that a peer is gone.
    fn tell_gone(&mut self, now_ns: u64, node: NodeId) {
        self.has_actions = true;
        for process in self.processes.iter_mut() {
            process.tell_gone(now_ns, node, Service::allocates_nothing);
        }
    }

    /// Tells the other services, and forgets what concerned the peer. The NIC knows.
    fn forget_peer(&mut self, now_ns: u64, node: NodeId) {
        self.has_actions = true;
        for process in self.processes.iter_mut() {
            process.forget(node);
            process.tell_gone(now_ns, node, |service| !service.allocates_nothing());
        }
    }

    /// A peer broke the rules: it counts as gone, and that is told. This node itself cannot be.
    #[cold]
    pub fn handle_breach(&mut self, node: NodeId, breach: Breach) {
        self.told.push_back(Told::PeerBroken { node, breach });
        if node != self.nic.node() {
            self.peers.note_broken(node);
        }
        self.handle_peer_gone(0, node);
    }

    fn handle_left(&mut self, node: NodeId) {
        self.told.push_back(Told::PeerLeft { node });
        self.handle_peer_gone(0, node);
    }

    /// Says that memory cannot be passed to a peer. It imports without the direct path: what it stores and fetches goes by packets. To be
    /// called before a process exports anything, since exports are pinned for packets of such peers.
    pub fn set_apart(&mut self, node: NodeId) {
        self.peers.note_apart(node);
    }

    /// Whether a peer is gone.
    #[inline]
    #[must_use]
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.peers.is_gone(node)
    }

    /// Tells the peers in `nodes` that this node leaves.
    pub fn leave(&mut self, nodes: impl Iterator<Item = NodeId>) {
        self.has_actions = true;
        if let Some(process) = self.processes.iter_mut().next() {
            process.vmmc_mut().leave(nodes.map(Endpoint::first_of));
        }
    }

    /// Confines the node, or ends that.
    pub fn set_confined(&mut self, on: bool) {
        self.confinement.set(on);
    }

    /// Whether the node is confined.
    #[inline]
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.confinement.is_on()
    }

    /// Something is left where it is, for whoever is not confined.
    pub fn leave_for_later(&mut self) {
        self.confinement.leave();
    }

    /// Whether something was left while the node was confined.
    #[inline]
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.confinement.has_left()
    }

    /// Does what was left while the node was confined.
    #[cold]
    pub fn make_up(&mut self, now_ns: u64) {
        self.confinement.begin_to_make_up();
        self.take_link_events(now_ns);
        while let Some(kept) = self.confinement.next_message() {
            if !self.take_control(kept.from(), kept.to(), kept.message()) {
                self.handle_breach(kept.from().node, Breach::Control);
            }
        }
        while let Some(node) = self.confinement.next_gone() {
            self.nic.handle_peer_gone(node);
            self.forget_peer(now_ns, node);
        }
    }

    /// Begins or ends to note what is communicated, for a trace.
    pub fn set_tracing(&mut self, on: bool) {
        self.trace.set(&mut self.nic, on);
    }

    /// The next thing that a trace has to say, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.trace.pop(&mut self.nic)
    }

    /// The NIC: counters, translation, memory.
    #[inline]
    #[must_use]
    pub fn nic(&self) -> &Nic<D> {
        &self.nic
    }

    /// What waits in the node besides its NIC.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let mut backlog = Backlog { told: self.told.len(), left: self.confinement.count(), ..Backlog::default() };
        for process in self.processes.iter() {
            process.count(&mut backlog);
        }
        backlog
    }
}
