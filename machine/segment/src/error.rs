//! What can go wrong with a segment.

use core::ops::Range;

use mapwire_host::limits::Limit;
use mapwire_host::memory::MemoryError;

use crate::layout::{DEFAULT_BASE, MAX_RANKS};

/// What can go wrong with a segment.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The base address is not usable.
    #[error(
        "the shared base {base:#x} is not a multiple of 2 MiB above 0: set MAPWIRE_SHARED_BASE to one, such as {DEFAULT_BASE:#x}"
    )]
    Base {
        /// The address asked for.
        base: usize,
    },
    /// No bytes, or more than can be addressed.
    #[error(
        "a shared memory of {bytes} bytes: it has at least 1, and fits into the address space (MAPWIRE_SHARED, --shared)"
    )]
    Length {
        /// The bytes asked for.
        bytes: u64,
    },
    /// More ranks than a segment serves.
    #[error("{0} ranks on a host: shared memory serves {MAX_RANKS} at most")]
    Ranks(usize),
    /// Something else is mapped there.
    #[error(
        "shared memory is to lie at {wanted:#x?}, but in rank {rank} {found:#x?} is taken by {name}: set MAPWIRE_SHARED_BASE, alike in all \
         ranks, to the start of a free range of {:#x} bytes",
        wanted.len()
    )]
    Clash {
        /// The rank.
        rank: usize,
        /// The segment's addresses.
        wanted: Range<usize>,
        /// What is taken of them.
        found: Range<usize>,
        /// By what.
        name: String,
    },
    /// Another rank cannot map the segment where this one can.
    #[error("rank {rank} cannot map the shared memory at {base:#x}; its own message says why")]
    Elsewhere {
        /// The rank.
        rank: usize,
        /// The last address tried.
        base: usize,
    },
    /// The address space has no room.
    #[error(
        "no address space for {bytes} bytes of shared memory at {base:#x} (RLIMIT_AS is {limit}): raise it with `ulimit -v`, lower \
         MAPWIRE_SHARED, or move MAPWIRE_SHARED_BASE below the end of user space"
    )]
    AddressSpace {
        /// Its start.
        base: usize,
        /// Its length.
        bytes: u64,
        /// The limit of this process.
        limit: Limit,
    },
    /// A setting differs from that of rank 0.
    #[error("{name} is {ours} here and {first} in rank 0; give all ranks the same")]
    Differs {
        /// The setting.
        name: &'static str,
        /// Its value in this rank.
        ours: String,
        /// Its value in rank 0.
        first: String,
    },
    /// A range outside the segment.
    #[error("{bytes} bytes at offset {offset} leave the shared memory of {all_bytes} bytes")]
    OutOfRange {
        /// First byte, from the start of the segment.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// The segment's length.
        all_bytes: u64,
    },
    /// A rank is gone, or has taken its part away.
    #[error("rank {0} is gone, and with it what it held of the shared memory")]
    RankGone(u32),
    /// The ranks did not all come within the time.
    #[error("{} of {ranks} ranks have not come: {}", missing.len(), first_few(missing))]
    Late {
        /// Those that have not.
        missing: Vec<usize>,
        /// All ranks.
        ranks: usize,
    },
    /// The file could not be made, grown or mapped.
    #[error("shared memory: {0}")]
    Memory(#[from] MemoryError),
}

fn first_few(ranks: &[usize]) -> String {
    let named: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let dots = if ranks.len() > named.len() { ", ..." } else { "" };
    format!("{}{dots}", named.join(", "))
}
