//! The network interface.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mapwire_translation::{Frame, Page, Process as TableOwner, TranslationDesign};
use mapwire_wire::{ExportId, HandlerId, ImportId, Key, NodeId, ProcessId};

use crate::actions::{Completion, Dma};
use crate::budget::{BudgetRow, MemoryBreakdown};
use crate::counters::Counters;
use crate::dispatch::{Dispatch, HandlerTarget};
use crate::error::{CommandError, NicError};
use crate::exports::{Export, Exports, Landing};
use crate::fetches::Fetches;
use crate::imports::{Import, Imports};
use crate::processes::Process;
use crate::receive::Reply;
use crate::slots::{MAX_ENTRIES, Slots};
use crate::transmit::{Links, Transmit};

/// Bytes of one process's command queue, which lies in NIC memory (VMMC §4.5): 64 entries of 192 B.
const COMMAND_QUEUE_BYTES: u64 = 64 * 192;

/// What a NIC is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its own number.
    pub node: NodeId,
    /// What each node, by number, must show when it answers a fetch: random, one for each, this node included. Their number
    /// is the number of nodes.
    pub reply_keys: Vec<Key>,
    /// Bytes of NIC memory; every table is charged to it.
    pub memory_bytes: u64,
}

/// A network interface: the state of one node's firmware.
///
/// There are four kinds of method:
///
/// * set-up, which changes a table at the host's request: [`open_process`](Self::open_process), [`export`](Self::export),
///   [`import`](Self::import), [`install_handler`](Self::install_handler) and their opposites;
/// * `handle_*`, which take what came: [`handle_command`](Self::handle_command), [`handle_packet`](Self::handle_packet),
///   [`handle_dma_done`](Self::handle_dma_done), [`handle_transmitted`](Self::handle_transmitted) and
///   [`handle_transmit_blocked`](Self::handle_transmit_blocked);
/// * `poll_*`, which give what is to be done: [`poll_transmit`](Self::poll_transmit), [`poll_dma`](Self::poll_dma),
///   [`poll_completion`](Self::poll_completion);
/// * getters.
///
/// After each `handle_*`, drain `poll_dma` (doing and reporting each) and then `poll_completion`; drain `poll_transmit` when
/// commands were taken or packets handled. Order within each `poll_*` is the order in which things must be done.
#[derive(Debug)]
pub struct Nic<D> {
    node: NodeId,
    memory_bytes: u64,
    pub(crate) translation: D,
    pub(crate) processes: Vec<Process>,
    pub(crate) next_process: usize,
    /// Processes that have a long send under way.
    pub(crate) cutting: usize,
    pub(crate) exports: Exports,
    pub(crate) imports: Imports,
    pub(crate) fetches: Fetches,
    pub(crate) dispatch: Dispatch,
    pub(crate) links: Links,
    /// For each node, the start and the bytes so far of a message that comes in chunks.
    pub(crate) inbound: Vec<Option<(u64, u64)>>,
    pub(crate) dma: VecDeque<Dma>,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) counters: Counters,
}

impl<D: TranslationDesign> Nic<D> {
    /// A NIC of node `config.node` with links to all nodes of the job, translating by `translation`.
    ///
    /// # Errors
    /// [`NicError::OutOfNicMemory`] when the translation design and the links alone are larger than the budget;
    /// [`NicError::UnknownNode`] when `config.node` has no reply key.
    pub fn new(config: Config, translation: D) -> Result<Self, NicError> {
        let nodes = config.reply_keys.len();
        if usize::from(config.node.0) >= nodes {
            return Err(NicError::UnknownNode(config.node, nodes));
        }
        let nic = Self {
            node: config.node,
            memory_bytes: config.memory_bytes,
            translation,
            processes: Vec::new(),
            next_process: 0,
            cutting: 0,
            exports: Exports(Slots::new()),
            imports: Imports(Slots::new()),
            fetches: Fetches::new(config.reply_keys),
            dispatch: Dispatch::default(),
            links: Links::new(nodes),
            inbound: alloc::vec![None; nodes],
            dma: VecDeque::with_capacity(16),
            completions: VecDeque::with_capacity(64),
            replies: Vec::new(),
            counters: Counters::default(),
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
        self.links.nodes()
    }

    /// Gives a process a command queue and a translation table.
    ///
    /// # Errors
    /// [`NicError::ProcessOpen`], or [`NicError::OutOfNicMemory`] when its queue does not fit.
    pub fn open_process(&mut self, process: ProcessId) -> Result<(), NicError> {
        if self.process(process).is_some() {
            return Err(NicError::ProcessOpen(process));
        }
        self.charge("a command queue", COMMAND_QUEUE_BYTES)?;
        self.translation.open(TableOwner(process.0))?;
        self.processes.push(Process::new(process));
        Ok(())
    }

    /// Takes a process away with all its exports, imports and translations. What is under way for it is dropped.
    pub fn close_process(&mut self, process: ProcessId) {
        let Some(index) = self.processes.iter().position(|entry| entry.id == process) else {
            return;
        };
        if self.processes.remove(index).sending.is_some() {
            self.cutting -= 1;
        }
        self.next_process = 0;
        let exports: Vec<u32> = self
            .exports
            .0
            .iter()
            .filter(|(_, export)| export.process == process)
            .map(|(id, _)| id)
            .collect();
        for id in exports {
            self.exports.0.remove(id);
        }
        let imports: Vec<u32> = self
            .imports
            .0
            .iter()
            .filter(|(_, import)| import.process == process)
            .map(|(id, _)| id)
            .collect();
        for id in imports {
            self.imports.0.remove(id);
        }
        let fetches: Vec<u32> = self
            .fetches
            .asked
            .iter()
            .filter(|(_, fetch)| fetch.process == process)
            .map(|(id, _)| id)
            .collect();
        for id in fetches {
            self.fetches.asked.remove(id);
        }
        // The table is there: it was opened with the process.
        let _ = self.translation.close(TableOwner(process.0));
    }

    /// Offers a range to other nodes. Its pages must be pinned ([`Nic::install_translation`]) before the first packet for it
    /// comes; what comes for an unpinned page is lost in the garbage frame.
    ///
    /// # Errors
    /// When the range passes the end of the address space, the process is unknown, or memory or table are full.
    pub fn export(&mut self, export: Export) -> Result<ExportId, NicError> {
        check_range(export.address, export.length)?;
        self.process(export.process)
            .ok_or(NicError::UnknownProcess(export.process))?;
        self.charge("an export", size_of::<Export>() as u64)?;
        let full = NicError::TableFull {
            what: "export",
            limit: MAX_ENTRIES,
        };
        self.exports.0.insert(export).map(ExportId).ok_or(full)
    }

    /// Takes an export away at once: from here on every packet for it is refused.
    ///
    /// # Errors
    /// [`NicError::UnknownExport`].
    pub fn revoke(&mut self, export: ExportId) -> Result<Export, NicError> {
        self.exports
            .0
            .remove(export.0)
            .ok_or(NicError::UnknownExport(export.0))
    }

    /// Lets stores for an export land in another buffer of the same process from here on, or in the export itself again
    /// (UTLB §4.1). Offsets count from the start of the landing; what passes its end is refused.
    ///
    /// # Errors
    /// [`NicError::UnknownExport`], or [`NicError::BadRange`].
    pub fn redirect(&mut self, export: ExportId, landing: Option<Landing>) -> Result<(), NicError> {
        if let Some(landing) = landing {
            check_range(landing.address, landing.length)?;
        }
        let entry = self
            .exports
            .0
            .get_mut(export.0)
            .ok_or(NicError::UnknownExport(export.0))?;
        entry.landing = landing;
        Ok(())
    }

    /// Enters what a process has imported.
    ///
    /// # Errors
    /// When the process or node is unknown, or memory or table are full.
    pub fn import(&mut self, import: Import) -> Result<ImportId, NicError> {
        self.process(import.process)
            .ok_or(NicError::UnknownProcess(import.process))?;
        if !self.links.has(import.node) {
            return Err(NicError::UnknownNode(import.node, self.links.nodes()));
        }
        self.charge("an import", size_of::<Import>() as u64)?;
        let full = NicError::TableFull {
            what: "import",
            limit: MAX_ENTRIES,
        };
        self.imports.0.insert(import).map(ImportId).ok_or(full)
    }

    /// The import that `id` names.
    #[must_use]
    pub fn imported(&self, id: ImportId) -> Option<&Import> {
        self.imports.0.get(id.0)
    }

    /// Gives an import up.
    pub fn release(&mut self, id: ImportId) -> Option<Import> {
        self.imports.0.remove(id.0)
    }

    /// The exporter has revoked `export`: marks the imports of it and gives their ids.
    pub fn handle_revoked(&mut self, from: NodeId, export: ExportId) -> Vec<ImportId> {
        let ids: Vec<u32> = self
            .imports
            .0
            .iter()
            .filter(|(_, import)| import.node == from && import.export == export)
            .map(|(id, _)| id)
            .collect();
        for &id in &ids {
            if let Some(import) = self.imports.0.get_mut(id) {
                import.revoked = true;
            }
        }
        ids.into_iter().map(ImportId).collect()
    }

    /// A node is gone: what waits for it fails, and so do fetches from it.
    pub fn handle_peer_gone(&mut self, node: NodeId) {
        let error = CommandError::PeerGone(node);
        let completions = &mut self.completions;
        self.links.clear(node, |process, completion| {
            completions.push_back(Completion::Failed {
                process,
                completion: Some(completion),
                error,
            });
        });
        for process in &mut self.processes {
            if let Some(sending) = process.sending.take_if(|sending| sending.to == node) {
                self.cutting -= 1;
                let completion = Some(sending.completion);
                completions.push_back(Completion::Failed {
                    process: process.id,
                    completion,
                    error,
                });
            }
        }
        let fetches: Vec<u32> = self
            .fetches
            .asked
            .iter()
            .filter(|(_, fetch)| fetch.from == node)
            .map(|(id, _)| id)
            .collect();
        for id in fetches {
            if let Some(fetch) = self.fetches.asked.remove(id) {
                let completion = Some(fetch.completion);
                completions.push_back(Completion::Failed {
                    process: fetch.process,
                    completion,
                    error,
                });
            }
        }
        if let Some(serving) = self.fetches.serving.get_mut(usize::from(node.0)) {
            self.fetches.serving_count -= serving.len();
            serving.clear();
        }
        if let Some(inbound) = self.inbound.get_mut(usize::from(node.0)) {
            *inbound = None;
        }
    }

    /// Selects who takes the packets of a handler id.
    ///
    /// # Errors
    /// [`NicError::HandlerTaken`], or [`NicError::TableFull`] for an id beyond the table.
    pub fn install_handler(
        &mut self,
        id: HandlerId,
        target: HandlerTarget,
    ) -> Result<(), NicError> {
        self.dispatch.install(id, target)
    }

    /// The driver has pinned `page` of `process` as `frame` (UTLB §3.3).
    ///
    /// # Errors
    /// When the process is unknown or the page is outside what the design can name.
    pub fn install_translation(
        &mut self,
        process: ProcessId,
        page: Page,
        frame: Frame,
    ) -> Result<(), NicError> {
        Ok(self
            .translation
            .install(TableOwner(process.0), page, frame)?)
    }

    /// The driver is about to unpin `page` of `process`: no transfer that starts later will use its frame.
    ///
    /// # Errors
    /// As [`install_translation`](Self::install_translation).
    pub fn remove_translation(&mut self, process: ProcessId, page: Page) -> Result<(), NicError> {
        Ok(self.translation.remove(TableOwner(process.0), page)?)
    }

    /// The frame under which `page` of `process` is installed, the garbage frame if it is not. Counts no lookup and leaves
    /// the translation cache as it is.
    #[must_use]
    pub fn frame_of(&self, process: ProcessId, page: Page) -> Frame {
        self.translation.installed(TableOwner(process.0), page)
    }

    /// The next packet to transmit. Transmit it, then call [`handle_transmitted`](Self::handle_transmitted); or call
    /// [`handle_transmit_blocked`](Self::handle_transmit_blocked) when the transport has no room. `None` when nothing waits,
    /// or all that waits is blocked.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<&Transmit> {
        // Looking first and borrowing again is what the borrow checker can follow; the second look is cheap.
        if self.links.peek().is_none()
            && !((self.cutting > 0 || self.fetches.serving_count > 0) && self.cut_next_chunk())
        {
            return None;
        }
        self.links.peek()
    }

    /// The packet that [`poll_transmit`](Self::poll_transmit) gave for `to` is out.
    #[inline]
    pub fn handle_transmitted(&mut self, to: NodeId) {
        let Some(transmit) = self.links.pop(to) else {
            return;
        };
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += u64::from(transmit.header.payload_bytes());
        if let Some((process, completion)) = transmit.done {
            self.completions.push_back(Completion::Done {
                process,
                completion,
            });
        }
    }

    /// The transport has no room for packets to `to`; nothing more is offered for it until
    /// [`handle_transmit_ready`](Self::handle_transmit_ready).
    pub fn handle_transmit_blocked(&mut self, to: NodeId) {
        self.links.set_blocked(to, true);
    }

    /// The transport may have room for packets to `to` again.
    pub fn handle_transmit_ready(&mut self, to: NodeId) {
        self.links.set_blocked(to, false);
    }

    /// The next memory move, to be done in this order.
    #[inline]
    pub fn poll_dma(&mut self) -> Option<Dma> {
        self.dma.pop_front()
    }

    /// The next thing to tell.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Whether nothing of this NIC's is on its way to `node`: all its commands are done and packets out.
    #[must_use]
    pub fn idle_towards(&self, node: NodeId) -> bool {
        self.links.waiting_for(node) == 0
            && (self.cutting == 0
                || self
                    .processes
                    .iter()
                    .all(|process| process.sending.is_none_or(|sending| sending.to != node)))
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

    /// What is in the NIC's memory.
    #[must_use]
    pub fn memory(&self) -> MemoryBreakdown {
        let mut rows = Vec::new();
        let mut row = |what, bytes| rows.push(BudgetRow { what, bytes });
        for (what, bytes) in self.translation.nic_memory() {
            row(what, bytes as u64);
        }
        row(
            "command queues",
            self.processes.len() as u64 * COMMAND_QUEUE_BYTES,
        );
        row(
            "export table",
            (self.exports.0.len() * size_of::<Export>()) as u64,
        );
        row(
            "import table",
            (self.imports.0.len() * size_of::<Import>()) as u64,
        );
        row("fetch table", self.fetches.bytes());
        row("transmit queues", self.links.bytes());
        row("handler dispatch", self.dispatch.bytes());
        MemoryBreakdown {
            budget_bytes: self.memory_bytes,
            rows,
        }
    }

    fn charge(&self, what: &'static str, needed_bytes: u64) -> Result<(), NicError> {
        let used = self.memory().used_bytes();
        let left_bytes = self.memory_bytes.saturating_sub(used);
        if used > self.memory_bytes || needed_bytes > left_bytes {
            return Err(NicError::OutOfNicMemory {
                what,
                needed_bytes: needed_bytes.max(used.saturating_sub(self.memory_bytes)),
                left_bytes,
            });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn process(&self, process: ProcessId) -> Option<&Process> {
        self.processes.iter().find(|entry| entry.id == process)
    }

    #[inline]
    pub(crate) fn process_mut(&mut self, process: ProcessId) -> Option<&mut Process> {
        self.processes.iter_mut().find(|entry| entry.id == process)
    }
}

fn check_range(address: u64, length: u64) -> Result<(), NicError> {
    address
        .checked_add(length)
        .map(drop)
        .ok_or(NicError::BadRange { address, length })
}
