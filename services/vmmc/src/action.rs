//! What the model asks of its driver.

use alloc::vec::Vec;

use mapwire_wire::{ExportId, Key, MappedPart, NodeId, Rights};

use crate::error::VmmcError;
use crate::requests::RequestId;

/// An import that the exporter has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The exporter.
    pub node: NodeId,
    /// Its export.
    pub export: ExportId,
    /// The key that its NIC wants to see.
    pub key: Key,
    /// Bytes of the export.
    pub length: u64,
    /// What may be done.
    pub rights: Rights,
    /// What can be mapped, for the direct path: the exporter passes that memory under the request's number.
    pub direct: Option<MappedPart>,
}

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a control message.
    Send {
        /// Where to.
        to: NodeId,
        /// The encoded message.
        message: Vec<u8>,
    },
    /// Pass the memory of an export to a node under a tag.
    PassMemory {
        /// Where to.
        to: NodeId,
        /// Which export.
        export: ExportId,
        /// The number of the importer's request.
        tag: u64,
    },
    /// An import that was asked for is there.
    Imported {
        /// Which.
        request: RequestId,
        /// What was granted.
        grant: Grant,
    },
    /// An import that was asked for will not be.
    Failed {
        /// Which.
        request: RequestId,
        /// Why.
        error: VmmcError,
    },
    /// A peer has revoked an export that this node imports.
    Revoked {
        /// The peer.
        from: NodeId,
        /// Its export.
        export: ExportId,
    },
    /// A peer leaves.
    Goodbye {
        /// The peer.
        from: NodeId,
    },
}
