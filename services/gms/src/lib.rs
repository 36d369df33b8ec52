//! Global memory (GMS, GMS-NP): the protocol of one node, without a machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod counters;
mod directory;
mod encoding;
mod epochs;
mod gms;
mod map;
mod message;
mod name;
mod nodes;
mod outbox;
mod outcome;
mod pool;
mod puts;
mod requests;
mod view;

pub use config::{Config, ConfigError, Error, FRAME_BYTES, GetPage, PutPage};
pub use counters::Counters;
pub use directory::{
    CheckPoints, Directory, DirectoryFull, ENTRY_BYTES, Entry, MAX_COPIES, PlainRows, RowSize,
    Rows, Scanned,
};
pub use encoding::{KINDS, MAX_MESSAGE_BYTES, ParseError};
pub use gms::Gms;
pub use map::{BUCKETS, Bucket, Map, MapVersion};
pub use message::{
    AGE_BINS, AgeReport, EpochInfo, FrameList, Listing, MAX_GRANTS, Message, Operation, PageInfo,
    Refusal, Request,
};
pub use name::{PageHash, PageName, SpaceId};
pub use nodes::{MAX_NODES, NodeSet};
pub use outcome::Outcome;
pub use pool::FrameUses;
