//! What can be wrong with a trace file.

use std::io;

/// Why a trace file cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {file} at byte {at}")]
    Io { file: String, at: u64, source: io::Error },
    #[error(
        "{file} is not a trace file of mapwire: {why}; `mapwire lab import` makes one from CSV, din, oracleGeneral or Parquet"
    )]
    NotATrace { file: String, why: String },
    #[error("{file} is a trace file of version {version}; this mapwire reads versions 1 to {supported}", supported = crate::format::VERSION)]
    Version { file: String, version: u16 },
    /// The file is good up to a place, and not behind it.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// Where the good part of a trace file ends, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is good for {records} records, up to byte {at}: {kind}")]
pub struct Damage {
    pub file: String,
    /// Bytes of the good part.
    pub at: u64,
    pub records: u64,
    pub kind: DamageKind,
}

/// What is wrong behind the good part of a trace file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// It ends between two blocks, without the mark of the end.
    #[error("the file ends there without the mark of its end, as if its writer had been stopped")]
    NoEnd,
    /// It ends in the middle of a block or of the end.
    #[error("the file is cut off {0} bytes later, in the middle of a block")]
    CutOff(u64),
    /// What follows is neither a block nor the end.
    #[error("what follows is not a block (it begins with {0:02x?})")]
    NoBlock([u8; 4]),
    /// The block says that it has impossibly many bytes or records.
    #[error("the block that follows claims {records} records in {bytes} bytes, which no block has")]
    Size { records: u32, bytes: u32 },
    #[error("the block that follows was changed: its checksum is {found:08x}, not {expected:08x}")]
    Checksum { found: u32, expected: u32 },
    /// The checksum is right, but the contents make no sense.
    #[error("the block that follows is malformed: {0}")]
    Malformed(&'static str),
    #[error("the block that follows begins at {first_ns} ns, before the last record, at {last_ns} ns")]
    Unordered { first_ns: u64, last_ns: u64 },
    /// The end does not fit what stood before it.
    #[error("the end tells of other blocks than there are")]
    WrongEnd,
    #[error("bytes follow the file's end")]
    BehindEnd,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write the trace")]
    Io(#[from] io::Error),
    #[error("record {record} of the trace has operation {op}, which does not exist")]
    Op { record: u64, op: u8 },
    #[error(
        "record {record} of the trace is of {time_ns} ns, the one before it of {last_ns} ns; a trace is in order of time"
    )]
    Unordered { record: u64, time_ns: u64, last_ns: u64 },
    #[error("the trace's metadata has {bytes} bytes, more than {max}", max = crate::format::MAX_METADATA_BYTES)]
    Metadata { bytes: usize },
}
