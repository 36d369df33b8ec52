//! Imports: a process's right to store into or fetch from another node's export. A proxy address is an import and an offset
//! within it (VMMC §2, destination proxy space).

use mapwire_wire::{ExportId, ImportId, Key, NodeId, ProcessId, Rights, Signal};

use crate::error::CommandError;
use crate::pieces::is_word_aligned;
use crate::slots::Slots;

/// What a process has imported.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// Whose import.
    pub process: ProcessId,
    /// The node that exports.
    pub node: NodeId,
    /// The export there.
    pub export: ExportId,
    /// The key that it wants to see.
    pub key: Key,
    /// Its length in bytes.
    pub length: u64,
    /// What the exporter allows.
    pub rights: Rights,
    /// The exporter has revoked it.
    pub revoked: bool,
}

/// The imports of a NIC.
#[derive(Debug)]
pub(crate) struct Imports(pub(crate) Slots<Import>);

impl Imports {
    /// The import that `id` names, if it is `process`'s own, still valid, and gives `right`. A process can so name no destination
    /// that it has not imported (VMMC §4.4).
    #[inline]
    pub(crate) fn check(
        &self,
        process: ProcessId,
        id: ImportId,
        right: Rights,
    ) -> Result<&Import, CommandError> {
        let import = match self.0.get(id.0) {
            Some(import) if import.process == process => import,
            _ => return Err(CommandError::UnknownImport(id)),
        };
        if import.revoked {
            return Err(CommandError::Revoked(id));
        }
        if !import.rights.contains(right) {
            return Err(CommandError::NoRight {
                needs: right,
                has: import.rights,
            });
        }
        Ok(import)
    }
}

impl Import {
    /// Whether it holds `length` bytes at `offset`.
    #[inline]
    pub(crate) fn check_range(&self, offset: u64, length: u64) -> Result<(), CommandError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(CommandError::OutOfRange {
                offset,
                length,
                import_bytes: self.length,
            }),
        }
    }

    /// Whether the signal's word lies within it, at a multiple of eight.
    #[inline]
    pub(crate) fn check_signal(&self, signal: Signal) -> Result<(), CommandError> {
        if !is_word_aligned(signal.offset) {
            return Err(CommandError::UnalignedSignal(signal.offset));
        }
        self.check_range(signal.offset, Signal::WORD_BYTES)
    }
}
