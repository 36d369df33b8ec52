//! Imports that this node has asked for and that are not answered yet.

use alloc::string::String;

use mapwire_wire::{Endpoint, Rights};

/// Names an import under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// An import under way.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) to: Endpoint,
    pub(crate) name: String,
    pub(crate) rights: Rights,
    pub(crate) deadline_ns: u64,
    pub(crate) timeout_ns: u64,
}
