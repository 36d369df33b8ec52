//! What can go wrong.

use core::fmt;

use mapwire_driver::DriverError;
use mapwire_launch::LaunchError;
use mapwire_launch::doors::MeetingError;
use thiserror::Error;

mod kind;

pub use kind::ErrorKind;

use crate::config::ConfigError;
use crate::far::error::FarError;
use crate::shared::error::SharedError;

/// What can go wrong. Every message names what was wrong, with which value, and how to mend it. [`kind`](Self::kind)
/// classifies it. In fields offsets, lengths and alignments are in bytes, and `rank` and `name` are those of the export.
///
/// `Debug` prints the message too, so that a `main` which returns an error ends with a sentence:
///
/// ```no_run
/// fn main() -> Result<(), mapwire::Error> {
///     let node = mapwire::Node::join()?;
///     node.import(1, "inbox").start()?.send(b"hello", 0)
/// }
/// ```
#[derive(Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The launcher of another make that started this process with others: `mpirun`, `srun`, `mpiexec`.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A server and a client that do not come together.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
    /// Communication.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Shared memory.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// Global memory cannot have this shape.
    #[error(transparent)]
    Global(#[from] mapwire_gms::ConfigError),
    /// Global memory refuses a call.
    #[error(transparent)]
    GlobalCall(#[from] mapwire_gms::Error),
    /// This process is a forked child of the one that joined the job or made the thing.
    #[error(transparent)]
    Forked(#[from] mapwire_host::processes::Forked),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] mapwire_host::memory::MemoryError),
    /// Far memory.
    #[error(transparent)]
    Far(#[from] FarError),
    /// A proxy address.
    #[error(transparent)]
    Proxy(#[from] mapwire_vmmc::ProxyError),
    /// A range outside a buffer, export, import or slice.
    #[error("{length} {unit} at {offset} pass the end, which is at {end}")]
    OutOfRange { offset: u64, length: u64, end: u64, unit: &'static str },
    /// A file that shared memory was read from or written to.
    #[error("the file that shared memory was read from or written to: {0}")]
    Io(std::io::Error),
    /// A signal's offset.
    #[error("a signal is 8 aligned bytes; offset {0} is not a multiple of 8")]
    Unaligned(u64),
    /// The offset of a word for an atomic operation.
    #[error("a word of {width} bytes lies at a multiple of that; offset {offset} is none")]
    UnalignedWord { offset: u64, width: u64 },
    /// A name that is for mapwire itself.
    #[error("names that begin with `mapwire.` are reserved, and `{0}` is one: choose another")]
    ReservedName(String),
    /// Ranks that make different calls where all must make the same.
    #[error(
        "rank {rank} makes {call}, rank 0 {call_of_0}: all ranks must make the same calls in the same order, with the same lengths"
    )]
    CallsDiffer { rank: u32, call: String, call_of_0: String },
    /// Two calls of one rank at a time that all ranks make together.
    #[error(
        "this rank is in a barrier, broadcast, gather or reduce already: make such calls from one thread at a time, and not from handlers of notifications"
    )]
    CallsOverlap,
    /// A wait for any of no signals.
    #[error("a wait for any of no signals would never end: name at least one")]
    NothingAwaited,
    /// Rows that would be stored over each other: `stride` is from the begin of one to the begin of the next.
    #[error(
        "rows of {row_bytes} B every {stride} B overlap where they are stored: let the stride be at least the length of a row"
    )]
    Overlap { row_bytes: u64, stride: u64 },
    /// Values at an address that is not theirs.
    #[error("values that are aligned to {align} bytes cannot lie at {address:#x}")]
    Misplaced { address: u64, align: u64 },
    /// A right that the import does not carry.
    #[error(
        "the import carries the right to {has}, not to {needs}: ask for it when importing, and let the exporter allow it"
    )]
    NoRight { needs: mapwire_wire::Rights, has: mapwire_wire::Rights },
    /// The export behind an import is gone.
    #[error("rank {rank} has revoked `{name}`")]
    Revoked { rank: u32, name: String },
    /// A send that failed after `sent_bytes` of its `length` had left, from the first on.
    #[error("{cause}; at most {sent_bytes} of {length} B may have been stored")]
    Partial { sent_bytes: u64, length: u64, cause: Box<Error> },
    /// Sends that had returned `Ok` were not stored, or may not have been. Only [`Import::flush`](crate::Import::flush) gives this.
    #[error("{}", not_stored(*rank, name, *count, *first, *reason))]
    NotStored {
        rank: u32,
        name: String,
        /// Sends that were refused since the last flush; 0: not known how many.
        count: u64,
        /// Offset and length of the first bytes that were refused, if known: of a long send a part.
        first: Option<(u64, u64)>,
        reason: mapwire_wire::Refusal,
    },
    /// A signal that cannot come.
    #[error(
        "the signal at offset {offset} of `{name}` will not come: every other rank that may import it is gone, and nobody holds an import of it ({ranks})"
    )]
    Deserted { offset: u64, name: String, ranks: String },
    /// Pages were pinned before the program said that it chooses which are unpinned.
    #[error("{pages} pages are pinned already: say who chooses before anything is exported, sent or fetched")]
    PinnedAlready { pages: u64 },
    /// A range of shared memory where only private memory can be.
    #[error(
        "{length} B at {address:#x} lie in shared memory, which has no fixed place: export or redirect to memory of this process"
    )]
    InSharedMemory { address: u64, length: u64 },
}

fn not_stored(rank: u32, name: &str, count: u64, first: Option<(u64, u64)>, reason: mapwire_wire::Refusal) -> String {
    let since = format!("to `{name}` of rank {rank} since the last flush");
    let what = match (count, first) {
        (0, None) => return format!("sends {since} may not have been stored, it is not known which: {reason}"),
        (0, _) => "some sends".to_owned(),
        (1, _) => "1 send".to_owned(),
        (count, _) => format!("{count} sends"),
    };
    let which = first.map_or_else(String::new, |(offset, length)| format!(", first {length} B at offset {offset}"));
    format!("{what} {since} were not stored{which}: {reason}")
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) type Result<T, E = Error> = core::result::Result<T, E>;

/// A range within `end`, or the error that says why not.
#[inline]
pub(crate) fn check_range(offset: u64, length: u64, end: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(last) if last <= end => Ok(()),
        _ => Err(Error::OutOfRange { offset, length, end, unit: "bytes" }),
    }
}

/// Names that begin so are for mapwire itself.
const RESERVED: &str = "mapwire.";

/// Refuses a name that a program may not use.
pub(crate) fn refuse_reserved(name: &str) -> Result<()> {
    if name.starts_with(RESERVED) { Err(Error::ReservedName(name.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_ends_main_is_a_sentence() {
        let error = Error::Revoked { rank: 3, name: "inbox".to_owned() };
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains("rank 3 has revoked `inbox`"));
    }
}
