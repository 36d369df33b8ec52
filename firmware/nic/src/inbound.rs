//! Messages of several packets: how much of each has arrived, so that its notification covers all of it, and so that nothing more
//! of a message is applied once a part was refused.

use alloc::vec::Vec;

use mapwire_wire::{ExportId, MessageId};

use crate::outbound::MAX_OPEN_MESSAGES;

/// A message of which more packets are to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inbound {
    pub message: MessageId,
    pub export: ExportId,
    /// Offset of its first byte in the export.
    pub start: u64,
    /// Bytes received so far.
    pub bytes: u64,
    /// Whether a packet of it was refused.
    pub refused: bool,
}

/// The open messages of one node. Its processes' messages are mixed packet by packet, at most [`MAX_OPEN_MESSAGES`] at a time: an
/// honest sender begins no more, so a table of this size never loses one.
#[derive(Debug, Default)]
pub(crate) struct InboundMessages(Vec<Inbound>);

impl InboundMessages {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Index of the message in the table.
    pub(crate) fn find(&self, message: MessageId, export: ExportId) -> Option<usize> {
        self.0.iter().position(|entry| entry.message == message && entry.export == export)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Inbound> {
        self.0.get_mut(at)
    }

    /// Makes room for all messages that a sender may have open.
    pub(crate) fn reserve(&mut self) {
        self.0.reserve_exact(usize::from(MAX_OPEN_MESSAGES));
    }

    /// Enters a message; false if the sender has too many open.
    pub(crate) fn insert(&mut self, entry: Inbound) -> bool {
        if self.0.len() >= usize::from(MAX_OPEN_MESSAGES) {
            return false;
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(usize::from(MAX_OPEN_MESSAGES));
        }
        self.0.push(entry);
        true
    }

    pub(crate) fn remove(&mut self, at: usize) -> Inbound {
        self.0.swap_remove(at)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Inbound>()
    }
}
