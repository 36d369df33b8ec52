//! Exports that the provider reaches.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mapwire_host::mapping::{self, Mapping};
use mapwire_transport::ofi::OfiError;
use mapwire_transport::ofi::rma::{Region, Registrar, RemoteRights};
use mapwire_wire::{ExportId, Rights};

use super::announcements::Part;

/// Why an export goes by packets alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error("it cannot be mapped once more: {0}")]
    Map(#[from] rustix::io::Errno),
    #[error(transparent)]
    Provider(#[from] OfiError),
}

/// Revoked exports whose regions are kept, for operations that were under way. An operation that comes later than so many revocations is
/// refused, and some providers end the connection then.
const MOST_ORPHANS: usize = 64;

/// See [the module](self). Each is mapped once more, so that a revocation, which moves the exporter's buffer to other memory, leaves the
/// provider with the orphan (DESIGN's garbage page; UTLB §4.2).
#[derive(Debug, Default)]
pub(super) struct Exported {
    regions: HashMap<ExportId, (Region, Arc<Mapping>)>,
    orphans: VecDeque<Region>,
}

impl Exported {
    /// Registers the memory of an export, if that was not done, of which `part` are the bytes that can be mapped: from which offset of the
    /// export on, and how many.
    pub(super) fn register(
        &mut self,
        registrar: &Registrar,
        export: ExportId,
        memory: BorrowedFd<'_>,
        (offset, bytes): (u64, u64),
        rights: Rights,
    ) -> Result<Part, RegisterError> {
        if !self.regions.contains_key(&export) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let rights = RemoteRights {
                store: rights.contains(Rights::STORE),
                fetch: rights.contains(Rights::FETCH),
            };
            let access = match rights.store {
                true => mapping::Rights::ReadWrite,
                // The file may be sealed against more.
                false => mapping::Rights::Read,
            };
            let mapped = Arc::new(Mapping::shared(memory, 0, bytes, access)?);
            let region = registrar.register(&mapped, 0, bytes, rights)?;
            self.regions.insert(export, (region, mapped));
        }
        Ok(Part {
            offset,
            memory: self.regions[&export].0.remote(),
        })
    }

    /// The export is revoked. What is still stored by the provider goes to memory that nobody reads; the orphan itself is not kept.
    pub(super) fn orphan(&mut self, export: ExportId) {
        let Some((region, mapped)) = self.regions.remove(&export) else {
            return;
        };
        if mapped.forget_file().is_err() {
            // No memory for the table of pages: then the orphan is kept with the region.
            tracing::debug!("the memory of a revoked export is kept for the provider");
        }
        self.orphans.push_back(region);
        if self.orphans.len() > MOST_ORPHANS {
            self.orphans.pop_front();
        }
    }
}
