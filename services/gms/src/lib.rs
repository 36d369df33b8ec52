//! Global memory (GMS, GMS-NP): the protocol of one node, without a machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod directory;
mod map;
mod name;
mod nodes;

pub use directory::{
    CheckPoints, Directory, DirectoryFull, ENTRY_BYTES, Entry, MAX_COPIES, PlainRows, RowSize,
    Rows, Scanned,
};
pub use map::{BUCKETS, Bucket, Map, MapVersion};
pub use name::{PageHash, PageName, SpaceId};
pub use nodes::{MAX_NODES, NodeSet};
