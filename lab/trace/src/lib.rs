//! Traces of communication: every send, fetch and receive of the processes of a cluster, in order of time.
//!
//! | module | what it is |
//! |---|---|
//! | [`mod@format`] | the trace file (`.mwt`), byte by byte |
//! | [`writer`], [`reader`] | its writer and its reader, block by block, never the whole in memory |
//! | [`raw`] | the files that ranks write while they run: bare [`TraceRecord`]s |
//! | [`merge`] | several ordered streams of records, as one |
//! | [`convert`] | other formats: CSV, `din`, `oracleGeneral`, Parquet |
//! | [`generate`] | synthetic traces |
//! | [`info`] | what a trace is made of (UTLB Table 3) |
//!
//! [`TraceRecord`]: mapwire_wire::TraceRecord
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod block;
mod columns;
#[cfg(feature = "convert")]
pub mod convert;
mod decoded;
pub mod error;
pub mod format;
pub mod generate;
pub mod info;
pub mod merge;
pub mod metadata;
pub mod pages;
pub mod raw;
pub mod reader;
mod spread;
pub mod writer;

pub use block::Block;
pub use error::{Damage, DamageKind, ReadError, WriteError};
pub use merge::{Merge, MergeError, RecordStream};
pub use metadata::Metadata;
pub use raw::{RawError, RawReader};
pub use reader::{Summary, TraceReader};
pub use writer::TraceWriter;
