//! Packets whose headers a node forges: they name an export, a key or a place that its firmware would not.

use std::collections::BTreeMap;

use mapwire_wire::{ExportId, FetchId, Flags, Header, Key, Kind, NodeId, Repr, SIGNAL_TRAILER_BYTES, Signal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgery {
    pub export: ExportId,
    /// The key that it shows.
    pub key: Key,
    /// Where in the export it goes.
    pub offset: u64,
    /// Where its signal goes, if it has one and that is forged too.
    pub signal: Option<u64>,
    /// It is an answer to this fetch, and whether it is the last.
    pub answers: Option<(FetchId, bool)>,
}

/// A fetch that a node has asked another for, which has answered nothing yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) fetch: FetchId,
    pub(crate) reply_key: Key,
    pub(crate) bytes: u64,
}

/// The packets to be forged, and what those who forge have seen.
#[derive(Debug, Default)]
pub(crate) struct Forgeries {
    /// By sender, receiver, and the offset that its firmware writes, which nothing but these packets has.
    pub(super) packets: BTreeMap<(NodeId, NodeId, u64), Forgery>,
    /// Some node forges, or has forged.
    pub(super) is_on: bool,
    /// The last fetch of each pair, by who asks and who is asked.
    pub(super) awaited: BTreeMap<(NodeId, NodeId), Awaited>,
}

impl Forgeries {
    /// Forges the header of a packet on its way out, if that is wanted, and gives what it was forged by. A packet that is sent again
    /// is forged in the same way.
    #[inline]
    pub(super) fn apply(&self, (from, to): (NodeId, NodeId), header: &mut Header) -> Option<Forgery> {
        if self.packets.is_empty() {
            return None;
        }
        let kinds = [Kind::Store, Kind::FetchRequest, Kind::Atomic];
        if !kinds.iter().any(|kind| header.kind == *kind as u8) {
            return None;
        }
        let forgery = *self.packets.get(&(from, to, header.offset.get()))?;
        header.export.set(forgery.export.0);
        header.key = forgery.key;
        header.offset.set(forgery.offset);
        if let Some((fetch, is_last)) = forgery.answers {
            header.kind = Kind::FetchReply as u8;
            header.flags.set(Flags::NONE.with(Flags::LAST, is_last).0);
            header.message.set(fetch.0);
            header.offset.set(0);
        }
        Some(forgery)
    }

    /// Notes a packet on its way out that asks for a fetch, or answers one.
    #[inline]
    pub(super) fn note(&mut self, (from, to): (NodeId, NodeId), header: &Header, payload: &[u8]) {
        if self.is_on {
            self.note_now((from, to), header, payload);
        }
    }

    #[cold]
    fn note_now(&mut self, (from, to): (NodeId, NodeId), header: &Header, payload: &[u8]) {
        match Repr::parse(header, payload) {
            Ok(Repr::FetchRequest { fetch, reply_key, want_bytes, .. }) if want_bytes > 0 => {
                let awaited = Awaited { fetch, reply_key, bytes: want_bytes };
                self.awaited.insert((from, to), awaited);
            }
            Ok(Repr::FetchReply { fetch, .. } | Repr::FetchRefused { fetch, .. }) => {
                let awaited = self.awaited.get(&(to, from));
                if awaited.is_some_and(|awaited| awaited.fetch == fetch) {
                    self.awaited.remove(&(to, from));
                }
            }
            _ => {}
        }
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
