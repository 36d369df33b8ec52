//! Set-up: what the host enters into the NIC's tables. What takes things away is in [`crate::leaving`].

use alloc::vec::Vec;

use mapwire_translation::{Frame, NicSide, Page, PageRange, Process as TableOwner, TranslationDesign};
use mapwire_wire::{ExportId, HandlerId, ImportId, Key, NodeId, ProcessId, Rights};

use super::{Nic, PROCESS_BYTES};
use crate::error::NicError;
use crate::exports::{Export, Landing};
use crate::imports::Import;
use crate::slots::MAX_ENTRIES;
use crate::transmit::{Source, Work};

impl<D: TranslationDesign> Nic<D> {
    /// Gives a process a command queue and a translation table. Numbers are those of queues, so they should be small: the process
    /// list is as long as the highest.
    ///
    /// # Errors
    /// [`NicError::ProcessOpen`], or [`NicError::OutOfNicMemory`] when its queue does not fit.
    pub fn open_process(&mut self, process: ProcessId) -> Result<(), NicError> {
        if self.processes.get(process).is_some() {
            return Err(NicError::ProcessOpen(process));
        }
        let growth = self.processes.growth_bytes(process) as u64;
        self.charge("a command queue", PROCESS_BYTES + growth)?;
        self.translation.open(TableOwner(process.0))?;
        self.processes.open(process);
        // The design charges what it takes for a process only once it has taken it.
        if let Err(error) = self.charge("a translation table", 0) {
            self.close_process(process);
            return Err(error);
        }
        Ok(())
    }

    fn check_open(&self, process: ProcessId) -> Result<(), NicError> {
        match self.processes.get(process) {
            Some(_) => Ok(()),
            None => Err(NicError::UnknownProcess(process)),
        }
    }

    /// Offers a range to other nodes. Its pages must be pinned ([`Nic::install_translation`]) before the first packet for it
    /// comes; what comes for an unpinned page is lost in the garbage frame.
    ///
    /// # Errors
    /// When the range passes the end of the address space, the process is unknown, the key is all zeros, or memory or table are
    /// full.
    pub fn export(&mut self, export: Export) -> Result<ExportId, NicError> {
        check_range(export.address, export.length)?;
        if let Some(landing) = export.landing {
            check_range(landing.address, landing.length)?;
        }
        if export.key == Key::ZERO {
            return Err(NicError::ZeroKey);
        }
        self.check_open(export.process)?;
        self.charge("an export", self.exports.growth_bytes() as u64)?;
        let full = NicError::TableFull { what: "export", limit: MAX_ENTRIES };
        self.exports.insert(export).map(ExportId).ok_or(full)
    }

    /// Lets `node` use an export with `rights`, besides what it may already. From the first grant on, only nodes that have one may use the
    /// export: the key of another is of no use to them. A node that is gone, or restarts, loses its grants.
    ///
    /// # Errors
    /// [`NicError::UnknownExport`], [`NicError::UnknownNode`], [`NicError::OutOfNicMemory`].
    pub fn grant(&mut self, export: ExportId, node: NodeId, rights: Rights) -> Result<(), NicError> {
        if !self.outbound.has(node) {
            return Err(NicError::UnknownNode(node, self.outbound.nodes()));
        }
        let bytes = self.exports.grant_bytes(export, node);
        self.charge("a grant", bytes as u64)?;
        match self.exports.grant(export, node, rights) {
            true => Ok(()),
            false => Err(NicError::UnknownExport(export.0)),
        }
    }

    /// Has the pages of an export pinned when packets for them come: the host is asked, and what lacks a page
    /// [waits](super::receive::Verdict::Wait) or is sent again. For designs that check pages before a transfer; others have their own way.
    ///
    /// # Errors
    /// [`NicError::UnknownExport`].
    pub fn pin_late(&mut self, export: ExportId) -> Result<(), NicError> {
        if self.exports.get(export.0).is_none() {
            return Err(NicError::UnknownExport(export.0));
        }
        self.pinned_late.push(export);
        Ok(())
    }

    /// Lets stores for an export land in another buffer of the same process from here on, and fetches read there, or in the export
    /// itself again (UTLB §4.1). Offsets count from the start of the landing; what passes its end is refused. A message that is
    /// under way is split: its later packets land in the new place. A fetch that is being served reads the old place to its end:
    /// see [`is_answering`](Self::is_answering).
    ///
    /// # Errors
    /// [`NicError::UnknownExport`], or [`NicError::BadRange`].
    pub fn redirect(&mut self, export: ExportId, landing: Option<Landing>) -> Result<(), NicError> {
        if let Some(landing) = landing {
            check_range(landing.address, landing.length)?;
        }
        let entry = self.exports.get_mut(export.0).ok_or(NicError::UnknownExport(export.0))?;
        entry.landing = landing;
        Ok(())
    }

    /// Enters what a process has imported.
    ///
    /// # Errors
    /// When the process or node is unknown, or memory or table are full.
    pub fn import(&mut self, import: Import) -> Result<ImportId, NicError> {
        self.check_open(import.process)?;
        if !self.outbound.has(import.node) {
            return Err(NicError::UnknownNode(import.node, self.outbound.nodes()));
        }
        self.charge("an import", self.imports.growth_bytes() as u64)?;
        let full = NicError::TableFull { what: "import", limit: MAX_ENTRIES };
        self.imports.insert(import).map(ImportId).ok_or(full)
    }

    /// Has the packets of a handler id delivered to the host, as [`crate::Completion::Message`].
    ///
    /// # Errors
    /// [`NicError::HandlerTaken`], [`NicError::OutOfNicMemory`], or [`NicError::TableFull`] for an id beyond the table, which has
    /// 256 entries.
    pub fn install_handler(&mut self, id: HandlerId) -> Result<(), NicError> {
        self.charge("a handler", self.dispatch.growth_bytes(id) as u64)?;
        self.dispatch.install(id)
    }

    /// The driver has pinned `page` of `process` as `frame` (UTLB §3.3).
    ///
    /// # Errors
    /// When the process is unknown, the page is outside what the design can name, or the design needs more NIC memory for it than
    /// there is; the page is not installed then.
    pub fn install_translation(&mut self, process: ProcessId, page: Page, frame: Frame) -> Result<(), NicError> {
        let owner = TableOwner(process.0);
        self.translation.install(owner, page, frame)?;
        if let Err(error) = self.charge("a translation", 0) {
            self.translation.remove(owner, page)?;
            return Err(error);
        }
        Ok(())
    }

    /// The driver is about to unpin `page` of `process`: no transfer that starts later will use its frame.
    ///
    /// # Errors
    /// When the process is unknown.
    pub fn remove_translation(&mut self, process: ProcessId, page: Page) -> Result<(), NicError> {
        Ok(self.translation.remove(TableOwner(process.0), page)?)
    }
}

/// The host's side of translation works on the NIC: what it installs is charged to the NIC's memory.
impl<D: TranslationDesign> NicSide for Nic<D> {
    type Design = D;
    type Error = NicError;

    #[inline]
    fn design(&self) -> &D {
        &self.translation
    }

    #[inline]
    fn design_mut(&mut self) -> &mut D {
        &mut self.translation
    }

    fn reading(&self, owner: TableOwner, pages: &mut Vec<PageRange>) {
        for transmit in self.outbound.packets() {
            // What a command reads is held by the host that made it.
            if let (Work::Reply { .. }, &Source::Memory { process, address, piece, .. }) =
                (transmit.work(), &transmit.source)
                && process.0 == owner.0
            {
                pages.extend(PageRange::covering(address, u64::from(piece.length)));
            }
        }
        // Of a fetch that goes on, the page that its next chunk begins with.
        let found = self.answers.found();
        let of_owner = found.filter(|(process, _)| process.0 == owner.0);
        pages.extend(of_owner.map(|(_, address)| PageRange::single(Page::containing(address))));
    }

    fn install_pages(&mut self, process: TableOwner, first: Page, frames: &[Frame]) -> Result<(), NicError> {
        self.translation.install_run(process, first, frames)?;
        if let Err(error) = self.charge("translations", 0) {
            let count = frames.len() as u64;
            for page in (PageRange { first, count }) {
                self.translation.remove(process, page)?;
            }
            return Err(error);
        }
        Ok(())
    }

    fn install_export(&mut self, process: TableOwner, page: Page, frame: Frame) -> Result<(), NicError> {
        self.translation.install_receive(process, page, frame)?;
        if let Err(error) = self.charge("the translation of an export", 0) {
            self.translation.remove(process, page)?;
            return Err(error);
        }
        Ok(())
    }
}

fn check_range(address: u64, length: u64) -> Result<(), NicError> {
    address.checked_add(length).map(drop).ok_or(NicError::BadRange { address, length })
}
