//! Global memory (GMS, GMS-NP): the protocol of one node, without a machine.
//!
//! Nodes keep pages in the idle memory of others. A [`Gms`] is a node in all its roles: *requesting node* for its program, *directory
//! node* for its part of the page directory, *storing node* for the frames that it donates. It reads no clock, starts no thread and
//! touches no memory: it is a [`Service`](mapwire_vmmc::service::Service), which is fed with messages and asks for messages to be sent and frames
//! to be stored. See [`Gms`] for the order of calls.
//!
//! | paper | here |
//! |---|---|
//! | names by permanent storage, GMS-NP §2.2 | [`SpaceId`], [`PageName`] |
//! | hash computed by the requesting node, §2.5, §3.2 | [`PageHash`] |
//! | page directory, §2.2; rows fetched by DMA, §3.3 | [`Directory`] over [`Rows`]; [`PlainRows`] is memory of the host or the NIC |
//! | check points of a scan, §4.4 | [`CheckPoints`] |
//! | replicated table that finds the directory node, §2.2 | [`Map`] |
//! | request turned in place into the forwarded one, §3.2 | [`Request`] |
//! | epochs, Feeley §3 | [`EpochInfo`], [`AgeReport`] |
//!
//! What operations cost in messages, where all roles are different nodes (those that the requester waits for come first):
//!
//! | | |
//! |---|---|
//! | getpage | 3: Get, Forward, Page; then Landed, after which the storing node may reuse the frame |
//! | getpage, absent | 2 |
//! | putpage | 4: Put, Insert, Listed, Stored; the program may reuse its frame at the end |
//! | discardpage | 1; then one to each storing node, and an answer |
//!
//! The paper's putpage is two messages, both sent by the requesting node. Here the storing node tells the directory node, because
//! then the directory names only what is stored, and a page that was put is found from the outcome on.
//!
//! What it relies on: messages between two nodes arrive once, unchanged and in order; a frame's contents are in place before the message
//! that follows them; a node that is gone stays so, and whoever sends to it hears of that in the end. What it promises: every operation
//! ends; a getpage finds a page whose put ended with [`Outcome::Stored`], unless it was discarded or taken, nodes died, it was on permanent
//! storage and made room for others, or a directory had no room; once nothing is under way the directory names exactly the pages that are
//! stored.
//!
//! Limits: a page is lost with the only node that stores it, which is why pages should be on permanent storage or be put twice. When a
//! directory node dies, or the map changes while a page moves from one storing node to another, a version that was discarded just before
//! may come back: programs compare the version with the one they put last. Members trust each other: one that does not keep to the
//! protocol can make pages absent or have a node expelled, which loses what that node stored, and can store garbage into landing frames,
//! which the checksum shows; no message makes a node panic or grow without bound. At most [`MAX_NODES`] nodes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ages;
mod client;
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

pub use client::{
    Client, ClientConfig, Elsewhere, Ended, Frames, Known, Loss, MAX_VERSION, Member, PageWord, Stored, Surroundings,
    Traffic,
};
pub use config::{Config, ConfigError, Error, FRAME_BYTES, GetPage, PutPage};
pub use counters::Counters;
pub use directory::{
    CheckPoints, Directory, DirectoryFull, ENTRY_BYTES, Entry, MAX_COPIES, PlainRows, RowSize, Rows, Scanned,
};
pub use encoding::{KINDS, MAX_MESSAGE_BYTES, ParseError};
pub use gms::Gms;
pub use map::{BUCKETS, Bucket, Map, MapVersion};
pub use message::{
    AGE_BINS, AgeReport, EpochInfo, FrameList, Listing, MAX_GRANTS, Message, Operation, PageInfo, Refusal, Request,
};
pub use name::{PageHash, PageName, SpaceId};
pub use nodes::{MAX_NODES, NodeSet};
pub use outcome::{Outcome, Place};
pub use pool::FrameUses;
