//! Actions that the firmware asks of its driver, besides transmitting.

use mapwire_wire::{Atomic, Endpoint, FetchId, HandlerId, Key, NodeId, ProcessId, Refusal, SignalOp, TraceOp};

use crate::error::CommandError;
use crate::pieces::Piece;

/// Names the packet buffer that [`crate::Nic::handle_packet`] was given; the driver keeps it until the actions that name it
/// are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(pub u32);

/// A flag to set once the data is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalWrite {
    /// Eight aligned bytes within one frame.
    pub piece: Piece,
    /// Value to store, add or or, with release order: whoever acquires it sees the data.
    pub value: u64,
    /// Operation, done in one atomic step.
    pub op: SignalOp,
}

/// An atomic operation on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicUpdate {
    /// The word, aligned within one frame.
    pub piece: Piece,
    /// Operation, one step that acquires and releases.
    pub atomic: Atomic,
}

/// Move payload bytes of packet `buffer` to `piece` of `process`, then write `signal`, then do `update`; then hand it back to
/// [`crate::Nic::handle_dma_done`]. A packet that lands in several runs of frames has a move for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dma {
    /// Process whose frames these are.
    pub process: ProcessId,
    /// Destination of the bytes.
    pub piece: Piece,
    /// Offset of the first byte in the payload.
    pub at: u32,
    /// The flag to set after them.
    pub signal: Option<SignalWrite>,
    /// The word to update.
    pub update: Option<AtomicUpdate>,
    /// Buffer that holds the packet.
    pub buffer: BufferId,
    after: After,
}

impl Dma {
    /// A move of nothing, which the caller fills in.
    #[inline]
    pub(crate) const fn new(process: ProcessId, buffer: BufferId, after: After) -> Self {
        Self { process, piece: Piece::EMPTY, at: 0, signal: None, update: None, buffer, after }
    }

    #[inline]
    pub(crate) const fn after(&self) -> After {
        self.after
    }
}

/// What the NIC does once a DMA is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing: more of the message is to come, or nobody is told.
    Nothing,
    /// The message is delivered and its sender asked for a notification.
    Notify { export: mapwire_wire::ExportId, from: NodeId, offset: u64, length: u64 },
    /// Part of a fetch is in place.
    Fetched { fetch: FetchId },
    /// A word is updated, and its old value owed.
    Updated { from: NodeId, fetch: FetchId, reply_key: Key, export: mapwire_wire::ExportId, bytes: u64 },
}

/// Something to report to a process or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A command is done: the source of a send may be reused, or a fetch is in place. Write the completion word.
    Done {
        /// Process that gave the command.
        process: ProcessId,
        /// Its completion word.
        completion: u32,
    },
    /// A command failed: nothing more of it will be applied.
    Failed {
        /// Process that gave the command.
        process: ProcessId,
        /// Its completion word; `None` for a command that has none.
        completion: Option<u32>,
        /// Reason of the failure.
        error: CommandError,
        /// Upper bound on the bytes of a send that may have been stored; `u64::MAX`: all of them. 0 for a fetch.
        sent_bytes: u64,
    },
    /// A message with a notification has been delivered (VMMC §2).
    Notification {
        /// Process that owns the export.
        process: ProcessId,
        export: mapwire_wire::ExportId,
        from: NodeId,
        /// First byte of the message, counted from the start of the export.
        offset: u64,
        /// Bytes of the message.
        length: u64,
    },
    /// A message for a handler on the host: the payload is in the packet buffer.
    Message {
        /// Receiving process; only the host knows whether it exists.
        to: ProcessId,
        /// The sender. Its node vouches for the process.
        from: Endpoint,
        handler: HandlerId,
        /// Payload bytes.
        length: u32,
        /// Buffer that holds the packet.
        buffer: BufferId,
    },
    /// A peer refused stores that this node sent; each message is counted once. If one was still being sent, its command fails
    /// too.
    StoreRefused {
        from: NodeId,
        /// Export of the peer.
        export: mapwire_wire::ExportId,
        reason: Refusal,
        /// Messages that were refused.
        count: u64,
    },
    /// A packet was dropped, unapplied.
    Rejected {
        /// Node that sent it.
        from: NodeId,
        reason: Rejection,
    },
}

impl Completion {
    /// Process to inform; `None` for completions that are for the host.
    pub(crate) const fn process(&self) -> Option<ProcessId> {
        match *self {
            Self::Done { process, .. } | Self::Failed { process, .. } | Self::Notification { process, .. } => {
                Some(process)
            }
            Self::Message { .. } | Self::StoreRefused { .. } | Self::Rejected { .. } => None,
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Not a valid packet. It uses up its sequence number all the same, so what follows is not lost with it.
    Malformed,
    /// Not the next in order of its sender. A repeated packet is only dropped. If one is missing, the link stays where it is and
    /// everything that follows is dropped too: over a lossless transport the sender is broken and should be treated as gone.
    OutOfOrder {
        /// Sequence number that was due.
        expected: u32,
        /// Sequence number of the packet.
        got: u32,
    },
    /// It asks for something that its key does not allow.
    Refused(Refusal),
    /// It answers a fetch that this node did not make, or in the wrong way.
    UnknownFetch(FetchId),
    /// No handler has this id.
    UnknownHandler(HandlerId),
    /// It comes from a node without a link to this one, or one that is gone.
    UnknownNode,
}

/// Bytes of one page that were translated for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Send, fetch or receive.
    pub op: TraceOp,
    /// Process whose memory it is.
    pub process: ProcessId,
    /// First address.
    pub address: u64,
    /// Length in bytes, all in one page.
    pub length: u32,
}
