//! Stores to and fetches from memory of peers, past their processors where the provider's network interface can do so.
//!
//! # How a network interface's chunks become operations
//!
//! | part of a send or fetch | here |
//! |---|---|
//! | export with rights | the exact bytes of the export are [registered](Registrar::register) with its rights; [`RemoteMemory`] is told to importers in a message of its own |
//! | pin of source pages | a local region for each run of pages, by [`OfiPinner`](super::OfiPinner) |
//! | chunk of a store: offset, one or two pieces of pinned frames | [`Ofi::transfer`](super::Ofi::transfer) at that offset, with the pieces' regions; no packet |
//! | chunk of a fetch | the same, into the pieces; neither request nor reply |
//! | signal, notification | a store packet without data, once all writes of its message are done |
//! | end of a command | all its operations are done |
//! | redirection, designs that drop what misses, exports without whole registration | packets, as over any transport: the receiver translates |
//! | revocation, end of an export | the memory becomes an orphan, which its region keeps until all importers have said that no operation is under way |
//!
//! Some providers keep messages, stores and fetches behind stores (FI_ORDER_SAW, WAW, RAW). There a write is done when its source may be
//! reused: a packet that is sent later comes after its bytes. Elsewhere a write is done when its bytes are in the peer's memory
//! (FI_DELIVERY_COMPLETE), and what must come after it waits. A write that follows packets waits until the peer has taken them, as a direct
//! store waits for the ring: a packet may lie for a while where it came in.
//!
//! Where the provider chooses keys (FI_MR_PROV_KEY), as on InfiniBand, they have 32 bits and can be guessed by ranks of the job; otherwise
//! keys are 64 random bits. Either way the provider checks range and rights of each operation against the region.
//!
//! A provider without such hardware (tcp, udp, shm) moves bytes while the peer polls.

use std::sync::Arc;

use mapwire_wire::NodeId;

use super::error::OfiError;
pub use super::sys::{Region, Registrar};

/// What peers may do with registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRights {
    pub store: bool,
    pub fetch: bool,
}

impl RemoteRights {
    /// Only this process reaches it.
    pub const NONE: Self = Self { store: false, fetch: false };
    pub const ALL: Self = Self { store: true, fetch: true };
}

/// How a peer's memory is reached. Whoever knows it has the region's rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    pub(super) key: u64,
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl RemoteMemory {
    /// Bytes of its form on the wire.
    pub const WIRE_BYTES: usize = 24;

    /// Key, base and length, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::WIRE_BYTES] {
        let words = [self.key, self.base, self.bytes].map(u64::to_le_bytes);
        core::array::from_fn(|at| words[at / 8][at % 8])
    }

    /// What a peer has written. Nothing of it is believed: the peer's provider checks each operation.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::WIRE_BYTES]) -> Self {
        let [key, base, bytes] =
            [0, 8, 16].map(|at| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index])));
        Self { key, base, bytes }
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Where `bytes` from `offset` on lie, if they are inside.
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(())?;
        self.base.checked_add(end)?;
        Some(self.base + offset)
    }
}

/// Does not show the key.
impl core::fmt::Debug for RemoteMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "RemoteMemory({} B)", self.bytes)
    }
}

/// Registered bytes of this process that an operation moves.
#[derive(Clone, Copy, Debug)]
pub struct LocalPiece<'a> {
    pub region: &'a Arc<Region>,
    /// The first of them, from the region's start.
    pub offset: usize,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Fetch,
    /// Stores, and is done when its source may be reused and what is sent from then on comes after it.
    Store,
    /// Stores, and is done when its bytes are in place.
    StoreInPlace,
}

/// Why an operation was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RmaError {
    /// As many operations as can be are under way. Poll, then try again.
    #[error("too many operations are under way; poll, then try again")]
    WouldBlock,
    /// No connection to this node was ever made.
    #[error("{0} is not connected")]
    NotConnected(NodeId),
    /// The peer has closed the connection or died.
    #[error("{0} is gone")]
    PeerGone(NodeId),
    /// The range is not inside the peer's memory.
    #[error("{bytes} bytes from offset {offset} are not inside the peer's {region_bytes}")]
    Outside {
        offset: u64,
        bytes: u64,
        /// Length of the peer's memory.
        region_bytes: u64,
    },
    /// A piece is not inside its region, or the region is another endpoint's.
    #[error("a piece of local memory is not inside a region of this endpoint")]
    BadPiece,
    /// The provider takes fewer pieces.
    #[error("{count} pieces in one operation, at most {max} are possible")]
    TooManyPieces {
        count: usize,
        /// How many the provider takes.
        max: usize,
    },
    /// The provider has no remote memory.
    #[error("the provider has neither stores to nor fetches from memory of peers")]
    NotOffered,
    /// The peer's provider has not answered. It may have refused the operation, as after a revocation, or the peer does not poll. The
    /// operation's memory stays in use until the provider says more.
    #[error("{peer} has not answered for {seconds} s: it refuses the operation, or does not poll")]
    TimedOut { peer: NodeId, seconds: u64 },
    #[error("{0}")]
    Failed(OfiError),
}

/// A completed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RmaDone {
    /// What it was begun with.
    pub token: u64,
    pub peer: NodeId,
    /// Of a write: see [`Direction`]. Of a read: its bytes are here.
    pub result: Result<(), RmaError>,
}
