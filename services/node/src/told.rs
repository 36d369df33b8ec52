//! What a node tells of itself.

use mapwire_nic::{CommandError, Rejection};
use mapwire_wire::{ExportId, NodeId, ProcessId, Refusal};

use crate::peers::Breach;

/// What waits in a node besides its NIC, by number: 0 when nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Things that were not taken to be told.
    pub told: usize,
    /// Messages and word of peers that were left while the node was confined.
    pub left: usize,
    /// Imports that were asked for and not answered.
    pub requests: usize,
    /// Answers to them that were not taken.
    pub outcomes: usize,
    /// Requests of peers for exports that are not there.
    pub waiting: usize,
    /// Stores of services.
    pub stores: usize,
}

/// Something that has happened. `process` is whose command or export it is, `completion` the command's completion word, `from` and `node` are
/// the peer; offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described above, once for all")]
pub enum Told {
    /// A command is over: the source of a send may be reused, or a fetch is in place. Its pages are held no more.
    Done { process: ProcessId, completion: u32 },
    /// A command has failed: nothing more of it will be applied. Its pages are held no more.
    Failed {
        process: ProcessId,
        /// Its completion word; `None` for a command that has none.
        completion: Option<u32>,
        error: CommandError,
        /// Bytes of a send that may have been stored at most; `u64::MAX`: all of them. 0 for a fetch.
        sent_bytes: u64,
    },
    /// A message with a notification has been delivered (VMMC §2).
    Notified {
        process: ProcessId,
        export: ExportId,
        from: NodeId,
        /// First byte of the message, counted from the start of the export.
        offset: u64,
        length: u64,
    },
    /// A peer refused stores that this node sent.
    StoresRefused { from: NodeId, export: ExportId, reason: Refusal, count: u64 },
    /// A packet was dropped.
    Rejected { from: NodeId, reason: Rejection },
    /// Word of a message on the direct path did not show the key of an export, and was dropped.
    NoticeWithoutKey { from: NodeId, export: ExportId },
    /// Word of a message on the direct path named a range outside its export, and was dropped.
    NoticeOutside { from: NodeId, export: ExportId, offset: u64, length: u64 },
    /// A peer has broken the rules, and counts as gone.
    PeerBroken { node: NodeId, breach: Breach },
    /// Nothing has come of a peer for as long as its link waits, and it is gone.
    PeerSilent { node: NodeId },
    /// A new incarnation of a peer is there. What concerned its former self is over: it was gone, or is now.
    PeerRestarted { node: NodeId },
    /// The path to a peer has been left for the one with number `path`.
    PathChanged { node: NodeId, path: u8 },
    /// A peer has left, and is gone.
    PeerLeft { node: NodeId },
}
