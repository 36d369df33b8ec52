//! Imports of a process: asked for, granted, entered, given up.

use mapwire_nic::{Import, Nic, NicError};
use mapwire_translation::TranslationDesign;
use mapwire_vmmc::{Grant, RequestId, VmmcError};
use mapwire_wire::{Endpoint, ExportId, ImportId, NodeId};

use super::{Granted, Process};

/// Why an import was refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The exporter.
    #[error(transparent)]
    Vmmc(#[from] VmmcError),
    /// A table of the NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
}

impl Process {
    /// The exporter's answer to a request.
    pub(crate) fn note_outcome(&mut self, request: RequestId, outcome: Result<Grant, VmmcError>) {
        let revoked = false;
        let outcome = outcome.map(|grant| Granted { grant, revoked });
        self.outcomes.insert(request, outcome);
    }

    /// A peer has revoked an export: grants of it that wait are dead.
    pub(crate) fn note_revoked(&mut self, from: Endpoint, export: ExportId) {
        for granted in self.outcomes.values_mut().flatten() {
            let grant = &granted.grant;
            granted.revoked |= grant.from == from && grant.export == export;
        }
    }

    /// The outcome of a request, when there is one.
    pub(crate) fn outcome(&self, request: RequestId) -> Option<&Result<Granted, VmmcError>> {
        self.outcomes.get(&request)
    }

    pub(crate) fn awaits_memory(&self, from: NodeId, request: RequestId) -> bool {
        match self.outcomes.get(&request) {
            Some(Ok(granted)) => granted.grant.node() == from && granted.grant.direct.is_some(),
            Some(Err(_)) => false,
            None => self.vmmc.awaits_node(from, request),
        }
    }

    pub(crate) fn enter_import<D: TranslationDesign>(
        &mut self,
        nic: &mut Nic<D>,
        request: RequestId,
    ) -> Option<Result<(ImportId, Grant), ImportError>> {
        let Granted { grant, revoked } = match self.outcomes.remove(&request)? {
            Ok(granted) => granted,
            Err(error) => return Some(Err(error.into())),
        };
        let import = Import {
            process: self.id,
            node: grant.node(),
            export: grant.export,
            key: grant.key,
            length: grant.length,
            rights: grant.rights,
            revoked,
            refused: Default::default(),
        };
        Some(match nic.import(import) {
            Ok(id) => Ok((id, grant)),
            Err(error) => {
                self.vmmc.release(&grant);
                Err(error.into())
            }
        })
    }

    /// Forgets a request: if it was granted, the exporter is told that it is not held.
    pub(crate) fn abandon_import(&mut self, request: RequestId) {
        if let Some(Ok(Granted { grant, .. })) = self.outcomes.remove(&request) {
            self.vmmc.release(&grant);
        }
    }

    /// Gives an import up, and tells the exporter.
    pub(crate) fn release_import<D: TranslationDesign>(&mut self, nic: &mut Nic<D>, id: ImportId, grant: &Grant) {
        let is_theirs = |import: &Import| import.process == self.id;
        if nic.imported(id).is_some_and(is_theirs) && nic.release(id).is_some() {
            self.vmmc.release(grant);
        }
    }
}
