//! Imports of this process: entered in the NIC, and mapped where they can be.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mapwire_host::memory::MappedBuffer;
use mapwire_vmmc::Grant;
use mapwire_wire::{ImportId, Rights};

use crate::error::DriverError;

/// An import of this process, entered in the NIC, and mapped if it is on the direct path.
#[derive(Debug)]
pub struct LocalImport {
    /// Its number in the NIC.
    pub id: ImportId,
    pub grant: Grant,
    /// The exporter's memory, on the direct path: all of it, or its whole pages.
    pub mapped: Option<MappedBuffer>,
}

/// Bytes that this process stored straight into memory of ranks of the same host.
#[derive(Debug, Default)]
pub(crate) struct StoredInPlace {
    /// By each import that is mapped, which counts itself.
    imports: Vec<Arc<AtomicU64>>,
    /// By imports that were.
    others: u64,
}

impl StoredInPlace {
    /// Counts what is stored by one more import.
    pub(crate) fn watch(&mut self, stored: &Arc<AtomicU64>) {
        self.total();
        self.imports.push(Arc::clone(stored));
    }

    pub(crate) fn total(&mut self) -> u64 {
        let (mut mapped, others) = (0, &mut self.others);
        self.imports.retain(|stored| {
            let is_mapped = Arc::strong_count(stored) > 1;
            let bytes = stored.load(Ordering::Relaxed);
            *(if is_mapped { &mut mapped } else { &mut *others }) += bytes;
            is_mapped
        });
        mapped + *others
    }
}

/// Maps the memory that a grant on the direct path promises.
pub(crate) fn map(grant: &Grant, (memory, status): &(OwnedFd, OwnedFd)) -> Result<MappedBuffer, DriverError> {
    // The exporter's word, which was checked to lie within the export: `map` holds it against the file.
    let part = grant.direct.map_or(0..0, |part| {
        let first = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let bytes = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        first..first.saturating_add(bytes)
    });
    let writable = grant.rights.contains(Rights::STORE);
    Ok(MappedBuffer::map(memory, status, part, writable)?)
}
