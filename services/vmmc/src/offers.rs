//! What this process offers, by name.

use alloc::string::String;
use alloc::vec::Vec;

use mapwire_wire::{Endpoint, ExportId, Key, MappedPart, Rights};

use crate::importers::Importers;

/// An export under its name.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its name: 1 to 255 bytes, one of a kind in its process.
    pub name: String,
    /// The export in its node's NIC.
    pub export: ExportId,
    /// Its key.
    pub key: Key,
    /// Its length in bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// Who they may be.
    pub importers: Importers,
    /// What importers can map of it (the direct path).
    pub direct: Option<MappedPart>,
}

/// An offer and who has taken it.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    pub offer: Offer,
    /// Importers, one entry an import.
    pub taken: Vec<Endpoint>,
}

/// The right to import, asked for by a peer before the name was there.
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

/// Requests of one process that may wait at a time: a peer cannot make this node's memory grow.
pub(crate) const MAX_WAITING: usize = 256;
/// Requests of all processes of a node that may wait at a time, and imports of one export that they may hold: a node names its processes
/// as it likes.
pub(crate) const MAX_OF_NODE: usize = 1024;
