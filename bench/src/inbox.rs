//! Memory that a peer stores into, with the import of the peer's own.

use std::any::Any;

use mapwire::{Export, ExportBuilder, Import, Node, Rights};
use mapwire_translation::PAGE_BYTES;

use super::BenchError;
use super::words::{Heap, Words};

/// Bytes before the first whole page of exported heap, and behind its last.
pub(crate) const EDGE_BYTES: usize = 512;

pub(crate) struct Inbox {
    /// Offset of the first message.
    pub(crate) base: usize,
    pub(crate) ours: Words,
    pub(crate) import: Import,
    pub(crate) export: Export,
    /// Whether this rank's node must run for messages to arrive: importers do not map all of the memory.
    pub(crate) polls: bool,
    _memory: Box<dyn Any>,
}

impl Inbox {
    /// Memory of `alloc`, exported as `options` say. `peer` makes one of the same name.
    pub(crate) fn alloc(
        node: &Node,
        peer: usize,
        name: &str,
        bytes: usize,
        options: impl FnOnce(ExportBuilder<'_>) -> ExportBuilder<'_>,
    ) -> Result<Self, BenchError> {
        let memory = node.alloc(bytes)?;
        let export = options(node.export_buffer(&memory)).name(name).start()?;
        Self::new(node, peer, name, (0, bytes), Words::of_buffer(&memory), export, memory)
    }

    /// Whole pages of heap and a part of a page on either side.
    pub(crate) fn heap(
        node: &Node,
        peer: usize,
        name: &str,
        bytes: usize,
        options: impl FnOnce(ExportBuilder<'_>) -> ExportBuilder<'_>,
    ) -> Result<Self, BenchError> {
        let heap = Heap::new(EDGE_BYTES, EDGE_BYTES + bytes.next_multiple_of(PAGE_BYTES) + EDGE_BYTES);
        let export = options(heap.words.export(node)).name(name).start()?;
        Self::new(node, peer, name, (EDGE_BYTES, bytes), heap.words, export, heap)
    }

    fn new(
        node: &Node,
        peer: usize,
        name: &str,
        (base, bytes): (usize, usize),
        ours: Words,
        export: Export,
        memory: impl Any,
    ) -> Result<Self, BenchError> {
        let import = node.import(peer, name).rights(Rights::ALL).start()?;
        let mapped = import.direct_range();
        let polls = (base as u64) < mapped.start || ((base + bytes) as u64) > mapped.end;
        Ok(Self { base, ours, import, export, polls, _memory: Box::new(memory) })
    }
}
