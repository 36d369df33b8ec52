//! Exports of a process: memory made usable by the NIC, offered by name, and taken back.

use alloc::string::String;
use alloc::vec::Vec;

use mapwire_nic::{Export, Landing, Nic, NicError};
use mapwire_translation::{PageRange, PinPages, Pinning, TranslationDesign};
use mapwire_vmmc::{Importers, Offer};
use mapwire_wire::{ExportId, Key, MappedPart, Rights, TraceOp};

use super::{Exported, Process};
use crate::error::ExportError;
use crate::tracing::Trace;

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
    /// Pages are pinned when packets for them come, rather than now, where the translation design checks pages before a transfer.
    pub pins_late: bool,
}

impl Process {
    pub(crate) fn export<D: TranslationDesign, P: PinPages<Error: core::error::Error>>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        pinner: &mut P,
        request: ExportRequest,
        pins_all: bool,
    ) -> Result<ExportId, ExportError<P::Error>> {
        if request.length == 0 {
            return Err(ExportError::Empty);
        }
        if request.rights.is_empty() {
            return Err(ExportError::NoRights);
        }
        let design = nic.translation();
        let pins_late = request.pins_late && design.pinning() == Pinning::BeforeTransfer;
        let edges = match request.direct.filter(|_| !pins_all) {
            None if pins_late => [(0, 0), (0, 0)],
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
            let pinned =
                PageRange::covering(request.address + offset, bytes).map_err(ExportError::from).and_then(|range| {
                    self.pages.hold_export(nic, pinner, trace, range)?;
                    Ok(range)
                });
            match pinned {
                Ok(range) => held.push(range),
                Err(error) => {
                    self.release_all(&held);
                    return Err(error);
                }
            }
        }
        match self.offer(nic, request, held.clone()) {
            Ok(id) => {
                if pins_late {
                    nic.pin_late(id)?;
                }
                for range in held {
                    self.pages.note(nic, trace, TraceOp::Export, range);
                }
                Ok(id)
            }
            Err(error) => {
                self.release_all(&held);
                Err(error)
            }
        }
    }

    /// Puts an export whose pages are held into the tables, and offers it.
    fn offer<D: TranslationDesign, E: core::error::Error>(
        &mut self,
        nic: &mut Nic<D>,
        request: ExportRequest,
        held: Vec<PageRange>,
    ) -> Result<ExportId, ExportError<E>> {
        let (length, is_direct) = (request.length, request.direct.is_some());
        let id = nic.export(Export {
            process: self.id,
            key: request.key,
            address: request.address,
            length,
            rights: request.rights,
            landing: None,
        })?;
        let offered = self.vmmc.offer(Offer {
            name: request.name,
            export: id,
            key: request.key,
            length,
            rights: request.rights,
            importers: request.importers,
            direct: request.direct,
        });
        if let Err(error) = offered {
            let _ = nic.revoke(id);
            return Err(error.into());
        }
        self.exports.list.push(Exported { id, length, is_direct, held, landing: None });
        Ok(id)
    }

    fn release_all(&mut self, held: &[PageRange]) {
        for range in held {
            self.pages.release_export(*range);
        }
    }

    pub(crate) fn unexport<D: TranslationDesign>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        id: ExportId,
    ) -> Result<(), NicError> {
        let list = &mut self.exports.list;
        let Some(at) = list.iter().position(|other| other.id == id) else { return Err(NicError::UnknownExport(id.0)) };
        nic.revoke(id)?;
        let export = list.remove(at);
        self.vmmc.withdraw(id);
        self.exports.left.extend(export.landing.map(|range| (id, range)));
        self.release_all(&export.held);
        for range in export.held {
            self.pages.note(nic, trace, TraceOp::Unexport, range);
        }
        self.release_landings(nic, trace);
        Ok(())
    }

    pub(crate) fn redirect<D: TranslationDesign, P: PinPages<Error: core::error::Error>>(
        &mut self,
        nic: &mut Nic<D>,
        trace: &mut Trace,
        pinner: &mut P,
        id: ExportId,
        to: Option<Landing>,
    ) -> Result<(), ExportError<P::Error>> {
        let mut list = self.exports.list.iter();
        let Some(export) = list.find(|other| other.id == id) else { return Err(NicError::UnknownExport(id.0).into()) };
        if export.is_direct {
            return Err(ExportError::RedirectsDirect);
        }
        let mut held = None;
        if let Some(landing) = to {
            if landing.length < export.length {
                return Err(ExportError::ShortLanding { landing_bytes: landing.length, export_bytes: export.length });
            }
            let range = PageRange::covering(landing.address, landing.length)?;
            self.pages.hold_export(nic, pinner, trace, range)?;
            held = Some(range);
        }
        if let Err(error) = nic.redirect(id, to) {
            self.release_all(held.as_slice());
            return Err(error.into());
        }
        if let Some(range) = held {
            self.pages.note(nic, trace, TraceOp::Export, range);
        }
        let exports = &mut self.exports;
        if let Some(export) = exports.list.iter_mut().find(|other| other.id == id) {
            let former = core::mem::replace(&mut export.landing, held);
            exports.left.extend(former.map(|range| (id, range)));
        }
        self.release_landings(nic, trace);
        Ok(())
    }

    /// Gives up the former landings that no fetch reads any more.
    pub(super) fn release_landings<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, trace: &mut Trace) {
        let mut at = 0;
        while let Some(&(export, range)) = self.exports.left.get(at) {
            if nic.is_answering(export) {
                at += 1;
            } else {
                self.exports.left.swap_remove(at);
                self.pages.release_export(range);
                self.pages.note(nic, trace, TraceOp::Unexport, range);
            }
        }
    }

    /// Whether a fetch may still read a place that an export was redirected to before.
    pub(crate) fn reads_former_landing(&self, export: ExportId) -> bool {
        self.exports.left.iter().any(|(of, _)| *of == export)
    }

    /// Withdraws all exports; their importers are told by the messages that the model asks for.
    pub(crate) fn withdraw_all(&mut self) {
        for export in self.exports.list.drain(..) {
            self.vmmc.withdraw(export.id);
        }
    }
}
