//! Exports of this process that the provider reaches.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use mapwire_host::mapping::{self, Mapping};
use mapwire_transport::ofi::OfiError;
use mapwire_transport::ofi::rma::{Region, Registrar, RemoteMemory, RemoteRights};
use mapwire_wire::{Endpoint, ExportId, Key, NodeId, Rights};

/// Places of address space that are kept empty behind exports that are over. What a peer has begun to send before it confirmed that it
/// does not, the provider may still store where the export was: there is nothing of use then.
const MOST_GRAVES: usize = 256;

/// Why an export goes by packets alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error("it cannot be mapped once more: {0}")]
    Map(#[from] rustix::io::Errno),
    #[error(transparent)]
    Provider(#[from] OfiError),
}

/// See [the module](self). Each is mapped once more, so that a revocation, which moves the exporter's buffer to other memory, leaves the
/// provider with the orphan (DESIGN's garbage page; UTLB §4.2).
#[derive(Debug, Default)]
pub(super) struct Exported {
    exports: HashMap<ExportId, Reached>,
    graves: VecDeque<Arc<Mapping>>,
}

#[derive(Debug)]
struct Reached {
    key: Key,
    region: Region,
    memory: Arc<Mapping>,
    /// Whoever may have operations under way.
    holders: Vec<Endpoint>,
    is_orphan: bool,
}

impl Reached {
    fn new(
        registrar: &Registrar,
        key: Key,
        memory: BorrowedFd<'_>,
        bytes: u64,
        rights: Rights,
    ) -> Result<Self, RegisterError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let rights = RemoteRights { store: rights.contains(Rights::STORE), fetch: rights.contains(Rights::FETCH) };
        let access = match rights.store {
            true => mapping::Rights::ReadWrite,
            // The file may be sealed against more.
            false => mapping::Rights::Read,
        };
        let memory = Arc::new(Mapping::shared(memory, 0, bytes, access)?);
        Ok(Self {
            key,
            region: registrar.register(&memory, 0, bytes, rights)?,
            memory,
            holders: Vec::new(),
            is_orphan: false,
        })
    }
}

impl Exported {
    /// Registers the memory of an export, if that was not done, for one more holder.
    pub(super) fn register(
        &mut self,
        registrar: &Registrar,
        (export, key): (ExportId, Key),
        memory: BorrowedFd<'_>,
        bytes: u64,
        rights: Rights,
        holder: Endpoint,
    ) -> Result<RemoteMemory, RegisterError> {
        let reached = match self.exports.entry(export) {
            Entry::Occupied(reached) => reached.into_mut(),
            Entry::Vacant(place) => place.insert(Reached::new(registrar, key, memory, bytes, rights)?),
        };
        if !reached.holders.contains(&holder) {
            reached.holders.push(holder);
        }
        Ok(reached.region.remote())
    }

    /// An export is revoked: its memory is an orphan, which is kept as long as anybody may use it. Its key and those who may.
    pub(super) fn orphan(&mut self, export: ExportId) -> Option<(Key, Vec<Endpoint>)> {
        let reached = self.exports.get_mut(&export)?;
        reached.is_orphan = true;
        let told = (reached.key, reached.holders.clone());
        self.bury();
        Some(told)
    }

    /// A node has no operation under way, and begins none.
    pub(super) fn handle_confirmed(&mut self, node: NodeId, export: ExportId, key: Key) {
        let reached = self.exports.get_mut(&export);
        if let Some(reached) = reached.filter(|it| it.key == key && it.is_orphan) {
            reached.holders.retain(|holder| holder.node != node);
            self.bury();
        }
    }

    pub(super) fn handle_gone(&mut self, node: NodeId) {
        for reached in self.exports.values_mut() {
            reached.holders.retain(|holder| holder.node != node);
        }
        self.bury();
    }

    /// Gives back the memory that nobody uses any more.
    fn bury(&mut self) {
        let is_over = |it: &Reached| it.is_orphan && it.holders.is_empty();
        let over = self.exports.iter().filter(|(_, it)| is_over(it));
        let over: Vec<ExportId> = over.map(|(&export, _)| export).collect();
        for reached in over.iter().filter_map(|export| self.exports.remove(export)) {
            drop(reached.region);
            if reached.memory.forget_file().is_err() {
                // No memory for the kernel's tables: the place keeps its pages.
                tracing::debug!("the memory of a revoked export is kept");
            }
            self.graves.push_back(reached.memory);
        }
        while self.graves.len() > MOST_GRAVES {
            self.graves.pop_front();
        }
    }
}
