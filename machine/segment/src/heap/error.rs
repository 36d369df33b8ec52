//! Why the heap refused something.

use core::fmt;
use core::ops::Range;

use super::MOST_ALIGN;
use crate::error::SegmentError;

/// Why the heap refused something. Addresses are those that all ranks see.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// No bytes.
    #[error("an allocation of 0 bytes: ask for at least 1")]
    NoBytes,
    /// More bytes than can be counted.
    #[error("{count} values of {bytes} bytes are more than can be addressed: ask for fewer")]
    TooLong {
        /// Values.
        count: u64,
        /// Bytes of each.
        bytes: u64,
    },
    /// No room is left for an allocation.
    #[error(
        "no room for {bytes} bytes in one piece: {used_bytes} of the {all_bytes} bytes of shared memory are in use; free some, or raise \
         MAPWIRE_SHARED (--shared)"
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that blocks take, with what is kept for further ones.
        used_bytes: u64,
        /// All bytes for data.
        all_bytes: u64,
    },
    /// An alignment that cannot be had.
    #[error("alignment {align}: it is a power of two, and {MOST_ALIGN} at most")]
    Align {
        /// The alignment asked for.
        align: u64,
    },
    /// An address outside of the memory that is allocated from.
    #[error("{address:#x} is not in the shared memory that blocks are allocated from, which is {data:#x?}")]
    Outside {
        /// The address.
        address: usize,
        /// The addresses of the data.
        data: Range<usize>,
    },
    /// Nothing is allocated there.
    #[error("{address:#x} is not allocated: it was freed before, or was never given")]
    NotAllocated {
        /// The address.
        address: usize,
    },
    /// The block was freed before.
    #[error("{address:#x} is freed for the second time{by}")]
    FreedTwice {
        /// The block's address.
        address: usize,
        /// Who allocated it, in debug mode.
        by: Allocated,
    },
    /// The address is not that of a block's first byte.
    #[error("{address:#x} is inside the block at {block:#x}: give the block's own address")]
    Inside {
        /// The address.
        address: usize,
        /// That of the block.
        block: usize,
    },
    /// Something has stored behind a block.
    #[error("{at:#x} was stored to, {} bytes behind the end of the block of {bytes} bytes at {address:#x}{by}", at - address - *bytes as usize)]
    Overrun {
        /// The block's address.
        address: usize,
        /// Bytes asked for.
        bytes: u64,
        /// The first byte that is damaged.
        at: usize,
        /// Who allocated it.
        by: Allocated,
    },
    /// The heap's record of a block is damaged.
    #[error(
        "the heap's record at {at:#x}, at the end of the block at {address:#x}, was stored to: something writes behind this block or before the next"
    )]
    Record {
        /// The block's address.
        address: usize,
        /// The record's.
        at: usize,
    },
    /// Something has stored to a block that was free.
    #[error("{at:#x} was stored to after the block at {address:#x} had been freed{by}")]
    UsedAfterFree {
        /// The block's address.
        address: usize,
        /// The first byte that is damaged.
        at: usize,
        /// Who allocated it before.
        by: Allocated,
    },
    /// The heap's own words are not as it leaves them.
    #[error("the heap's words at offset {at:#x} of the shared memory were overwritten")]
    Damaged {
        /// Offset of the words.
        at: u64,
    },
    /// Ranks disagree about the debug mode.
    #[error("the debug mode of the shared memory's heap is {} here and {} in another rank; give all ranks the same", on(*ours), on(!*ours))]
    Differs {
        /// Whether it is on here.
        ours: bool,
    },
    /// The segment cannot grow, or the job is at its end.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Who allocated a block, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allocated {
    /// The rank; `None` without debug mode.
    pub rank: Option<u32>,
    /// The word that the caller gave; 0 if it gave none.
    pub location: u64,
}

impl Allocated {
    /// Nobody knows.
    pub(super) const UNKNOWN: Self = Self { rank: None, location: 0 };
}

impl fmt::Display for Allocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.location) {
            (None, _) => Ok(()),
            (Some(rank), 0) => write!(f, "; rank {rank} allocated it"),
            (Some(rank), location) => write!(f, "; rank {rank} allocated it at {location:#x}"),
        }
    }
}
