//! What a node is told at its start, and what the program asks for.

use mapwire_wire::{NodeId, ProcessId};
use thiserror::Error;

use crate::directory::RowSize;
use crate::name::PageName;
use crate::nodes::{MAX_NODES, NodeSet};

pub const FRAME_BYTES: u64 = 4096;

/// How a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub node: NodeId,
    /// The process of each node that takes part.
    pub process: ProcessId,
    /// The nodes that are members at the start; the same everywhere. A node that is not among them may [join](crate::Gms::join).
    pub members: NodeSet,
    /// All nodes that may ever be members: whoever joins tells them.
    pub nodes: NodeSet,
    /// Frames of the memory that this node shares with its peers.
    pub frames: u32,
    /// The first frame that may serve others.
    pub pool_first: u32,
    /// Frames that may serve others. The program uses all others.
    pub pool_frames: u32,
    /// Bytes of this node's part of the page directory.
    pub directory_bytes: usize,
    /// Entries in a row of the directory.
    pub row_size: RowSize,
    /// Getpages and discardpages that may be under way, and as many putpages; the same everywhere.
    pub requests: u16,
    /// Whether what the directory is asked waits for a thread of the host ([`Service::runs_on_host`]), as in GMS; else the NIC's handler
    /// does it (GMS-NP).
    ///
    /// [`Service::runs_on_host`]: mapwire_vmmc::service::Service::runs_on_host
    pub directory_on_host: bool,
    /// How long an epoch lasts at most.
    pub epoch_ms: u32,
    /// Seed of what is drawn.
    pub seed: u64,
}

impl Config {
    /// A node with `frames` frames, of which the last `pool_frames` may serve others.
    #[must_use]
    pub fn new(node: NodeId, members: NodeSet, frames: u32, pool_frames: u32) -> Self {
        Self {
            node,
            process: ProcessId(0),
            members,
            nodes: members,
            frames,
            pool_first: frames.saturating_sub(pool_frames),
            pool_frames,
            directory_bytes: 1 << 20,
            row_size: RowSize::default(),
            requests: 64,
            directory_on_host: false,
            epoch_ms: 5_000,
            seed: u64::from(node.0),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let pool_end = self.pool_first.checked_add(self.pool_frames);
        if self.node.0 >= MAX_NODES {
            return Err(ConfigError::Node(self.node));
        }
        if self.frames == u32::MAX || pool_end.is_none_or(|end| end > self.frames) {
            return Err(ConfigError::Frames { first: self.pool_first, count: self.pool_frames, frames: self.frames });
        }
        if self.requests == 0 || self.requests > 4096 {
            return Err(ConfigError::Requests(self.requests));
        }
        Ok(())
    }
}

/// Why there can be no such node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ConfigError {
    /// A node number that is too large.
    #[error("{0} cannot take part: nodes are numbered below {MAX_NODES}")]
    Node(NodeId),
    /// The pool lies outside the memory.
    #[error("{count} frames from frame {first} on are not among the {frames} frames of the memory")]
    Frames { first: u32, count: u32, frames: u32 },
    /// No requests, or too many.
    #[error("{0} requests cannot be under way: between 1 and 4096")]
    Requests(u16),
}

/// Getpage: fetch a page from global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetPage {
    pub name: PageName,
    /// The frame where it is to land. Nobody else may use it until the outcome.
    pub frame: u32,
    /// Comes back with the outcome.
    pub tag: u64,
    /// Whether the storing node keeps its copy: for pages that others share, or that will not be changed.
    pub keep: bool,
}

/// Putpage: store a page in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutPage {
    pub name: PageName,
    /// Its version: larger whenever the contents changed, never smaller, not even after a discardpage. At most `u32::MAX - 1`.
    pub version: u32,
    /// The frame that it lies in. Nobody may change it until the outcome.
    pub frame: u32,
    /// Comes back with the outcome.
    pub tag: u64,
    /// The program's checksum of the contents, which getpage gives back.
    pub checksum: u32,
    /// Milliseconds since its last use.
    pub age_ms: u32,
    /// Whether the contents are on permanent storage: only then may the page be dropped for want of frames.
    pub on_disk: bool,
    /// Nodes that are to store it: 1 or 2.
    pub copies: u8,
    /// The storing node; drawn by the epoch's weights if `None`.
    pub to: Option<NodeId>,
}

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// As many as may be are under way.
    #[error("{limit} requests are under way already; wait for outcomes")]
    Busy { limit: u16 },
    /// A frame that is not the program's.
    #[error("frame {frame} is not the program's: it serves others, or lies outside the memory")]
    Frame { frame: u32 },
    /// This node is not a member.
    #[error("this node is not a member of the global memory; join it first")]
    NotMember,
    /// This node leaves, or has not left yet.
    #[error("this node is leaving the global memory")]
    Leaving,
    /// More frames than the pool has.
    #[error("{frames} frames cannot serve others: the pool has {pool_frames}")]
    Pool { frames: u32, pool_frames: u32 },
    /// A number of copies that is not offered.
    #[error("{0} copies of a page cannot be put: 1 or 2")]
    Copies(u8),
    /// A version that is not allowed.
    #[error("version {0} of a page is reserved; versions end before it")]
    Version(u32),
    /// A storing node outside the cluster.
    #[error("{0} cannot store pages for this node")]
    Node(NodeId),
    /// No such page waits to be copied.
    #[error("no page with tag {0} waits to be copied")]
    Tag(u64),
}
