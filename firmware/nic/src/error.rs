//! Errors of the firmware.

use mapwire_wire::{HandlerId, ImportId, NodeId, ProcessId, Refusal, Rights, WireError};
use thiserror::Error;

/// Why a table of the NIC could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NicError {
    /// The NIC's memory is used up.
    #[error(
        "{what} needs {needed_bytes} B of NIC memory, and {left_bytes} B of the budget are left: raise the budget or close something"
    )]
    OutOfNicMemory {
        /// Table that needed it.
        what: &'static str,
        needed_bytes: u64,
        /// Bytes left of the budget.
        left_bytes: u64,
    },
    #[error("the {what} table is full: it holds {limit} entries")]
    TableFull {
        /// Name of the table.
        what: &'static str,
        /// Most entries that it holds.
        limit: usize,
    },
    /// This NIC has no such process.
    #[error("{0} has not been opened on this NIC")]
    UnknownProcess(ProcessId),
    /// The process is already open.
    #[error("{0} is open on this NIC already")]
    ProcessOpen(ProcessId),
    /// The job has no such node; the number of nodes.
    #[error("{0} is not among the {1} nodes that this NIC has links with")]
    UnknownNode(NodeId, usize),
    /// The export does not exist, or no longer.
    #[error("export {0} does not exist, or no longer does")]
    UnknownExport(u32),
    #[error("{0} is installed already")]
    HandlerTaken(HandlerId),
    /// A key of all zeros opens nothing: packets that need no key carry it.
    #[error("a key of all zeros protects nothing: draw one from the operating system's entropy")]
    ZeroKey,
    /// An epoch of 0 names no incarnation.
    #[error("epoch 0 names no incarnation of a node: draw one from the operating system's entropy")]
    ZeroEpoch,
    /// The range is not representable.
    #[error("{length} B at {address:#x} pass the end of the address space")]
    BadRange {
        /// First address of the range.
        address: u64,
        /// Length of the range, in bytes.
        length: u64,
    },
    /// A translation could not be installed or opened.
    #[error(transparent)]
    Translation(#[from] mapwire_translation::TranslationError),
}

/// Why a command of a process was not carried out. Nothing of it was applied at the destination, unless a peer refused a later
/// part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The entry in the queue is no command.
    #[error("the command queue holds an entry that is not a command: {0}")]
    Malformed(WireError),
    /// The import does not exist or belongs to another process.
    #[error("{0} does not exist or is another process's")]
    UnknownImport(ImportId),
    /// The export behind the import is gone.
    #[error("the export behind {0} has been revoked")]
    Revoked(ImportId),
    /// The range passes the end of the import.
    #[error("{length} B at offset {offset} pass the end of an import of {import_bytes} B")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        length: u64,
        import_bytes: u64,
    },
    /// The import does not carry the right.
    #[error("the import carries the right to {has}, not to {needs}")]
    NoRight {
        /// Right that the command needs.
        needs: Rights,
        /// Rights of the import.
        has: Rights,
    },
    /// The job has no such node.
    #[error("{0} is not in this job")]
    UnknownNode(NodeId),
    #[error("{0} is gone")]
    PeerGone(NodeId),
    /// The exporter refused.
    #[error("the exporter refused: {0}")]
    Refused(Refusal),
    /// The process has no command queue.
    #[error("{0} has not been opened on this NIC")]
    NotOpen(ProcessId),
    /// The host could not pin the memory when the NIC missed its translation.
    #[error("the page at {address:#x} could not be pinned; the log says why")]
    NotPinned {
        /// First address of the page.
        address: u64,
    },
    /// The translations of one packet evict each other, however often the host supplies them.
    #[error(
        "the pages around {address:#x} do not fit into the NIC's cache or the limit on pinned pages together; use more entries or \
         ways, or a higher limit"
    )]
    NoRoom {
        /// First address of the packet.
        address: u64,
    },
    /// The NIC was given a command while it accepts none of this process.
    #[error("the command before this one is not done; ask accepts_command first")]
    NotAccepted,
}
