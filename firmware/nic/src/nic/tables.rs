//! Set-up: what the host enters into the NIC's tables. Removal is in [`super::leaving`].

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
        // The design charges the memory of a process only once it has allocated it.
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

    /// Offers a range to other nodes. Its pages must be [installed](NicSide::install_pages) before the first packet for it
    /// arrives; data for an unpinned page is lost in the garbage frame.
    ///
    /// # Errors
    /// If the range passes the end of the address space, the process is unknown, the key is zero, or memory or table are full.
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

    /// Adds `rights` to those that `node` has on an export. From the first grant on, only nodes with a grant may use the export:
    /// another's key is useless to them. A node that is gone, or restarts, loses its grants.
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

    /// Pins the pages of an export only when packets for them arrive: the host is asked, and a packet that lacks a page
    /// [waits](super::receive::Verdict::Wait) or is sent again. For designs that check pages before a transfer; others have their
    /// own method.
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

    /// Redirects an export to another buffer of the same process (stores land there and fetches read there), or back to the
    /// export itself (UTLB §4.1). Offsets count from the start of the landing; what passes its end is refused. A message under
    /// way is split: its later packets land in the new buffer. A fetch being served reads the old one to its end: see
    /// [`is_answering`](Self::is_answering).
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

    /// Enters an import of a process.
    ///
    /// # Errors
    /// If the process or node is unknown, or memory or table are full.
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
            // The host that made a command holds the memory that it reads.
            if let (Work::Reply { .. }, &Source::Memory { process, address, piece, .. }) =
                (transmit.work(), &transmit.source)
                && process.0 == owner.0
            {
                pages.extend(PageRange::covering(address, u64::from(piece.length)));
            }
        }
        // For a fetch that goes on, the page at which its next chunk begins.
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
