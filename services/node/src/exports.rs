//! Exports of a process: memory made usable by the NIC, offered by name, and taken back.

use alloc::string::String;
use alloc::vec::Vec;

use mapwire_nic::{Export, Landing, NicError};
use mapwire_translation::{PageRange, PinPages, TranslationDesign};
use mapwire_vmmc::{Importers, Offer};
use mapwire_wire::{ExportId, Key, MappedPart, ProcessId, Rights, TraceOp};

use crate::error::{ExportError, HostErrorOf};
use crate::node::Node;

/// What a process asks to export.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// Under which name.
    pub name: String,
    /// What importers must show: unguessable.
    pub key: Key,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// Who they may be.
    pub importers: Importers,
    /// Which of the bytes importers may map (the direct path).
    pub direct: Option<MappedPart>,
}

/// An export of a process.
#[derive(Debug)]
struct Exported {
    id: ExportId,
    length: u64,
    is_direct: bool,
    /// Pages that stay pinned as long as the export stands (VMMC §4.4).
    held: Vec<PageRange>,
    /// Those of the buffer that it is redirected to.
    landing: Option<PageRange>,
}

/// The exports of a process.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    list: Vec<Exported>,
    /// Pages of former landings, with the export whose fetches may still read them.
    left: Vec<(ExportId, PageRange)>,
}

impl Exports {
    /// Which there are.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ExportId> {
        self.list.iter().map(|export| export.id)
    }
}

impl<D: TranslationDesign> Node<D> {
    /// Exports memory of a process.
    ///
    /// Pages that packets are stored to are pinned first (VMMC §4.4): all, or those at the edges of what importers map. What they map
    /// is not pinned: the mappings keep its pages, and the MMU translates.
    ///
    /// # Errors
    /// Empty range, no rights, name taken, limit on pinned pages, NIC memory. Nothing is exported then.
    pub fn export<P: PinPages<Error: core::error::Error>>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        request: ExportRequest,
    ) -> Result<ExportId, ExportError<P::Error>> {
        if request.length == 0 {
            return Err(ExportError::Empty);
        }
        if request.rights.is_empty() {
            return Err(ExportError::NoRights);
        }
        let edges = match request.direct {
            None => [(0, request.length), (0, 0)],
            Some(part) => {
                let end = part.offset + part.bytes;
                [(0, part.offset), (end, request.length - end)]
            }
        };
        let mut held = Vec::new();
        for (offset, bytes) in edges {
            if bytes == 0 {
                continue;
            }
            let pinned = PageRange::covering(request.address + offset, bytes)
                .map_err(ExportError::from)
                .and_then(|range| Ok(self.hold_export(process, pinner, range).map(|()| range)?));
            match pinned {
                Ok(range) => held.push(range),
                Err(error) => {
                    self.release_exported(process, &held);
                    return Err(error);
                }
            }
        }
        let outcome = self.enter_export(process, request, &held);
        match outcome {
            Ok(_) => {
                for range in held {
                    self.note_pages(process, TraceOp::Export, range);
                }
            }
            Err(_) => self.release_exported(process, &held),
        }
        outcome
    }

    /// Puts an export whose pages are held into the tables, and offers it.
    fn enter_export<E: core::error::Error>(
        &mut self,
        process: ProcessId,
        request: ExportRequest,
        held: &[PageRange],
    ) -> Result<ExportId, ExportError<E>> {
        let entry = Export {
            process,
            key: request.key,
            address: request.address,
            length: request.length,
            rights: request.rights,
            landing: None,
        };
        let id = self.nic.export(entry)?;
        let offer = Offer {
            name: request.name,
            export: id,
            key: request.key,
            length: request.length,
            rights: request.rights,
            importers: request.importers,
            direct: request.direct,
        };
        let Some(state) = self.processes.get_mut(process) else {
            let _ = self.nic.revoke(id);
            return Err(NicError::UnknownProcess(process).into());
        };
        self.has_actions = true;
        // Importers that wait for the name are answered at the next look at the actions.
        if let Err(error) = state.vmmc.offer(offer) {
            let _ = self.nic.revoke(id);
            return Err(error.into());
        }
        state.exports.list.push(Exported {
            id,
            length: request.length,
            is_direct: request.direct.is_some(),
            held: held.to_vec(),
            landing: None,
        });
        Ok(id)
    }

    fn hold_export<P: PinPages>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        range: PageRange,
    ) -> Result<(), HostErrorOf<P>> {
        self.note_lookups();
        let events = self.events.as_mut();
        match self.processes.get_mut(process) {
            Some(state) => state
                .pages
                .hold_export(&mut self.nic, pinner, events, range),
            None => Err(HostErrorOf::<P>::Nic(NicError::UnknownProcess(process))),
        }
    }

    fn release_exported(&mut self, process: ProcessId, held: &[PageRange]) {
        if let Some(state) = self.processes.get_mut(process) {
            for range in held {
                state.pages.release_export(*range);
            }
        }
    }

    /// Takes an export back, at once: packets for it are refused from here on.
    ///
    /// # Errors
    /// There is no such export.
    pub fn unexport(&mut self, process: ProcessId, id: ExportId) -> Result<(), NicError> {
        let is_theirs = |entry: &Export| entry.process == process;
        if !self.nic.exported(id).is_some_and(is_theirs) {
            return Err(NicError::UnknownExport(id.0));
        }
        self.nic.revoke(id)?;
        let Some(state) = self.processes.get_mut(process) else {
            return Ok(());
        };
        self.has_actions = true;
        state.vmmc.withdraw(id);
        let exports = &mut state.exports;
        let Some(at) = exports.list.iter().position(|other| other.id == id) else {
            return Ok(());
        };
        let export = exports.list.remove(at);
        exports.left.extend(export.landing.map(|range| (id, range)));
        self.release_exported(process, &export.held);
        for range in export.held {
            self.note_pages(process, TraceOp::Unexport, range);
        }
        self.release_landings();
        Ok(())
    }

    /// Lets a buffer of the process stand for an export, or ends that (UTLB §4.1, transfer redirection): stores land there and
    /// fetches read there. What is under way when this is called uses either.
    ///
    /// # Errors
    /// No such export; one that importers have mapped; a buffer shorter than the export; the limit on pinned pages.
    pub fn redirect<P: PinPages<Error: core::error::Error>>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        id: ExportId,
        to: Option<Landing>,
    ) -> Result<(), ExportError<P::Error>> {
        let unknown = NicError::UnknownExport(id.0);
        let exports = self.processes.get(process).map(|state| &state.exports);
        let export = exports.and_then(|exports| exports.list.iter().find(|other| other.id == id));
        let Some(export) = export else {
            return Err(unknown.into());
        };
        if export.is_direct {
            return Err(ExportError::RedirectsDirect);
        }
        let mut held = None;
        if let Some(landing) = to {
            if landing.length < export.length {
                return Err(ExportError::ShortLanding {
                    landing_bytes: landing.length,
                    export_bytes: export.length,
                });
            }
            let range = PageRange::covering(landing.address, landing.length)?;
            self.hold_export(process, pinner, range)?;
            held = Some(range);
        }
        if let Err(error) = self.nic.redirect(id, to) {
            self.release_exported(process, held.as_slice());
            return Err(error.into());
        }
        if let Some(range) = held {
            self.note_pages(process, TraceOp::Export, range);
        }
        if let Some(state) = self.processes.get_mut(process) {
            let exports = &mut state.exports;
            if let Some(export) = exports.list.iter_mut().find(|other| other.id == id) {
                let former = core::mem::replace(&mut export.landing, held);
                exports.left.extend(former.map(|range| (id, range)));
            }
        }
        self.release_landings();
        Ok(())
    }

    /// Gives up the former landings that no fetch reads any more.
    pub(crate) fn release_landings(&mut self) {
        let nic = &self.nic;
        let mut noted = Vec::new();
        for state in self.processes.iter_mut() {
            let is_over = |left: &mut (ExportId, PageRange)| !nic.is_answering(left.0);
            for (_, range) in state.exports.left.extract_if(.., is_over) {
                state.pages.release_export(range);
                noted.push((state.id, range));
            }
        }
        for (process, range) in noted {
            self.note_pages(process, TraceOp::Unexport, range);
        }
    }

    /// Whether a fetch may still read a place that an export was redirected to before.
    #[must_use]
    pub fn reads_former_landing(&self, export: ExportId) -> bool {
        let mut processes = self.processes.iter();
        processes.any(|state| state.exports.left.iter().any(|(of, _)| *of == export))
    }

    /// How many imports of an export are held.
    #[must_use]
    pub fn holders(&self, process: ProcessId, id: ExportId) -> usize {
        let state = self.processes.get(process);
        state
            .and_then(|state| state.vmmc.holders(id))
            .unwrap_or_default()
    }
}
