//! Unanswered import requests of this node.

use alloc::string::String;

use mapwire_wire::{Endpoint, Rights};

/// Number of an import request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub id: RequestId,
    pub to: Endpoint,
    pub name: String,
    pub rights: Rights,
    pub deadline_ns: u64,
    pub timeout_ns: u64,
}
