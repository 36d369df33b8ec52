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

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A command is over: the source of a send may be reused, or a fetch is in place. Its pages are held no more.
    Done {
        /// Whose command.
        process: ProcessId,
        /// Its completion word.
        completion: u32,
    },
    /// A command has failed: nothing more of it will be applied. Its pages are held no more.
    Failed {
        /// Whose command.
        process: ProcessId,
        /// Its completion word; `None` for a command that has none.
        completion: Option<u32>,
        /// Why.
        error: CommandError,
        /// Bytes of a send that may have been stored at most; `u64::MAX`: all of them. 0 for a fetch.
        sent_bytes: u64,
    },
    /// A message with a notification has been delivered (VMMC §2).
    Notified {
        /// Whose export.
        process: ProcessId,
        /// The export.
        export: ExportId,
        /// The sender.
        from: NodeId,
        /// First byte of the message, counted from the start of the export.
        offset: u64,
        /// Bytes of the message.
        length: u64,
    },
    /// A peer refused stores that this node sent.
    StoresRefused {
        /// The peer.
        from: NodeId,
        /// Its export.
        export: ExportId,
        /// Why.
        reason: Refusal,
        /// Messages that were refused.
        count: u64,
    },
    /// A packet was dropped.
    Rejected {
        /// Who sent it.
        from: NodeId,
        /// Why.
        reason: Rejection,
    },
    /// Word of a message on the direct path did not show the key of an export, and was dropped.
    NoticeWithoutKey {
        /// Who sent it.
        from: NodeId,
        /// The export that it named.
        export: ExportId,
    },
    /// Word of a message on the direct path named a range outside its export, and was dropped.
    NoticeOutside {
        /// Who sent it.
        from: NodeId,
        /// The export.
        export: ExportId,
        /// First byte named.
        offset: u64,
        /// Bytes named.
        length: u64,
    },
    /// A peer has broken the rules, and counts as gone.
    PeerBroken {
        /// The peer.
        node: NodeId,
        /// What it did.
        breach: Breach,
    },
    /// Nothing has come of a peer for as long as its link waits, and it is gone.
    PeerSilent {
        /// The peer.
        node: NodeId,
    },
    /// A new incarnation of a peer is there. What concerned its former self is over: it was gone, or is now.
    PeerRestarted {
        /// The peer.
        node: NodeId,
    },
    /// The path to a peer has been left for another.
    PathChanged {
        /// The peer.
        node: NodeId,
        /// The path that is taken now.
        path: u8,
    },
    /// A peer has left, and is gone.
    PeerLeft {
        /// The peer.
        node: NodeId,
    },
}
