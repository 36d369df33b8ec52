//! Where the parts of a segment lie: offsets in bytes from its start, which is a multiple of 2 MiB.
//!
//! All parts but the data are sparse: a page takes memory once it is used.

/// The default address of a segment, and the first that ranks try.
pub const DEFAULT_BASE: usize = 0x3000_0000_0000;

/// Bases are multiples of this, so that huge pages are possible.
pub const ALIGN_BYTES: usize = 2 << 20;

/// Most ranks of a host.
pub const MAX_RANKS: usize = 4096;

/// The words of the meeting, and a line of [`ROW_BYTES`] a rank.
pub(crate) const MEETING_AT: u64 = 0;
/// Lines of ranks.
pub(crate) const ROWS_AT: u64 = 4096;
pub(crate) const ROW_BYTES: u64 = 64;

/// From here to the data: what is cleared when the memory is opened anew.
pub const STATE_AT: u64 = ROWS_AT + MAX_RANKS as u64 * ROW_BYTES;

/// What the objects and the heap know in common, such as that the memory has ended.
pub(crate) const JOB_AT: u64 = STATE_AT;
pub(crate) const JOB_BYTES: u64 = 4096;

/// The threads that hold or wait: a line a thread.
pub const THREADS_AT: u64 = JOB_AT + JOB_BYTES;
/// Bytes for the lines of threads.
pub const THREADS_BYTES: u64 = 2 << 20;

/// The numbered locks, barriers and meetings of the job.
pub const NUMBERED_AT: u64 = THREADS_AT + THREADS_BYTES;
/// Bytes for them.
pub const NUMBERED_BYTES: u64 = 2688 << 10;

/// The heap's words.
pub const HEAP_AT: u64 = NUMBERED_AT + NUMBERED_BYTES;

/// The data of the program: the heap's pages.
pub const DATA_AT: u64 = 8 << 20;

/// Bytes that a segment with room for `bytes` of the program's maps, with what the heap takes for itself; `None` for more than can be.
#[must_use]
pub fn mapped_bytes(bytes: u64) -> Option<u64> {
    let own = (bytes / 32).checked_add(ALIGN_BYTES as u64)?;
    DATA_AT.checked_add(bytes)?.checked_add(own)?.checked_next_multiple_of(ALIGN_BYTES as u64)
}

/// Bytes for the heap's words.
pub const HEAP_BYTES: u64 = DATA_AT - HEAP_AT;

/// Freed memory is filled with it where the heap is debugged; objects there know by it that they are no more.
pub(crate) const FREED_BYTE: u8 = 0xdd;

const _: () = assert!(HEAP_AT < DATA_AT && DATA_AT.is_multiple_of(ALIGN_BYTES as u64));
