//! The processes that use this NIC, and the long command that each has under way.

use mapwire_wire::{ExportId, Key, MessageId, NodeId, ProcessId, Signal};

/// A long send that is being cut into chunks (VMMC §4.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) to: NodeId,
    pub(crate) export: ExportId,
    pub(crate) key: Key,
    pub(crate) message: MessageId,
    /// Where the next chunk goes, from the start of the export.
    pub(crate) offset: u64,
    /// Where the next chunk comes from.
    pub(crate) address: u64,
    /// Bytes still to be cut.
    pub(crate) remaining: u64,
    pub(crate) notify: bool,
    pub(crate) signal: Option<Signal>,
    pub(crate) completion: u32,
}

/// A process with a command queue on this NIC.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) next_message: u32,
    pub(crate) sending: Option<Sending>,
    /// Where its last command went: while that queue is full, the process's next command waits.
    pub(crate) last_to: Option<NodeId>,
}

impl Process {
    pub(crate) const fn new(id: ProcessId) -> Self {
        Self {
            id,
            next_message: 0,
            sending: None,
            last_to: None,
        }
    }

    #[inline]
    pub(crate) fn number_message(&mut self) -> MessageId {
        let message = self.next_message;
        self.next_message = message.wrapping_add(1);
        MessageId(message)
    }
}
