//! What the program is told.

use mapwire_wire::NodeId;

use crate::message::Refusal;

/// Where a copy of a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The storing node.
    pub node: NodeId,
    /// Its frame.
    pub frame: u32,
}

/// How something that the program asked for ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Getpage: the page lies in its landing frame.
    Page {
        /// The tag of the getpage.
        tag: u64,
        /// The landing frame.
        frame: u32,
        /// The version that was put.
        version: u32,
        /// The checksum that was put. Compare it: it guards against peers that do not keep to the protocol.
        checksum: u32,
        /// Milliseconds since its last use.
        age_ms: u32,
    },
    /// Getpage: this node itself stores the page. Copy it from this frame, then call [`copied`](crate::Gms::copied).
    Here {
        /// The tag of the getpage.
        tag: u64,
        /// A frame that serves others.
        frame: u32,
        /// The version that was put.
        version: u32,
        /// The checksum that was put.
        checksum: u32,
        /// Milliseconds since its last use.
        age_ms: u32,
    },
    /// Getpage: the page is not in global memory. Nothing lands in the frame any more.
    Absent {
        /// The tag of the getpage.
        tag: u64,
    },
    /// Putpage: the page is stored and the directory names it. Its frame may be reused.
    Stored {
        /// The tag of the putpage.
        tag: u64,
        /// Nodes that store it: as many as asked for, or fewer.
        copies: u8,
        /// Where the last copy lay when it was stored. The storing node may move it, and use the frame for another page: whoever reads
        /// there, without asking, compares a checksum.
        place: Place,
    },
    /// Putpage: nobody stores the page. Its frame may be reused.
    Refused {
        /// The tag of the putpage.
        tag: u64,
        /// Why the last node that was asked did not take it.
        why: Refusal,
    },
    /// Putpage: the page was on permanent storage and older than MinAge, so nobody was asked to store it (Feeley §3).
    Dropped {
        /// The tag of the putpage.
        tag: u64,
    },
    /// [`donate`](crate::Gms::donate): no more frames than asked for serve others.
    Shrunk {
        /// How many do.
        serving: u32,
    },
    /// This node is a member.
    Joined,
    /// [`leave`](crate::Gms::leave): this node is no member any more, and stores no page.
    Left,
}
