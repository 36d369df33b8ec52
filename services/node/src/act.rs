//! What only the machine can do.

use mapwire_vmmc::RequestId;
use mapwire_vmmc::service::{Access, Change, Region};
use mapwire_wire::{Endpoint, ExportId, HandlerId};

/// Something that only the machine can do. `to` and `from` are the other process, `handler` the service that asks, `tag` the number of the
/// importer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described above, once for all")]
pub enum Act {
    /// Pass the memory of an export to a node under a tag, so that it can be mapped there (the direct path).
    PassMemory { to: Endpoint, export: ExportId, tag: u64 },
    /// A node to which memory cannot be passed imports an export that others map: what it stores and fetches comes by packets.
    GrantedApart { to: Endpoint, export: ExportId },
    /// An import that was asked for has its [`outcome`](crate::Node::outcome).
    ImportOver { request: RequestId },
    /// A peer has revoked an export that this node imports: what is mapped of it is dead memory.
    Revoked { from: Endpoint, export: ExportId },
    /// Store the process's bytes of the region at a place of a peer's memory: in place where that is mapped here
    /// ([`handle_stored`](crate::Node::handle_stored) says how it went), else by the NIC
    /// ([`store_by_import`](crate::Node::store_by_import)). Until one of them is called nothing else of the process's services is asked.
    Store {
        handler: HandlerId,
        to: Endpoint,
        region: Region,
        /// Where the first of them goes, in bytes from the start of the peer's memory.
        at: u64,
    },
    /// Store those bytes of the region that differ from its copy, at that offset of the service's memory here, at their places in a peer's
    /// memory: in place, as for `Store`, or by the NIC ([`store_changes_by_import`](crate::Node::store_changes_by_import)).
    StoreChanges {
        handler: HandlerId,
        to: Endpoint,
        region: Region,
        /// Offset of the copy, in bytes from the start of the service's memory.
        copy: u64,
    },
    /// Read a region of a peer's memory to that offset of the service's memory here: in place, where that is mapped, and then call
    /// [`handle_fetched`](crate::Node::handle_fetched); else by the NIC ([`fetch_by_import`](crate::Node::fetch_by_import)). Until one of
    /// them is called nothing else of the process's services is asked.
    Fetch {
        handler: HandlerId,
        from: Endpoint,
        region: Region,
        /// Where the first byte goes, in bytes from the start of the service's memory.
        at: u64,
    },
    /// Change the process's own memory.
    Change { handler: HandlerId, change: Change },
    /// A service must [meet](mapwire_vmmc::service::Service::poll_meeting) another process before it goes on.
    Meet { handler: HandlerId, to: Endpoint },
    /// Give the program this access to the region's pages.
    Protect {
        handler: HandlerId,
        region: Region,
        /// What the program may do from now on.
        access: Access,
    },
}
