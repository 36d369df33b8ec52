//! What can be wrong with a trace file.

use std::io;

/// Why a trace file cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system did not give the bytes.
    #[error("cannot read {file} at byte {at}")]
    Io {
        /// The file's name.
        file: String,
        /// Where reading stopped.
        at: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The first bytes are not those of a trace file.
    #[error(
        "{file} is not a trace file of mapwire: {why}; `mapwire lab import` makes one from CSV, din, oracleGeneral or Parquet"
    )]
    NotATrace {
        /// The file's name.
        file: String,
        /// What was found.
        why: String,
    },
    /// A later version of the format.
    #[error("{file} is a trace file of version {version}; this mapwire reads versions 1 to {supported}", supported = crate::format::VERSION)]
    Version {
        /// The file's name.
        file: String,
        /// Its version.
        version: u16,
    },
    /// The file is good up to a place, and not behind it.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// Where the good part of a trace file ends, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is good for {records} records, up to byte {at}: {kind}")]
pub struct Damage {
    /// The file's name.
    pub file: String,
    /// Bytes of the good part.
    pub at: u64,
    /// Records of the good part.
    pub records: u64,
    /// What is wrong behind it.
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
    Size {
        /// Records it claims to hold.
        records: u32,
        /// Bytes it claims to have.
        bytes: u32,
    },
    /// The bytes are not those that were written.
    #[error("the block that follows was changed: its checksum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// The checksum of what is there.
        found: u32,
        /// The checksum that was written.
        expected: u32,
    },
    /// The checksum is right, but the contents make no sense.
    #[error("the block that follows is malformed: {0}")]
    Malformed(&'static str),
    /// The block begins before the one before it ends.
    #[error("the block that follows begins at {first_ns} ns, before the last record, at {last_ns} ns")]
    Unordered {
        /// Its first time.
        first_ns: u64,
        /// The last time before it.
        last_ns: u64,
    },
    /// The end does not fit what stood before it.
    #[error("the end tells of other blocks than there are")]
    WrongEnd,
    /// Something follows the end.
    #[error("bytes follow the file's end")]
    BehindEnd,
}

/// Why a record or a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system did not take the bytes.
    #[error("cannot write the trace")]
    Io(#[from] io::Error),
    /// The record has no valid operation.
    #[error("record {record} of the trace has operation {op}, which does not exist")]
    Op {
        /// The record's number, from 0.
        record: u64,
        /// Its operation.
        op: u8,
    },
    /// The record is older than the one before it.
    #[error(
        "record {record} of the trace is of {time_ns} ns, the one before it of {last_ns} ns; a trace is in order of time"
    )]
    Unordered {
        /// The record's number, from 0.
        record: u64,
        /// Its time.
        time_ns: u64,
        /// The time of the one before it.
        last_ns: u64,
    },
    /// The metadata is too long.
    #[error("the trace's metadata has {bytes} bytes, more than {max}", max = crate::format::MAX_METADATA_BYTES)]
    Metadata {
        /// Its length.
        bytes: usize,
    },
}
