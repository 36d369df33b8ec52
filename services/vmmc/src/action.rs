//! What the model asks of its driver.

use alloc::vec::Vec;

use mapwire_wire::{Endpoint, ExportId, Key, MappedPart, NodeId, Rights};

use crate::error::VmmcError;
use crate::requests::RequestId;

/// An import that the exporter has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The exporter.
    pub from: Endpoint,
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

impl Grant {
    /// The exporter's node.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.from.node
    }
}

/// Something to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a control message.
    Send {
        /// Where to.
        to: Endpoint,
        /// The encoded message.
        message: Vec<u8>,
    },
    /// Pass the memory of an export to a node under a tag.
    PassMemory {
        /// Where to.
        to: Endpoint,
        /// Which export.
        export: ExportId,
        /// The number of the importer's request.
        tag: u64,
    },
    /// An importer is being granted an export: what it shows the key for is to be admitted from now on.
    Granted {
        /// The importer.
        to: Endpoint,
        /// Which export.
        export: ExportId,
        /// What it may do.
        rights: Rights,
    },
    /// An importer to which memory cannot be passed has been granted an export that others map: it stores and fetches by packets.
    GrantedApart {
        /// The importer.
        to: Endpoint,
        /// Which export.
        export: ExportId,
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
        from: Endpoint,
        /// Its export.
        export: ExportId,
    },
    /// A peer leaves.
    Goodbye {
        /// The peer.
        from: Endpoint,
    },
}
