//! What the program is told.

use mapwire_wire::NodeId;

use crate::message::Refusal;

/// Where a copy of a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The storing node.
    pub node: NodeId,
    pub frame: u32,
}

/// How something that the program asked for ended. `tag` is that of the call; `frame` is where the page lies, `version` and `checksum` are what
/// was put with it, and `age_ms` milliseconds since its last use; `serving` frames serve others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are described above, once for all")]
pub enum Outcome {
    /// Getpage: the page lies in its landing frame.
    Page {
        tag: u64,
        frame: u32,
        version: u32,
        /// The checksum that was put. Compare it: it guards against peers that do not keep to the protocol.
        checksum: u32,
        age_ms: u32,
    },
    /// Getpage: this node itself stores the page. Copy it from this frame, then call [`copied`](crate::Gms::copied).
    Here { tag: u64, frame: u32, version: u32, checksum: u32, age_ms: u32 },
    /// Getpage: the page is not in global memory. Nothing lands in the frame any more.
    Absent { tag: u64 },
    /// Putpage: the page is stored and the directory names it. Its frame may be reused.
    Stored {
        tag: u64,
        /// Nodes that store it: as many as asked for, or fewer.
        copies: u8,
        /// Where the last copy lay when it was stored. The storing node may move it, and use the frame for another page: whoever reads
        /// there, without asking, compares a checksum.
        place: Place,
    },
    /// Putpage: nobody stores the page. Its frame may be reused.
    Refused {
        tag: u64,
        /// Why the last node that was asked did not take it.
        why: Refusal,
    },
    /// Putpage: the page was on permanent storage and older than MinAge, so nobody was asked to store it (Feeley §3).
    Dropped { tag: u64 },
    /// [`donate`](crate::Gms::donate): no more frames than asked for serve others.
    Shrunk { serving: u32 },
    /// This node is a member.
    Joined,
    /// [`leave`](crate::Gms::leave): this node is no member any more, and stores no page.
    Left,
}
