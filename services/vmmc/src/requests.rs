//! Imports that this node has asked for and that are not answered yet.

use alloc::string::String;

use mapwire_wire::{Endpoint, Rights};

/// Names an import under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// An import under way.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub id: RequestId,
    pub to: Endpoint,
    pub name: String,
    pub rights: Rights,
    pub deadline_ns: u64,
    pub timeout_ns: u64,
}
