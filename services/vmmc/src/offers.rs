//! Offers of this process, by name.

use alloc::string::String;
use alloc::vec::Vec;

use mapwire_wire::{Endpoint, ExportId, Key, MappedPart, Rights};

use crate::importers::Importers;

/// An export with its name and conditions.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Name of 1 to 255 bytes, unique in its process.
    pub name: String,
    /// Number of the export in its node's NIC.
    pub export: ExportId,
    pub key: Key,
    /// Length in bytes.
    pub length: u64,
    /// Rights that importers may get.
    pub rights: Rights,
    /// Processes that may import it.
    pub importers: Importers,
    /// Part that importers can map (the direct path).
    pub direct: Option<MappedPart>,
}

/// An offer and its importers.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub offer: Offer,
    /// Importers, one entry for each import.
    pub taken: Vec<Endpoint>,
}

/// A peer's request for a name that is not offered yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub from: Endpoint,
    pub uid: u32,
    pub maps: bool,
    pub request: u32,
    pub name: String,
    pub rights: Rights,
    pub token: Option<Key>,
}

/// Most waiting requests of one process: a peer cannot make this node's memory grow.
pub(crate) const MAX_WAITING: usize = 256;
/// Most waiting requests of all processes of a node, and most imports of one export that they hold: a node can invent process numbers.
pub(crate) const MAX_OF_NODE: usize = 1024;
