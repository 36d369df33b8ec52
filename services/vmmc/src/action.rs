//! Requests of the model to its driver.

use alloc::vec::Vec;

use mapwire_wire::{Endpoint, ExportId, Key, MappedPart, NodeId, Rights};

use crate::error::VmmcError;
use crate::requests::RequestId;

/// An import that the exporter has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Exporter.
    pub from: Endpoint,
    /// Number of the export on its node.
    pub export: ExportId,
    /// Key that the export's NIC requires.
    pub key: Key,
    /// Length of the export, in bytes.
    pub length: u64,
    pub rights: Rights,
    /// Part that can be mapped, for the direct path: the exporter passes that memory under the request's number.
    pub direct: Option<MappedPart>,
}

impl Grant {
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.from.node
    }
}

/// Something for the driver to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a control message.
    Send {
        to: Endpoint,
        /// Encoded message.
        message: Vec<u8>,
    },
    /// Pass the memory of an export to a node under a tag.
    PassMemory {
        to: Endpoint,
        export: ExportId,
        /// Number of the importer's request.
        tag: u64,
    },
    /// An importer is being granted an export: admit accesses with its key from now on.
    Granted {
        /// Importer.
        to: Endpoint,
        export: ExportId,
        rights: Rights,
    },
    /// An importer to which memory cannot be passed has been granted an export that others map: it stores and fetches by packets.
    GrantedApart {
        /// Importer.
        to: Endpoint,
        export: ExportId,
    },
    /// A requested import has been granted.
    Imported { request: RequestId, grant: Grant },
    /// A requested import has failed.
    Failed { request: RequestId, error: VmmcError },
    /// A peer has revoked an export that this node imports.
    Revoked {
        /// Exporter.
        from: Endpoint,
        /// Number of its export.
        export: ExportId,
    },
    /// A peer leaves.
    Goodbye {
        /// Process that leaves.
        from: Endpoint,
    },
}
