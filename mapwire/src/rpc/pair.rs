//! The memory of a connection: what this rank lends a peer for its records, and what the peer lends.

use std::sync::OnceLock;

use mapwire_driver::imports::LocalImport;
use mapwire_host::memory::MappedBuffer;
use mapwire_vmmc::Grant;
use mapwire_wire::{ExportId, ImportId, NodeId};

use crate::buffer::Buffer;
use crate::node::Node;

/// Bytes from which on a part of a record is written in whole lines: the peer has read others there, and its processor has their lines.
const LONG_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Pair {
    node: Node,
    pub(super) peer: NodeId,
    pub(super) session: u64,
    /// The peer stores its records here.
    pub(super) own: Buffer,
    pub(super) export: ExportId,
    is_near: bool,
    theirs: OnceLock<Option<Theirs>>,
}

#[derive(Debug)]
struct Theirs {
    import: ImportId,
    grant: Grant,
    memory: Memory,
}

/// Where records for a peer are written.
#[derive(Debug)]
enum Memory {
    /// Where the peer reads them.
    Mapped(MappedBuffer),
    /// In this process: the NIC moves them.
    Moved(Buffer),
}

impl Pair {
    pub(super) fn new(node: &Node, peer: NodeId, session: u64, (own, export): (Buffer, ExportId)) -> Self {
        Self {
            is_near: !node.engine().is_remote(peer),
            node: node.clone(),
            peer,
            session,
            own,
            export,
            theirs: OnceLock::new(),
        }
    }

    pub(super) const fn is_near(&self) -> bool {
        self.is_near
    }

    /// Whether it is known what the peer lends.
    pub(super) fn is_ready(&self) -> bool {
        self.theirs.get().is_some()
    }

    /// Whether records for the peer are written into memory of this process first.
    pub(super) fn moves(&self) -> bool {
        matches!(self.lent(), Some(theirs) if matches!(theirs.memory, Memory::Moved(_)))
    }

    fn lent(&self) -> Option<&Theirs> {
        self.theirs.get()?.as_ref()
    }

    /// Enters what the peer lends: `moved` is memory of this process for what is not mapped. `None`: the peer lends nothing.
    pub(super) fn set_theirs(&self, theirs: Option<(LocalImport, Option<Buffer>)>) {
        let theirs = theirs.and_then(|(local, moved)| {
            let memory = match (local.mapped, moved) {
                (_, Some(moved)) => Memory::Moved(moved),
                (Some(mapped), None) => Memory::Mapped(mapped),
                (None, None) => return None,
            };
            Some(Theirs { import: local.id, grant: local.grant, memory })
        });
        // It is imported once.
        let _ = self.theirs.set(theirs);
    }

    /// Writes a part of a record for the peer. False: it lies outside the peer's memory.
    #[inline]
    pub(super) fn put(&self, at: u64, bytes: &[u8]) -> bool {
        match self.lent().map(|theirs| &theirs.memory) {
            Some(Memory::Mapped(mapped)) if bytes.len() >= LONG_BYTES => mapped.put_whole_lines(at as usize, bytes),
            Some(Memory::Mapped(mapped)) => mapped.put(at as usize, bytes),
            Some(Memory::Moved(buffer)) => buffer.write(at as usize, bytes).is_ok(),
            None => false,
        }
    }

    /// Where a record for the peer is written, if all of it lies in the peer's memory.
    pub(super) fn pointer(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        let (at, bytes) = (at as usize, bytes as usize);
        match &self.lent()?.memory {
            Memory::Mapped(mapped) => mapped.at(at, bytes),
            Memory::Moved(buffer) => {
                let is_in = at <= buffer.len() && bytes <= buffer.len() - at;
                is_in.then(|| buffer.as_ptr().wrapping_add(at))
            }
        }
    }

    /// Keeps the memory of this process for ever.
    pub(super) fn leak(&self) {
        if let Some(Theirs { memory: Memory::Moved(buffer), .. }) = self.lent() {
            core::mem::forget(buffer.clone());
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.node.check_process().is_err() {
            return;
        }
        let mut driver = self.node.engine().lock();
        let _ = driver.unexport(self.export);
        if let Some(Some(theirs)) = self.theirs.get() {
            driver.release_import(theirs.import, &theirs.grant);
        }
    }
}
