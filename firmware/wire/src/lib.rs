//! Everything that leaves a process as bytes: packets between NICs, control messages between
//! exporters and importers, and commands from a process to its NIC.
//!
//! Each format has two levels. A *view* ([`Packet`], [`Header`], [`CommandHeader`]) is the bytes as
//! they are, little endian, unaligned. A *representation* ([`Repr`], [`ControlMessage`],
//! [`CommandRepr`]) holds legal states only: `parse` makes one or says which field is wrong, with its
//! value, and `emit` turns it back into the very same bytes. Input may come from a hostile or broken
//! peer: parsing never panics, never allocates, and reads nothing outside the slices it is given.
//! It does not authenticate. Whether a key opens an export is for the NIC to decide.
//!
//! | to do | use |
//! |---|---|
//! | read a packet from a datagram | [`Packet::new_checked`], then [`Packet::repr`] |
//! | read a packet from a ring slot | [`Repr::parse`] on the header and the inline payload |
//! | write a packet | [`Repr::emit`], then the payload behind it |
//! | negotiate an import | [`ControlMessage::parse`], [`ControlMessage::emit`] in a message to [`HandlerId::CONTROL`] |
//! | read or write the header of a datagram on a lossy transport | [`link::LinkHeader`], [`link::LinkAck`] |
//! | fill or serve a command queue | [`CommandRepr::emit`], [`CommandRepr::parse`] |
//!
//! Numbers in names and fields are bytes. Ids are types without arithmetic, so that an export cannot be taken
//! for a message. A [`Key`] compares in constant time and prints only its first two bytes.
//!
//! # Checking it
//!
//! `cargo test -p mapwire-wire` runs golden vectors, round trips and a random-bytes test that prints
//! its seed (set `MAPWIRE_SEED` to repeat a run, `MAPWIRE_ROUNDS` to make it longer). The package in
//! `fuzz/` holds coverage-guided targets: `fuzz/run.sh 60` runs each of them for a minute, on stable
//! Rust. The history of the format is in [`log`].

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

#[macro_use]
mod codes;

pub mod atomic;
pub mod command;
pub mod control;
pub mod error;
pub mod header;
pub mod ids;
pub mod kind;
pub mod link;
pub mod log;
pub mod packet;
pub mod payload;
pub mod refusal;
pub mod signal;
pub mod trace;
pub mod view;

pub use atomic::{ATOMIC_BYTES, Atomic, AtomicOp, Width};
pub use command::{COMMAND_BYTES, COMMAND_VERSION, CommandHeader, CommandKind, CommandRepr};
pub use control::{ControlKind, ControlMessage, MAX_CONTROL_BYTES, MAX_NAME_BYTES, MappedPart};
pub use error::WireError;
pub use header::{
    CHUNK_BYTES, Flags, HEADER_BYTES, Header, INLINE_BYTES, MAX_PAYLOAD_BYTES, SHORT_BYTES, SHORT_SIGNAL_BYTES,
    SIGNAL_TRAILER_BYTES, VERSION,
};
pub use ids::{Endpoint, ExportId, FetchId, HandlerId, ImportId, Key, MessageId, NodeId, ProcessId, Rights};
pub use kind::Kind;
pub use packet::Repr;
pub use payload::InlinePayload;
pub use refusal::Refusal;
pub use signal::{Signal, SignalOp};
pub use trace::{TRACE_FLAG_DIRECT, TRACE_FLAG_INLINE, TRACE_RECORD_BYTES, TraceOp, TraceRecord};
pub use view::Packet;
