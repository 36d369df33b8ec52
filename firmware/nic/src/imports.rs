//! Imports: a process's right to store into or fetch from another node's export. A proxy address is an import and an offset
//! within it (VMMC §2, destination proxy space).

use mapwire_wire::{ExportId, ImportId, Key, NodeId, ProcessId, Refusal, Rights, Signal};

use crate::error::CommandError;
use crate::slots::Slots;

/// Right of a process to use an export of another node.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// Process that imported it.
    pub process: ProcessId,
    /// Exporting node.
    pub node: NodeId,
    /// Number of the export on that node.
    pub export: ExportId,
    /// Key that the export requires.
    pub key: Key,
    /// Length in bytes.
    pub length: u64,
    /// Rights that the exporter granted.
    pub rights: Rights,
    /// Whether the exporter has revoked it.
    pub revoked: bool,
    /// Sends through it that were dropped after their command was done.
    pub refused: RefusedStores,
}

/// Sends dropped after their command was done: refused by the exporter, or by this NIC because the export was revoked while they
/// were queued. Imports of one export in one node share these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedStores {
    /// Number of dropped sends.
    pub count: u64,
    /// The first that the exporter refused.
    pub first: Option<RefusedStore>,
    /// The first that never left this node, sent after all that the exporter refused.
    pub first_unsent: Option<RefusedStore>,
    /// The exporter refused more than it could name; some may be of this import.
    pub unnamed: bool,
}

/// A send that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedStore {
    /// Offset of its first byte in the export; for a long send, that of the first packet refused.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    pub reason: Refusal,
}

impl RefusedStores {
    fn note(&mut self, store: RefusedStore, count: u64) {
        self.count = self.count.saturating_add(count);
        self.first.get_or_insert(store);
    }

    pub(crate) fn note_unsent(&mut self, store: RefusedStore) {
        self.count = self.count.saturating_add(1);
        self.first_unsent.get_or_insert(store);
    }
}

pub(crate) type Imports = Slots<Import>;

impl Slots<Import> {
    /// The import `id`, provided that it belongs to `process`, is still valid and gives `right`. So a process cannot name a
    /// destination that it has not imported (VMMC §4.4).
    #[inline]
    pub(crate) fn check(&self, process: ProcessId, id: ImportId, right: Rights) -> Result<&Import, CommandError> {
        let import = self.of_process(process, id)?;
        if import.revoked {
            return Err(CommandError::Revoked(id));
        }
        if !import.rights.contains(right) {
            return Err(CommandError::NoRight { needs: right, has: import.rights });
        }
        Ok(import)
    }

    /// The import `id`, provided that it belongs to `process`; it may be revoked.
    #[inline]
    pub(crate) fn of_process(&self, process: ProcessId, id: ImportId) -> Result<&Import, CommandError> {
        match self.get(id.0) {
            Some(import) if import.process == process => Ok(import),
            _ => Err(CommandError::UnknownImport(id)),
        }
    }

    /// Notes that `count` stores were dropped, on the imports for which `pick` is true.
    #[cold]
    pub(crate) fn note_refused(&mut self, store: RefusedStore, count: u64, pick: impl Fn(&Import) -> bool) {
        for import in self.iter_mut().filter(|import| pick(import)) {
            import.refused.note(store, count);
        }
    }

    /// Notes that node `from` refused stores that it cannot name.
    #[cold]
    pub(crate) fn note_unnamed(&mut self, from: NodeId) {
        for import in self.iter_mut().filter(|import| import.node == from) {
            import.refused.unnamed = true;
        }
    }
}

impl Import {
    /// Checks that the import holds `length` bytes at `offset`.
    #[inline]
    pub(crate) fn check_range(&self, offset: u64, length: u64) -> Result<(), CommandError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(CommandError::OutOfRange { offset, length, import_bytes: self.length }),
        }
    }

    /// Checks that the signal's word lies within the import.
    #[inline]
    pub(crate) fn check_signal(&self, signal: Signal) -> Result<(), CommandError> {
        self.check_range(signal.offset, Signal::WORD_BYTES)
    }
}
