//! One turn of the duty cycle.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mapwire_nic::{BufferId, Completion, Config, HandlerTarget, MemoryBreakdown, Nic};
use mapwire_translation::{CacheConfig, Hierarchical, PageRange};
use mapwire_transport::board::Board;
use mapwire_transport::payload::Received;
use mapwire_transport::rendezvous::Event;
use mapwire_transport::shm::ShmTransport;
use mapwire_transport::shm::channel::{Channel, Side};
use mapwire_transport::transport::{ReceiveError, SendError, Transport};
use mapwire_vmmc::{RequestId, Vmmc, VmmcError};
use mapwire_wire::{
    CommandRepr, HandlerId, Key, MAX_CONTROL_BYTES, NodeId, ProcessId, SIGNAL_TRAILER_BYTES,
};

use crate::breach::{Breach, Breaches};
use crate::commands::CommandQueue;
use crate::completions::CompletionWords;
use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::exports::LocalExport;
use crate::imports::Granted;
use crate::job::Job;
use crate::mover::{self, GarbagePage};
use crate::notices::{Notice, Notification};
use crate::pages::Pages;
use crate::shared::SharedPort;

/// The process of a NIC that serves one.
pub(crate) const PROCESS: ProcessId = ProcessId(0);

/// Handler of the shared memory's messages.
pub(crate) const SHARED_HANDLER: HandlerId = HandlerId(1);
/// Handler that tells an exporter of a message that was stored on the direct path.
pub const NOTICE_HANDLER: HandlerId = HandlerId(2);

/// Packets taken in one turn, so that a busy peer does not keep a thread from its own work.
const RECEIVE_BUDGET: usize = 64;

/// What a program has sent towards a peer, and whether the peer is there: one word for each peer, read on each direct send.
pub mod peer_flags {
    /// Packets or commands towards the peer may be under way: a direct store now would overtake them.
    pub const RING_DIRTY: u32 = 1;
    /// The peer is gone.
    pub const GONE: u32 = 2;
}

/// The state behind the lock.
#[derive(Debug)]
pub struct Driver {
    pub(crate) me: NodeId,
    pub(crate) nic: Nic<Hierarchical>,
    pub(crate) vmmc: Vmmc,
    pub(crate) transport: ShmTransport,
    pub(crate) pages: Pages,
    garbage: GarbagePage,
    queue: CommandQueue,
    pub(crate) words: Arc<CompletionWords>,
    pub(crate) job: Job,
    board: Arc<Board>,
    peers: Arc<[core::sync::atomic::AtomicU32]>,
    pub(crate) breaches: Breaches,
    /// Peers whose queue was full.
    blocked: Vec<NodeId>,
    /// Peers that were sent something and whose bell has not been rung since.
    to_ring: Vec<NodeId>,
    seen_events: u32,
    pub(crate) exports: Vec<LocalExport>,
    pub(crate) outcomes: HashMap<RequestId, Result<Granted, VmmcError>>,
    /// Memory that peers have passed, by sender and tag.
    pub(crate) passed: HashMap<(NodeId, u64), OwnedFd>,
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) shared: Option<Box<SharedPort>>,
    /// Transfers whose pages are held, by completion word.
    held: Vec<Option<PageRange>>,
    control: Box<[u8; MAX_CONTROL_BYTES]>,
    /// Stores that a peer refused, not yet reported.
    refused_stores: u64,
}

impl Driver {
    /// Joins the parts; nothing is connected yet.
    ///
    /// # Errors
    /// When the pinner, the cache or the NIC cannot be as `config` says.
    pub(crate) fn new(
        config: &DriverConfig,
        job: Job,
        board: Arc<Board>,
        peers: Arc<[core::sync::atomic::AtomicU32]>,
        words: Arc<CompletionWords>,
    ) -> Result<Self, DriverError> {
        let me = NodeId(job.rank() as u16);
        let nodes = job.size() as usize;
        let cache = CacheConfig::default().with_entries(config.cache_entries);
        let reply_keys = (0..nodes)
            .map(|_| job_key())
            .collect::<Result<Vec<Key>, DriverError>>()?;
        let nic_config = Config {
            node: me,
            reply_keys,
            memory_bytes: config.nic_memory_bytes,
        };
        let mut nic = Nic::new(nic_config, Hierarchical::new(cache)?)?;
        nic.open_process(PROCESS)?;
        nic.install_handler(SHARED_HANDLER, HandlerTarget::Host)?;
        nic.install_handler(NOTICE_HANDLER, HandlerTarget::Host)?;
        let pinner = config.pinner.open()?;
        let limit_pages = config
            .pin_limit_bytes
            .map(|bytes| bytes / mapwire_translation::PAGE_BYTES as u64);
        let mut transport = ShmTransport::new(job.ring());
        transport.connect_self(me, job.ring())?;
        Ok(Self {
            me,
            nic,
            vmmc: Vmmc::new(),
            transport,
            pages: Pages::new(PROCESS, pinner, limit_pages),
            garbage: GarbagePage::new(),
            queue: CommandQueue::new()?,
            words,
            job,
            seen_events: board.events(),
            board,
            peers,
            breaches: Breaches::new(nodes),
            blocked: Vec::with_capacity(nodes),
            to_ring: Vec::with_capacity(nodes),
            exports: Vec::new(),
            outcomes: HashMap::new(),
            passed: HashMap::new(),
            notices: VecDeque::new(),
            shared: None,
            held: vec![None; crate::completions::WORDS],
            control: Box::new([0; MAX_CONTROL_BYTES]),
            refused_stores: 0,
        })
    }

    /// One turn: commands, packets out, packets in, then what followed from them. Whether anything was done.
    #[inline]
    pub fn poll(&mut self) -> bool {
        let mut worked = self.queue.has_commands() && self.queue.serve(&mut self.nic, PROCESS);
        worked |= self.receive();
        if self.job.has_news() || self.board.events() != self.seen_events {
            self.housekeep();
            worked = true;
        }
        worked |= self.serve_models();
        worked
    }

    /// Writes a command to the queue and serves it at once, unless others wait before it.
    ///
    /// # Errors
    /// A command that cannot be written.
    #[inline]
    pub fn submit(&mut self, command: &CommandRepr, data: &[u8]) -> Result<bool, DriverError> {
        let submitted = self
            .queue
            .submit_to(&mut self.nic, PROCESS, command, data)?;
        self.transmit();
        self.tell();
        Ok(submitted)
    }

    /// Writes a command to the queue, for the driver's own thread to serve.
    pub(crate) fn enqueue(
        &mut self,
        command: &CommandRepr,
        data: &[u8],
    ) -> Result<bool, DriverError> {
        Ok(self.queue.submit(command, data)?)
    }

    /// Sends all that can be sent, and rings the bells of the peers that it went to.
    #[inline]
    pub(crate) fn transmit(&mut self) -> bool {
        for node in self.blocked.drain(..) {
            self.nic.handle_transmit_ready(node);
        }
        let mut sent = false;
        while let Some(packet) = self.nic.poll_transmit() {
            let to = packet.to;
            match mover::transmit(&self.pages, &mut self.garbage, &mut self.transport, packet) {
                Ok(()) => {
                    self.nic.handle_transmitted(to);
                    sent = true;
                    if to != self.me && !self.to_ring.contains(&to) {
                        self.to_ring.push(to);
                    }
                }
                Err(SendError::WouldBlock(_)) => self.block(to),
                Err(SendError::NotConnected(_)) => {
                    self.job.request_connection(to);
                    self.block(to);
                }
                Err(SendError::PeerCorrupt { corrupt, .. }) => {
                    self.handle_breach(to, corrupt.into());
                }
                Err(SendError::PeerGone(_) | SendError::TooLong { .. }) => {
                    self.handle_peer_gone(to);
                }
            }
        }
        for &node in &self.to_ring {
            self.board.ring(u32::from(node.0));
        }
        self.to_ring.clear();
        sent
    }

    #[cold]
    fn block(&mut self, node: NodeId) {
        self.nic.handle_transmit_blocked(node);
        self.blocked.push(node);
        // Whoever is asleep with a full queue must be woken to empty it.
        if node != self.me && !self.to_ring.contains(&node) {
            self.to_ring.push(node);
        }
    }

    #[inline]
    fn receive(&mut self) -> bool {
        let mut received = false;
        for _ in 0..RECEIVE_BUDGET {
            let packet = match self.transport.poll_receive() {
                Ok(None) => break,
                Ok(Some(packet)) => packet,
                Err(ReceiveError::PeerGone(peer)) => {
                    self.handle_peer_gone(peer);
                    received = true;
                    continue;
                }
                Err(ReceiveError::PeerCorrupt { peer, corrupt }) => {
                    self.handle_breach(peer, corrupt.into());
                    received = true;
                    continue;
                }
            };
            received = true;
            let from = packet.from;
            if self.breaches.of(from).is_some() {
                self.transport.release(from);
                continue;
            }
            let mut breach = None;
            let payload = packet.payload;
            let inline = match payload {
                Received::Inline(bytes) => bytes,
                Received::Bulk(_) => &[],
            };
            let trailer = || {
                let mut bytes = [0; SIGNAL_TRAILER_BYTES];
                if let Some(offset) = payload.len_bytes().checked_sub(SIGNAL_TRAILER_BYTES) {
                    payload.copy_to_slice(offset, &mut bytes);
                }
                bytes
            };
            self.nic
                .handle_packet(from, packet.header, inline, trailer, BufferId(0));
            while let Some(dma) = self.nic.poll_dma() {
                mover::deliver(&self.pages, &mut self.garbage, &dma, &payload);
                self.nic.handle_dma_done(&dma);
            }
            while let Some(completion) = self.nic.poll_completion() {
                match completion {
                    Completion::Message {
                        handler: SHARED_HANDLER,
                        ..
                    } => {
                        if let Some(shared) = &mut self.shared {
                            shared.handle_packet(from, &payload);
                        }
                    }
                    Completion::Message { handler, .. } => {
                        if handler == NOTICE_HANDLER {
                            crate::exports::handle_direct_notice(
                                &self.exports,
                                &mut self.notices,
                                from,
                                inline,
                            );
                        }
                    }
                    Completion::Control { length, .. } => {
                        let bytes = &mut self.control[..(length as usize).min(MAX_CONTROL_BYTES)];
                        if payload.len_bytes() == bytes.len() {
                            payload.copy_to_slice(0, bytes);
                            // All ranks of a job are of one user: the broker has checked each by SO_PEERCRED.
                            if self
                                .vmmc
                                .handle_control(from, self.job.uid(), bytes)
                                .is_err()
                            {
                                breach = Some(Breach::Control);
                            }
                        }
                    }
                    other => {
                        if let Completion::Rejected { reason, .. } = &other {
                            breach = breach.or(Breach::of(reason));
                        }
                        tell(
                            other,
                            &self.words,
                            &mut self.held,
                            &mut self.pages,
                            &self.exports,
                            &mut self.notices,
                            &mut self.refused_stores,
                        );
                    }
                }
            }
            self.transport.release(from);
            if let Some(breach) = breach {
                self.handle_breach(from, breach);
            }
        }
        received
    }

    /// Tells the completions that do not come with a packet.
    pub(crate) fn tell(&mut self) {
        while let Some(completion) = self.nic.poll_completion() {
            tell(
                completion,
                &self.words,
                &mut self.held,
                &mut self.pages,
                &self.exports,
                &mut self.notices,
                &mut self.refused_stores,
            );
        }
    }

    /// Carries out what the models ask for, and sends what came of it.
    #[inline]
    fn serve_models(&mut self) -> bool {
        let mut worked = !self.vmmc.is_idle() && self.serve_vmmc();
        worked |= SharedPort::serve(self);
        worked |= self.transmit();
        self.tell();
        worked
    }

    /// News of the job: descriptors that were passed, channels, ranks that went.
    #[cold]
    fn housekeep(&mut self) {
        while let Some(event) = self.job.poll() {
            match event {
                Event::Channel { peer, fd } => {
                    let side = Side::of(self.job.rank(), peer);
                    match Channel::open(&fd, side, self.job.ring()) {
                        Ok(channel) => self.transport.connect(NodeId(peer as u16), channel),
                        Err(error) => {
                            tracing::error!(peer, %error, "the channel to a peer is unusable");
                            self.handle_peer_gone(NodeId(peer as u16));
                        }
                    }
                }
                Event::Passed { from, tag, fd } => {
                    self.passed.insert((NodeId(from as u16), tag), fd);
                }
                Event::PassLost { to, tag: _ } | Event::PeerGone { peer: to } => {
                    self.handle_peer_gone(NodeId(to as u16));
                }
                Event::JobEnded => {
                    for rank in 0..self.job.size() {
                        self.handle_peer_gone(NodeId(rank as u16));
                    }
                }
            }
        }
        let events = self.board.events();
        if events != self.seen_events {
            self.seen_events = events;
            for rank in 0..self.job.size() {
                if self.board.state(rank).is_gone() && rank != self.job.rank() {
                    self.handle_peer_lost(NodeId(rank as u16));
                }
            }
        }
    }

    /// The board says that a rank has left or died. What it sent before may still be in its ring: that is received first.
    fn handle_peer_lost(&mut self, node: NodeId) {
        if self.is_gone(node) {
            return;
        }
        while self.receive() {}
        self.handle_peer_gone(node);
    }

    /// A peer broke the rules: it counts as gone.
    #[cold]
    fn handle_breach(&mut self, node: NodeId, breach: Breach) {
        tracing::error!(%node, %breach, "a peer is broken");
        self.breaches.note(node, breach);
        self.handle_peer_gone(node);
    }

    /// Why nothing can be had of a peer that is gone.
    #[must_use]
    pub fn why_gone(&self, peer: NodeId) -> DriverError {
        match self.breaches.of(peer) {
            Some(breach) => DriverError::PeerBroken { peer, breach },
            None => DriverError::PeerGone(peer),
        }
    }

    pub(crate) fn handle_peer_gone(&mut self, node: NodeId) {
        if node == self.me || self.is_gone(node) {
            return;
        }
        if let Some(flags) = self.peers.get(usize::from(node.0)) {
            flags.fetch_or(peer_flags::GONE, core::sync::atomic::Ordering::Release);
        }
        self.transport.disconnect(node);
        self.nic.handle_peer_gone(node);
        self.vmmc.handle_peer_gone(node);
        self.passed.retain(|(from, _), _| *from != node);
        if let Some(shared) = &mut self.shared {
            shared.handle_peer_gone(node, self.breaches.of(node));
        }
    }

    /// Whether a peer has left or died.
    #[must_use]
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.peers.get(usize::from(node.0)).is_none_or(|flags| {
            flags.load(core::sync::atomic::Ordering::Acquire) & peer_flags::GONE != 0
        })
    }

    /// Whether all that was sent towards a peer has been delivered there.
    pub(crate) fn settled(&mut self, node: NodeId) -> bool {
        !self.queue.has_commands()
            && self.nic.idle_towards(node)
            && !matches!(self.transport.drained(node), Ok(false))
    }

    /// Marks the pages of `range` as in use by the command with completion word `word`.
    ///
    /// # Errors
    /// Pages that cannot be pinned.
    pub fn hold(&mut self, word: u32, range: PageRange) -> Result<(), DriverError> {
        self.pages.hold(&mut self.nic, range)?;
        if let Some(held) = self.held.get_mut(word as usize) {
            *held = Some(range);
        }
        Ok(())
    }

    /// Undoes [`hold`](Self::hold) for a command that was not submitted.
    pub fn unhold(&mut self, word: u32) {
        if let Some(range) = self.held.get_mut(word as usize).and_then(Option::take) {
            self.pages.release(range);
        }
    }

    /// Whether there is anything to do: asked once more before a thread sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.transport.has_input()
            || !self.notices.is_empty()
            || self.queue.has_commands()
            || self.job.has_news()
            || self.board.events() != self.seen_events
    }

    /// Whether packets wait for room at a peer: a sleeper must look again soon, since nobody rings when room comes.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// The shared memory, while it is open.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedPort> {
        self.shared.as_deref()
    }

    /// What the shared memory did so far; nothing when it is not open.
    #[must_use]
    pub fn shared_counters(&self) -> mapwire_dsm::Counters {
        self.shared
            .as_ref()
            .map_or_else(Default::default, |port| port.dsm().counters())
    }

    /// Gives the shared memory the privileged view of a peer.
    ///
    /// # Errors
    /// The shared memory is not open.
    pub fn set_shared_peer(
        &mut self,
        peer: NodeId,
        segment: mapwire_wire::ExportId,
        mapped: mapwire_host::memory::MappedBuffer,
    ) -> Result<(), crate::shared::SharedError> {
        let port = self
            .shared
            .as_mut()
            .ok_or(crate::shared::SharedError::NotOpen)?;
        port.set_peer(peer, segment, mapped);
        Ok(())
    }

    /// Whether the shared memory lets a thread finish an access for a moment more.
    pub(crate) fn is_holding(&self) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|port| port.poll_hold().is_some())
    }

    /// When this driver must be polled even if nobody rings, on the monotonic clock.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let hold = self.shared.as_ref().and_then(|port| port.poll_hold());
        self.vmmc.poll_at().into_iter().chain(hold).min()
    }

    /// Carries out what the shared memory asks for, and sends what came of it.
    #[inline]
    pub(crate) fn serve_shared(&mut self) {
        if SharedPort::serve(self) {
            self.transmit();
        }
    }

    /// Tells the peers and the launcher that this rank leaves, and closes the channels.
    pub(crate) fn leave(&mut self) {
        let peers: Vec<NodeId> = self
            .transport
            .peers()
            .iter()
            .copied()
            .filter(|&peer| peer != self.me && !self.is_gone(peer))
            .collect();
        self.vmmc.leave(peers.iter().copied());
        self.serve_vmmc();
        self.transmit();
        for peer in peers {
            self.transport.disconnect(peer);
        }
        self.job.leave();
    }

    /// Lets peers know how much of their rings is free.
    pub(crate) fn flush(&mut self) {
        self.transport.flush();
    }

    /// The NIC: counters, translation, memory.
    #[must_use]
    pub fn nic(&self) -> &Nic<Hierarchical> {
        &self.nic
    }

    /// The NIC's memory by structure.
    #[must_use]
    pub fn nic_memory(&self) -> MemoryBreakdown {
        self.nic.memory()
    }

    /// Pinned pages.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Stores of this process that a peer refused after they had left: a revocation crossed them.
    #[must_use]
    pub fn refused_stores(&self) -> u64 {
        self.refused_stores
    }
}

/// Tells a completion to whom it concerns.
#[inline]
#[allow(clippy::too_many_arguments)]
fn tell(
    completion: Completion,
    words: &CompletionWords,
    held: &mut [Option<PageRange>],
    pages: &mut Pages,
    exports: &[LocalExport],
    notices: &mut VecDeque<Notice>,
    refused_stores: &mut u64,
) {
    let mut release = |word: u32| {
        if let Some(range) = held.get_mut(word as usize).and_then(Option::take) {
            pages.release(range);
        }
    };
    match completion {
        Completion::Done { completion, .. } => {
            release(completion);
            words.complete(completion);
        }
        Completion::Failed {
            completion: Some(completion),
            error,
            ..
        } => {
            release(completion);
            words.fail(completion, error);
        }
        Completion::Failed {
            completion: None,
            error,
            ..
        } => tracing::warn!(%error, "a command was refused"),
        Completion::Notification {
            export,
            from,
            offset,
            length,
            ..
        } => {
            let handler = exports
                .iter()
                .find(|local| local.id == export)
                .and_then(|local| local.handler.clone());
            if let Some(handler) = handler {
                let notification = Notification {
                    from,
                    export,
                    offset,
                    length,
                };
                notices.push_back(Notice {
                    handler,
                    notification,
                });
            }
        }
        Completion::StoreRefused {
            from,
            export,
            reason,
        } => {
            *refused_stores += 1;
            tracing::warn!(%from, %export, %reason, "a peer refused a store");
        }
        Completion::Rejected { from, reason } => {
            tracing::warn!(%from, ?reason, "a packet was rejected")
        }
        // These come with a packet, and are told where it is.
        Completion::Message { .. } | Completion::Control { .. } => {}
    }
}

/// A key from the operating system's entropy.
pub(crate) fn job_key() -> Result<Key, DriverError> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(DriverError::Entropy(errno.into())),
        }
    }
    Ok(Key(bytes))
}
