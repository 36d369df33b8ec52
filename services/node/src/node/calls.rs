//! Calls of programs: exports and imports of their processes.

use mapwire_nic::{Landing, NicError};
use mapwire_translation::{PinPages, TranslationDesign};
use mapwire_vmmc::{Grant, RequestId, VmmcError};
use mapwire_wire::{Endpoint, ExportId, ImportId, Key, NodeId, ProcessId, Rights};

use super::Node;
use crate::error::ExportError;
use crate::process::{ExportRequest, Granted, ImportError};

impl<D: TranslationDesign> Node<D> {
    /// Exports memory of a process.
    ///
    /// Pages that packets are stored to are pinned first (VMMC §4.4): all, or those at the edges of what importers map. What they map
    /// is not pinned: the mappings keep its pages, and the MMU translates. Where memory [cannot be passed](Self::set_apart) to some peers,
    /// all is pinned for their packets.
    ///
    /// # Errors
    /// Empty range, no rights, name taken, limit on pinned pages, NIC memory. Nothing is exported then.
    pub fn export<P: PinPages<Error: core::error::Error>>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        request: ExportRequest,
    ) -> Result<ExportId, ExportError<P::Error>> {
        let state = self.processes.get_mut(process).ok_or(NicError::UnknownProcess(process))?;
        // Importers that wait for the name are answered at the next look at the actions.
        self.has_actions = true;
        let pins_all = self.peers.has_apart();
        state.export(&mut self.nic, &mut self.trace, pinner, request, pins_all)
    }

    /// Takes an export back, at once: packets for it are refused from here on.
    ///
    /// # Errors
    /// The process has no such export.
    pub fn unexport(&mut self, process: ProcessId, id: ExportId) -> Result<(), NicError> {
        let state = self.processes.get_mut(process).ok_or(NicError::UnknownProcess(process))?;
        self.has_actions = true;
        state.unexport(&mut self.nic, &mut self.trace, id)
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
        let state = self.processes.get_mut(process).ok_or(NicError::UnknownProcess(process))?;
        state.redirect(&mut self.nic, &mut self.trace, pinner, id, to)
    }

    /// Whether a fetch may still read a place that an export was redirected to before.
    #[must_use]
    pub fn reads_former_landing(&self, export: ExportId) -> bool {
        self.processes.iter().any(|state| state.reads_former_landing(export))
    }

    /// Pages of a process that its transfers under way and its exports hold. None where nothing is ever unpinned to make room: pages are
    /// not held then.
    #[must_use]
    pub fn held_pages(&self, process: ProcessId) -> u64 {
        self.processes.get(process).map_or(0, |state| state.pages().host().table().held_pages())
    }

    /// How many imports of an export are held.
    #[must_use]
    pub fn holders(&self, process: ProcessId, id: ExportId) -> usize {
        self.processes.get(process).and_then(|state| state.vmmc().holders(id)).unwrap_or_default()
    }

    /// Whether a node holds an import of an export.
    #[must_use]
    pub fn is_held_by(&self, process: ProcessId, id: ExportId, by: NodeId) -> bool {
        self.processes.get(process).is_some_and(|state| state.vmmc().is_held_by(id, by))
    }

    /// Asks a process for an export, which it has `timeout_ns` to grant. The answer comes as [`outcome`](Self::outcome).
    ///
    /// # Errors
    /// An invalid name; a process of this node that is not open.
    #[allow(clippy::too_many_arguments)]
    pub fn ask_import(
        &mut self,
        now_ns: u64,
        process: ProcessId,
        from: Endpoint,
        name: &str,
        rights: Rights,
        token: Option<Key>,
        timeout_ns: u64,
    ) -> Result<RequestId, ImportError> {
        let state = self.processes.get_mut(process).ok_or(NicError::UnknownProcess(process))?;
        self.has_actions = true;
        let request = state.vmmc_mut().import(now_ns, from, name, rights, token, timeout_ns)?;
        if self.peers.is_gone(from.node) {
            state.forget(from.node);
        }
        Ok(request)
    }

    /// The outcome of an import that was asked for, when there is one.
    #[must_use]
    pub fn outcome(&self, process: ProcessId, request: RequestId) -> Option<&Result<Granted, VmmcError>> {
        self.processes.get(process)?.outcome(request)
    }

    /// Whether memory that `from` passes for a request is waited for: the request is under way, or granted with memory to map.
    #[must_use]
    pub fn awaits_memory(&self, process: ProcessId, from: NodeId, request: RequestId) -> bool {
        self.processes.get(process).is_some_and(|state| state.awaits_memory(from, request))
    }

    /// Takes the outcome of an import, and enters it in the NIC.
    ///
    /// # Errors
    /// Why it was not granted; why the NIC does not take it, in which case the exporter is told that it is not held.
    pub fn enter_import(
        &mut self,
        process: ProcessId,
        request: RequestId,
    ) -> Option<Result<(ImportId, Grant), ImportError>> {
        self.has_actions = true;
        self.processes.get_mut(process)?.enter_import(&mut self.nic, request)
    }

    /// Forgets an import that was asked for: if it was granted, the exporter is told that it is not held.
    pub fn abandon_import(&mut self, process: ProcessId, request: RequestId) {
        self.has_actions = true;
        if let Some(state) = self.processes.get_mut(process) {
            state.abandon_import(request);
        }
    }

    /// Gives an import up, and tells the exporter. Commands that use it must have been read.
    pub fn release_import(&mut self, process: ProcessId, id: ImportId, grant: &Grant) {
        self.has_actions = true;
        if let Some(state) = self.processes.get_mut(process) {
            state.release_import(&mut self.nic, id, grant);
        }
    }
}
