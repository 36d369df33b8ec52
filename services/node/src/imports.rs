//! Imports of a process: asked for, granted, entered, given up.

use mapwire_nic::{Import, NicError, RefusedStores};
use mapwire_translation::TranslationDesign;
use mapwire_vmmc::{Grant, RequestId, VmmcError};
use mapwire_wire::{Endpoint, ImportId, Key, NodeId, ProcessId, Rights};

use crate::node::Node;

/// An import that the exporter has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What was granted.
    pub grant: Grant,
    /// It was revoked before it was entered.
    pub revoked: bool,
}

impl<D: TranslationDesign> Node<D> {
    /// Whether a node takes requests. One that is asked all the same, over and over, counts as gone when a message to it is lost.
    #[must_use]
    pub fn takes_requests(&self, from: NodeId) -> bool {
        self.nic.has_room_for_requests(from)
    }

    /// Asks a process for an export, which it has `timeout_ns` to grant. The outcome comes as [`outcome`](Self::outcome).
    ///
    /// # Errors
    /// A name that is none.
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
    ) -> Result<RequestId, VmmcError> {
        let is_gone = self.peers.is_gone(from.node);
        let Some(state) = self.processes.get_mut(process) else {
            return Err(VmmcError::PeerGone {
                peer: Endpoint {
                    node: self.nic.node(),
                    process,
                },
                name: name.into(),
            });
        };
        let vmmc = &mut state.vmmc;
        self.has_actions = true;
        let request = vmmc.import(now_ns, from, name, rights, token, timeout_ns)?;
        if is_gone {
            vmmc.handle_peer_gone(from.node);
        }
        Ok(request)
    }

    /// The outcome of an import that was asked for, when there is one.
    #[must_use]
    pub fn outcome(
        &self,
        process: ProcessId,
        request: RequestId,
    ) -> Option<&Result<Granted, VmmcError>> {
        self.processes.get(process)?.outcomes.get(&request)
    }

    /// Whether memory that `from` passes for a request is waited for: the request is under way, or granted with memory to map.
    #[must_use]
    pub fn awaits_memory(&self, process: ProcessId, from: NodeId, request: RequestId) -> bool {
        let Some(state) = self.processes.get(process) else {
            return false;
        };
        match state.outcomes.get(&request) {
            Some(Ok(granted)) => granted.grant.node() == from && granted.grant.direct.is_some(),
            Some(Err(_)) => false,
            None => state.vmmc.awaits_node(from, request),
        }
    }

    /// Takes the outcome of an import, and enters it in the NIC.
    ///
    /// # Errors
    /// Why it was not granted; why the NIC does not take it, in which case the exporter is told that it is not held.
    #[allow(clippy::type_complexity)]
    pub fn enter_import(
        &mut self,
        process: ProcessId,
        request: RequestId,
    ) -> Option<Result<(ImportId, Grant), ImportError>> {
        let outcome = self.take_outcome(process, request)?;
        let Granted { grant, revoked } = match outcome {
            Ok(granted) => granted,
            Err(error) => return Some(Err(error.into())),
        };
        let import = Import {
            process,
            node: grant.node(),
            export: grant.export,
            key: grant.key,
            length: grant.length,
            rights: grant.rights,
            revoked,
            refused: Default::default(),
        };
        Some(match self.nic.import(import) {
            Ok(id) => Ok((id, grant)),
            Err(error) => {
                self.give_back(process, &grant);
                Err(error.into())
            }
        })
    }

    fn take_outcome(
        &mut self,
        process: ProcessId,
        request: RequestId,
    ) -> Option<Result<Granted, VmmcError>> {
        self.processes.get_mut(process)?.outcomes.remove(&request)
    }

    /// Forgets an import that was asked for: if it was granted, the exporter is told that it is not held.
    pub fn abandon_import(&mut self, process: ProcessId, request: RequestId) {
        if let Some(Ok(Granted { grant, .. })) = self.take_outcome(process, request) {
            self.give_back(process, &grant);
        }
    }

    /// Gives an import up, and tells the exporter. Commands that use it must have been read.
    pub fn release_import(&mut self, process: ProcessId, id: ImportId, grant: &Grant) {
        let is_theirs = |import: &Import| import.process == process;
        if self.nic.imported(id).is_some_and(is_theirs) && self.nic.release(id).is_some() {
            self.give_back(process, grant);
        }
    }

    fn give_back(&mut self, process: ProcessId, grant: &Grant) {
        if !self.peers.is_gone(grant.node())
            && let Some(state) = self.processes.get_mut(process)
        {
            state.vmmc.release(grant);
            self.has_actions = true;
        }
    }

    /// What was noted of sends by an import that were dropped after their command was done; notes afresh.
    pub fn take_refused(&mut self, import: ImportId) -> RefusedStores {
        self.nic.take_refused(import)
    }
}

/// Why an import is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The exporter.
    #[error(transparent)]
    Vmmc(#[from] VmmcError),
    /// A table of the NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
}
