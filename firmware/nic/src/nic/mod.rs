//! The network interface.

mod cutting;
pub(crate) mod datagrams;
mod leaving;
mod misses;
pub(crate) mod receive;
mod sends;
mod stores;
mod tables;
mod tracing;
mod updates;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::{Frame, PAGE_BYTES, Page, Pinning, Process as TableOwner, TranslationDesign};
use mapwire_wire::{
    CHUNK_BYTES, ExportId, INLINE_BYTES, Key, MAX_CONTROL_BYTES, MessageId, NodeId, ProcessId, SIGNAL_TRAILER_BYTES,
};

use crate::actions::{Completion, Dma, Traced};
use crate::answers::Answers;
use crate::budget::{BudgetRow, Holdings, MemoryBreakdown};
use crate::counters::Counters;
use crate::dispatch::Dispatch;
use crate::error::NicError;
use crate::exports::{Export, Exports};
use crate::fetches::Fetches;
use crate::imports::{Import, Imports};
use crate::inbound::InboundMessages;
use crate::link::LinkConfig;
use crate::outbound::Outbound;
use crate::pieces::Piece;
use crate::processes::{Long, Processes};
use crate::slots::Ending;
use crate::stalled::Stalled;
use crate::transmit::{Transmit, Work};

/// Bytes of one process's command queue, which lies in NIC memory (VMMC §4.5): 64 entries of 192 B.
const COMMAND_QUEUE_BYTES: u64 = 64 * 192;
/// Least length of a transport's longest piece of a transfer, in bytes.
const MIN_PIECE_BYTES: usize = INLINE_BYTES;
/// Most pages that the longest payload touches.
const MOST_PIECES: usize = CHUNK_BYTES / PAGE_BYTES + 1;
const MAX_NODES: usize = 1 << 16;

/// Least value of a transport's longest payload: a control message is never cut, nor a signal separated from the longest short
/// send.
pub const MIN_PAYLOAD_BYTES: usize = MAX_CONTROL_BYTES + SIGNAL_TRAILER_BYTES;
const _: () = assert!(MAX_CONTROL_BYTES > INLINE_BYTES);

/// Guarantees of a transport.
#[derive(Clone, Copy, Debug)]
pub enum Delivery {
    /// Delivers each packet once, in order: [`Nic::poll_transmit`], [`Nic::handle_packet`].
    Lossless,
    /// May lose, repeat, reorder and delay datagrams: [`Nic::poll_datagram`], [`Nic::handle_datagram`]. Links with this
    /// configuration recover. Packets to peers named by [`Nic::set_lossless`] are exempt.
    Lossy(LinkConfig),
}

/// Configuration of a NIC.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of its node.
    pub node: NodeId,
    /// Key, by node number, that the node must show when it answers a fetch: random, one for each, this node included. Their
    /// count is the number of nodes.
    pub reply_keys: Vec<Key>,
    /// Bytes of NIC memory; every table is charged to it.
    pub memory_bytes: u64,
    /// Longest payload that its transport carries; transfers from memory are cut to it. At least [`MIN_PAYLOAD_BYTES`].
    pub max_payload_bytes: usize,
    /// Whether its transport can lose packets.
    pub delivery: Delivery,
}

/// A network interface: the state of one node's firmware.
///
/// Its methods are of four kinds:
///
/// * set-up, which changes a table at the host's request: [`open_process`](Self::open_process), [`export`](Self::export),
///   [`import`](Self::import), [`install_handler`](Self::install_handler) and their opposites;
/// * `handle_*`, which take input: [`handle_command`](Self::handle_command),
///   [`handle_own_command`](Self::handle_own_command), [`handle_packet`](Self::handle_packet),
///   [`handle_dma_done`](Self::handle_dma_done), [`handle_transmitted`](Self::handle_transmitted),
///   [`handle_transmit_blocked`](Self::handle_transmit_blocked) and [`handle_peer_gone`](Self::handle_peer_gone);
/// * `poll_*`, which return work to do: [`poll_transmit`](Self::poll_transmit), [`poll_dma`](Self::poll_dma),
///   [`poll_completion`](Self::poll_completion), [`poll_miss`](Self::poll_miss);
/// * getters.
///
/// After each call that is not a getter, drain `poll_dma` (doing and reporting each) and then `poll_completion`; drain
/// `poll_transmit` after taking commands, handling packets, revoking exports or closing processes. Each `poll_*` returns work in
/// the order in which it must be done.
///
/// # Guarantees
///
/// * Commands of one process to one node are applied there in their order; there is no order between processes, nor between
///   stores and the answers to fetches.
/// * Each completion word of an accepted command is reported once, [`Completion::Done`] or [`Completion::Failed`]; after that the
///   command's memory is not touched. Words of a closed process are not reported.
/// * Notification and signal of a message come after all its data; if a part of it is refused, neither comes.
/// * Nothing grows without bound, whatever peers and processes do: what exceeds its share waits at its sender, or is dropped and
///   counted.
#[derive(Debug)]
pub struct Nic<D> {
    node: NodeId,
    memory_bytes: u64,
    /// Bytes of the budget that tables of services use.
    service_bytes: usize,
    /// Longest piece of a transfer in one packet.
    chunk_bytes: usize,
    translation: D,
    processes: Processes,
    next_message: MessageId,
    exports: Exports,
    /// Exports whose pages are pinned when packets for them arrive.
    pinned_late: Vec<ExportId>,
    imports: Imports,
    fetches: Fetches,
    /// Key that the replies of each peer must show.
    reply_keys: Vec<Key>,
    answers: Answers,
    /// Whether a packet that misses is dropped, because its sender's link sends it again.
    drops_on_miss: bool,
    /// Whether answers to peers precede sends of processes, next time.
    answers_first: bool,
    dispatch: Dispatch,
    outbound: Outbound,
    stalled: Stalled,
    /// Messages in several packets, by sending node.
    inbound: Vec<InboundMessages>,
    /// Destination of the packet that is being handled.
    scattered: Vec<Piece>,
    dma: VecDeque<Dma>,
    completions: VecDeque<Completion>,
    counters: Counters,
    /// Translations that were made; `None` while tracing is off.
    traced: Option<VecDeque<Traced>>,
}

impl<D: TranslationDesign> Nic<D> {
    /// Makes the NIC of node `config.node` with links to all nodes of the job, translating by `translation`.
    ///
    /// # Errors
    /// [`NicError::OutOfNicMemory`] if the translation design and the links alone exceed the budget; [`NicError::UnknownNode`] if
    /// `config.node` has no reply key; [`NicError::ZeroKey`] if a reply key is zero; [`NicError::TableFull`] for more than 65,536
    /// nodes.
    pub fn new(config: Config, translation: D) -> Result<Self, NicError> {
        let nodes = config.reply_keys.len();
        if usize::from(config.node.0) >= nodes {
            return Err(NicError::UnknownNode(config.node, nodes));
        }
        if nodes > MAX_NODES {
            return Err(NicError::TableFull { what: "node", limit: MAX_NODES });
        }
        if config.reply_keys.contains(&Key::ZERO) {
            return Err(NicError::ZeroKey);
        }
        let mut inbound = Vec::new();
        inbound.resize_with(nodes, InboundMessages::default);
        // If a miss pins a page, a packet is retried until all its pages are pinned at once: it has two at most.
        let pins_on_miss = [translation.pinning(), translation.pinning_receive()].contains(&Pinning::OnMiss);
        let longest = match pins_on_miss {
            true => PAGE_BYTES,
            false => CHUNK_BYTES,
        };
        let carried = config.max_payload_bytes.max(MIN_PAYLOAD_BYTES) - SIGNAL_TRAILER_BYTES;
        let drops_on_miss = translation.drops_on_miss();
        let link = match config.delivery {
            Delivery::Lossless => None,
            Delivery::Lossy(link) if link.epoch == 0 => return Err(NicError::ZeroEpoch),
            Delivery::Lossy(link) => Some(link),
        };
        let nic = Self {
            node: config.node,
            memory_bytes: config.memory_bytes,
            service_bytes: 0,
            chunk_bytes: longest.min(carried),
            translation,
            processes: Processes::default(),
            next_message: MessageId(0),
            exports: Exports::new(),
            pinned_late: Vec::new(),
            imports: Imports::new(Ending::Retired),
            fetches: Fetches::new(Ending::Recycled),
            reply_keys: config.reply_keys,
            answers: Answers::new(nodes),
            answers_first: false,
            dispatch: Dispatch::default(),
            outbound: Outbound::new(nodes, link),
            drops_on_miss,
            stalled: Stalled::default(),
            inbound,
            scattered: Vec::with_capacity(MOST_PIECES),
            dma: VecDeque::with_capacity(2 * MOST_PIECES),
            completions: VecDeque::with_capacity(64),
            counters: Counters::default(),
            traced: None,
        };
        nic.charge("the translation design with its links", 0)?;
        Ok(nic)
    }

    /// This node's number.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Nodes in the job, this one included.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.outbound.nodes()
    }

    /// The frame under which `page` of `process` is installed, or the garbage frame. Counts no lookup and leaves the translation
    /// cache as it is.
    #[must_use]
    pub fn frame_of(&self, process: ProcessId, page: Page) -> Frame {
        self.translation.installed(TableOwner(process.0), page)
    }

    #[must_use]
    pub fn imported(&self, id: mapwire_wire::ImportId) -> Option<&Import> {
        self.imports.get(id.0)
    }

    #[must_use]
    pub fn exported(&self, id: ExportId) -> Option<&Export> {
        self.exports.get(id.0)
    }

    /// The next packet to transmit. Transmit it, then call [`handle_transmitted`](Self::handle_transmitted), or
    /// [`handle_transmit_blocked`](Self::handle_transmit_blocked) if the transport has no room. Until then, the same packet may
    /// be returned again. `None` if nothing waits, or all that waits is blocked. For a lossless transport.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<&Transmit> {
        // What is cut may be for a peer with a link.
        while !self.outbound.has_ready() {
            if !self.cut_next() {
                return None;
            }
        }
        self.outbound.offer()
    }

    /// Sends packets to `node` over a lossless transport, although those of others may be lost:
    /// [`poll_transmit`](Self::poll_transmit) and [`handle_packet`](Self::handle_packet) are for them. Call it before anything is
    /// sent to the node.
    pub fn set_lossless(&mut self, node: NodeId) {
        self.outbound.set_lossless(node);
    }

    /// Limits packets to `node` to `bytes` of a transfer from here on, as its path requires. Messages of services may be longer.
    pub fn set_max_payload(&mut self, node: NodeId, bytes: usize) {
        let bytes = bytes.saturating_sub(SIGNAL_TRAILER_BYTES).max(MIN_PIECE_BYTES);
        self.outbound.set_most_bytes(node, bytes as u32);
    }

    /// Whether long commands or answers have parts that are not packets yet.
    #[must_use]
    pub fn has_uncut(&self) -> bool {
        self.processes.has_turns() || self.answers.has_turns()
    }

    /// As [`poll_transmit`](Self::poll_transmit), but cuts nothing: returns only what is a packet already.
    pub fn poll_queued(&mut self) -> Option<&Transmit> {
        self.outbound.offer()
    }

    /// The packet that [`poll_transmit`](Self::poll_transmit) returned for `to` is out, and its source read.
    #[inline]
    pub fn handle_transmitted(&mut self, to: NodeId) {
        let Some((payload_bytes, work)) = self.outbound.pop(to) else {
            return;
        };
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += u64::from(payload_bytes);
        self.complete(work);
    }

    #[inline]
    pub(crate) fn complete(&mut self, work: Work) {
        if let Work::Command { process, completion } = work {
            self.completions.push_back(Completion::Done { process, completion });
        }
    }

    /// The transport has no room for packets to `to`; nothing more is offered for it until
    /// [`handle_transmit_ready`](Self::handle_transmit_ready).
    pub fn handle_transmit_blocked(&mut self, to: NodeId) {
        self.outbound.set_blocked(to, true);
    }

    /// The transport may have room for packets to `to` again.
    pub fn handle_transmit_ready(&mut self, to: NodeId) {
        self.outbound.set_blocked(to, false);
    }

    /// The next memory move; do them in this order.
    #[inline]
    pub fn poll_dma(&mut self) -> Option<Dma> {
        self.dma.pop_front()
    }

    /// Whether there is a completion to report.
    #[inline]
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// The next completion to report.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Makes room for what packets of `node` may leave behind, so that taking them allocates nothing.
    pub fn make_room(&mut self, node: NodeId) {
        self.outbound.reserve(node);
        self.answers.reserve(node);
        if let Some(inbound) = self.inbound.get_mut(usize::from(node.0)) {
            inbound.reserve();
        }
        let nodes = self.inbound.len();
        self.stalled.reserve(nodes);
    }

    /// Number of packets that wait to be transmitted to `node`.
    #[must_use]
    pub fn waiting_for(&self, node: NodeId) -> usize {
        self.outbound.waiting_for(node)
    }

    /// Whether nothing that was sent or asked waits to go to `node`: all such commands have been transmitted. The transport may
    /// still hold packets; ask it separately.
    #[must_use]
    pub fn idle_towards(&self, node: NodeId) -> bool {
        let to_node = |long: &Long| long.peer() == node;
        self.outbound.unfinished_for(node) == 0 && self.processes.with_long(to_node).next().is_none()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The translation design.
    #[must_use]
    pub const fn translation(&self) -> &D {
        &self.translation
    }

    /// Use of the NIC's memory: each table with the room that it has allocated, used or not.
    #[must_use]
    pub fn memory(&self) -> MemoryBreakdown {
        MemoryBreakdown { budget_bytes: self.memory_bytes, rows: self.memory_rows().collect() }
    }

    /// Numbers of what it holds.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            exports: self.exports.len(),
            imports: self.imports.len(),
            fetches: self.fetches.len(),
            owed: self.answers.count(),
            packets: self.outbound.packets().count(),
            early_bytes: self.outbound.early_bytes(),
            messages: self.inbound.iter().map(InboundMessages::count).sum(),
            commands: self.processes.with_long(|_| true).count(),
            misses: self.stalled.count(),
            actions: self.dma.len() + self.completions.len(),
        }
    }

    fn memory_rows(&self) -> impl Iterator<Item = BudgetRow> + '_ {
        let inbound: usize = self.inbound.iter().map(InboundMessages::bytes).sum();
        let inbound = inbound + self.inbound.capacity() * size_of::<InboundMessages>();
        let actions = self.dma.capacity() * size_of::<Dma>()
            + self.scattered.capacity() * size_of::<Piece>()
            + self.completions.capacity() * size_of::<Completion>();
        let queues = self.processes.count() as u64 * COMMAND_QUEUE_BYTES;
        let own = [
            ("process list", self.processes.bytes()),
            ("export table", self.exports.bytes()),
            ("import table", self.imports.bytes()),
            ("fetch table", self.fetches.bytes() + self.reply_keys.capacity() * size_of::<Key>()),
            ("fetches served", self.answers.bytes()),
            ("transmit queues", self.outbound.bytes()),
            ("messages under way", inbound),
            ("misses under way", self.stalled.bytes()),
            ("action queues", actions),
            ("handler dispatch", self.dispatch.bytes()),
            ("tables of services", self.service_bytes),
        ];
        let row = |(what, bytes)| BudgetRow { what, bytes: bytes as u64 };
        let queues = BudgetRow { what: "command queues", bytes: queues };
        self.translation.nic_memory().chain(own).map(row).chain([queues])
    }

    /// Bytes of the budget that no table uses.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        let used: u64 = self.memory_rows().map(|row| row.bytes).sum();
        self.memory_bytes.saturating_sub(used)
    }

    /// Sets the share of the budget that tables of services use.
    ///
    /// # Errors
    /// [`NicError::OutOfNicMemory`]; the share then stays as it was.
    pub fn set_service_bytes(&mut self, bytes: usize) -> Result<(), NicError> {
        let growth = bytes.saturating_sub(self.service_bytes);
        self.charge("a table of a service", growth as u64)?;
        self.service_bytes = bytes;
        Ok(())
    }

    /// Checks that `needed_bytes` more fit into the budget.
    pub(crate) fn charge(&self, what: &'static str, needed_bytes: u64) -> Result<(), NicError> {
        let used: u64 = self.memory_rows().map(|row| row.bytes).sum();
        let left_bytes = self.memory_bytes.saturating_sub(used);
        let excess = used.saturating_sub(self.memory_bytes);
        if excess > 0 || needed_bytes > left_bytes {
            return Err(NicError::OutOfNicMemory { what, needed_bytes: needed_bytes.max(excess), left_bytes });
        }
        Ok(())
    }
}

/// Bytes of NIC memory that a process takes besides its slot in the list.
pub(crate) const PROCESS_BYTES: u64 = COMMAND_QUEUE_BYTES;
