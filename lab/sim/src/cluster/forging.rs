//! Packets whose headers a node forges: they name an export, a key or a place that its firmware would not.

use std::collections::BTreeMap;

use mapwire_wire::{ExportId, Flags, Header, Key, Kind, NodeId, SIGNAL_TRAILER_BYTES, Signal};

use super::Cluster;

/// What stands in a forged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgery {
    /// Which export it names.
    pub export: ExportId,
    /// The key that it shows.
    pub key: Key,
    /// Where in the export it goes.
    pub offset: u64,
    /// Where its signal goes, if it has one and that is forged too.
    pub signal: Option<u64>,
}

/// The packets to be forged: by sender, receiver, and the offset that its firmware writes, which nothing but these packets has.
#[derive(Debug, Default)]
pub(crate) struct Forgeries(BTreeMap<(NodeId, NodeId, u64), Forgery>);

impl Forgeries {
    /// Forges the header of a packet on its way out, if that is wanted, and gives what it was forged by. A packet that is sent again
    /// is forged in the same way.
    #[inline]
    pub(super) fn apply(
        &self,
        (from, to): (NodeId, NodeId),
        header: &mut Header,
    ) -> Option<Forgery> {
        if self.0.is_empty() {
            return None;
        }
        let kinds = [Kind::Store, Kind::FetchRequest, Kind::Atomic];
        if !kinds.iter().any(|kind| header.kind == *kind as u8) {
            return None;
        }
        let forgery = *self.0.get(&(from, to, header.offset.get()))?;
        header.export.set(forgery.export.0);
        header.key = forgery.key;
        header.offset.set(forgery.offset);
        Some(forgery)
    }
}

impl Forgery {
    /// Forges the signal of a packet, which is the last of its bytes.
    pub(super) fn apply_to_signal(&self, header: &Header, packet: &mut [u8]) {
        let has_signal = header.flags().contains(Flags::SIGNAL);
        let trailer = packet.last_chunk_mut::<SIGNAL_TRAILER_BYTES>();
        if let (true, Some(offset), Some(trailer)) = (has_signal, self.signal, trailer)
            && let Ok(signal) = Signal::from_bytes(trailer)
        {
            *trailer = Signal { offset, ..signal }.to_bytes();
        }
    }
}

impl Cluster {
    /// Whether programs of a node forge packets now.
    #[must_use]
    pub fn is_forging(&self, node: NodeId) -> bool {
        self.hosts[usize::from(node.0)].forges.is_some()
    }

    /// Has the packets of `from` to `to` that its firmware sends to `offset` of an export forged.
    pub fn forge(&mut self, from: NodeId, to: NodeId, offset: u64, forgery: Forgery) {
        if let Some(number) = self.hosts[usize::from(from.0)].forges {
            self.fired[number as usize] += 1;
        }
        self.forgeries.0.insert((from, to, offset), forgery);
    }
}
