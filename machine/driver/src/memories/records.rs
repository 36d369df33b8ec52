//! What a process keeps of its exports and imports.

use std::sync::{Arc, Mutex};

use mapwire_host::memory::SharedBuffer;
use mapwire_vmmc::Grant;
use mapwire_wire::{ExportId, ImportId};

use crate::exports::DirectMemory;

/// What this computer keeps of an export.
#[derive(Debug)]
pub(super) struct Export {
    pub id: ExportId,
    /// What importers may map.
    pub direct: Option<DirectMemory>,
    /// Where it is redirected to.
    pub landing: Option<Arc<Mutex<SharedBuffer>>>,
}

/// A former landing, with the export whose fetches may still read it.
#[derive(Debug)]
pub(super) struct FormerLanding {
    pub export: ExportId,
    pub _buffer: Arc<Mutex<SharedBuffer>>,
}

/// An import that is given up when the commands before that have been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    /// How many commands had been written.
    pub behind: u64,
    pub id: ImportId,
    pub grant: Grant,
}

/// Bit of the tag under which the status of an export is passed; its memory is passed under the tag without it.
pub(super) const STATUS_TAG: u64 = 1 << 63;
/// Bits of the tag with the number of the importer's request.
pub(super) const REQUEST: u64 = 0xffff_ffff;

/// Bits of the tag with the number of the export, for this process's own use: the highest bit of the number is left out.
pub(super) fn tag_of(export: ExportId) -> u64 {
    u64::from(export.0) << 32 & !STATUS_TAG
}
