//! Memory that a process shares with its peers on the same host, and raw access to memory.
//!
//! [`SharedBuffer`] is the exporter's side: memory behind a memfd, so nothing is left on disk or in `/dev/shm` whatever happens to the
//! processes. [`MappedBuffer`] is an importer's mapping of it. Each sees the other's stores without any call.
//!
//! Existing memory of the program can become such a buffer ([`SharedBuffer::adopt`]): its pages move onto a memfd in place, and back when
//! the buffer is dropped.
//!
//! # Two memfds
//! One holds whole pages of data, the other one page whose first word is the [`Status`]. Both are
//! sealed in length and against further seals, and an importer maps only what
//! [`memfd::verify`] approves: no exporter can make an importer's loads fault.
//!
//! # Revocation (VMMC §4)
//! [`SharedBuffer::revoke`] moves the exporter onto fresh memory with the same contents at the same address. Importers keep the old
//! memory, an orphan that nobody reads: their stores stay harmless and need no check; [`MappedBuffer::revoked`] reports it.
//!
//! # Who may write
//! Seals enforce it. Only the exporter writes the status, and also the data if the buffer is shared for loads only ([`Writers::Present`]):
//! its own mapping is older than the seal, and nobody gets another writable one, not even through `/proc/self/fd`.
//!
//! ```
//! use mapwire_host::memory::{MappedBuffer, SharedBuffer, Writers};
//!
//! let mut export = SharedBuffer::allocate("inbox", 10_000)?;
//! export.share(Writers::All)?;
//! let (memory, status) = export.descriptors().expect("it is shared");
//! // A peer gets both descriptors over a Unix socket, and maps them.
//! let import = MappedBuffer::map(memory, status, 0..10_000, true)?;
//! import.write(64, &b"hello"[..])?;
//! import.store_release_u64(0, 1)?;
//!
//! assert_eq!(export.load_acquire_u64(0)?, 1);
//! let mut bytes = [0; 5];
//! export.read(64, &mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//!
//! export.revoke()?;
//! assert!(import.revoked());
//! # Ok::<(), mapwire_host::memory::MemoryError>(())
//! ```

#[allow(unsafe_code)]
mod adoption;
mod buffer;
#[allow(unsafe_code)]
mod forks;
pub mod memfd;
#[allow(unsafe_code)]
pub mod raw;
mod revocation;
mod status;
#[cfg(test)]
mod tests;
pub mod words;

pub use buffer::{MappedBuffer, SharedBuffer};
pub use memfd::Writers;
pub use raw::memory_is_mapped;
pub use status::{Status, flags};

pub use crate::errno::Errno;
pub use crate::maps::{ClosedPart, check_memory, closed_parts, is_plain_memory};

/// Why memory could not be allocated, mapped or accessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A buffer of 0 bytes was requested.
    #[error("a buffer of 0 bytes was asked for: ask for at least 1")]
    Zero,
    /// More bytes than an address space or a file can hold.
    #[error("{bytes} bytes are more than this computer can address: ask for fewer")]
    TooLong {
        /// Length requested.
        bytes: usize,
    },
    /// The address space has no room, because of the limit or its size.
    #[error(
        "no address space left for {bytes} bytes (RLIMIT_AS is {limit}): \
         free other memory, or raise the limit with `ulimit -v`"
    )]
    AddressSpace {
        /// Length requested.
        bytes: usize,
        /// Value of RLIMIT_AS.
        limit: crate::limits::Limit,
    },
    /// Longer than a file may be.
    #[error(
        "a memory of {bytes} bytes is longer than files may be (RLIMIT_FSIZE is {limit} bytes): \
         raise the limit with `ulimit -f`"
    )]
    FileBytes {
        /// Length requested.
        bytes: usize,
        /// Value of RLIMIT_FSIZE.
        limit: crate::limits::Limit,
    },
    /// No descriptor is left for a memfd.
    #[error(
        "no file descriptor left for a memory of {bytes} bytes (RLIMIT_NOFILE is {limit}): \
         raise the limit with `ulimit -n`"
    )]
    Descriptors {
        /// Length requested.
        bytes: usize,
        /// Value of RLIMIT_NOFILE.
        limit: crate::limits::Limit,
    },
    /// More memory than may be locked, where mappings are locked (`mlockall`) or were.
    #[error(
        "no locked memory left for {bytes} bytes (RLIMIT_MEMLOCK is {limit} bytes): \
         raise the limit with `ulimit -l`, or unlock memory"
    )]
    LockedMemory {
        /// Length concerned.
        bytes: usize,
        /// Value of RLIMIT_MEMLOCK.
        limit: crate::limits::Limit,
    },
    /// No further mapped range is allowed.
    #[error(
        "no mapped range left for {call} of {bytes} bytes (vm.max_map_count is {limit}): \
         raise it with `sysctl vm.max_map_count`, or unmap memory"
    )]
    MappedRanges {
        call: &'static str,
        /// Length concerned.
        bytes: usize,
        /// Value of `vm.max_map_count`.
        limit: crate::limits::Limit,
    },
    /// An import claims more than the exporter's memory holds.
    #[error("memory from another process has {found_bytes} bytes and must have {needed_bytes}")]
    TooShort {
        /// Length of the memfd.
        found_bytes: u64,
        /// Length that it must have.
        needed_bytes: u64,
    },
    /// Memory from another process whose loads could fault, or whose seals could change.
    #[error("memory from another process is {0}: mapwire did not make it")]
    NotSealed(&'static str),
    /// Memory of the program that cannot be moved onto a memfd.
    #[error("memory {address:#x}+{bytes} cannot be mapped by importers: it is {reason}")]
    NotAdoptable {
        /// First address of the memory.
        address: usize,
        /// Length of the memory.
        bytes: usize,
        /// What prevents it.
        reason: &'static str,
    },
    /// Adopted memory must be accessed by its addresses, not through the buffer.
    #[error("the buffer's memory belongs to the program: load and store there")]
    OfProgram,
    /// A range leaves the buffer.
    #[error("bytes {offset}..{offset}+{bytes} leave a buffer of {len} bytes")]
    OutOfRange {
        /// Offset of the first byte.
        offset: usize,
        /// Length of the range.
        bytes: usize,
        /// Length of the buffer.
        len: usize,
    },
    /// A word is not aligned to its size.
    #[error("the word at byte {offset} is not aligned to {align} bytes")]
    Misaligned {
        /// Offset of the word.
        offset: usize,
        /// Required alignment, in bytes.
        align: usize,
    },
    /// A store into a mapping for loads only.
    #[error("the buffer was mapped for loads only: import it with the right to store")]
    ReadOnly,
    /// A range has unmapped pages, or pages without the access needed.
    #[error(
        "memory {address:#x}+{bytes} is not all mapped for {wanted}: {at:#x} is {found}; \
         was the buffer freed?"
    )]
    NotMapped {
        /// First address of the range.
        address: usize,
        /// Length of the range.
        bytes: usize,
        /// Access that was needed.
        wanted: &'static str,
        /// First address that lacks it.
        at: usize,
        /// What is there instead.
        found: &'static str,
    },
    /// The kernel's pages are of another size.
    #[error(transparent)]
    PageSize(#[from] crate::page::PageSizeError),
    /// Another system call failed.
    #[error("{call} of {bytes} bytes: {errno}")]
    System {
        call: &'static str,
        /// Length concerned.
        bytes: usize,
        errno: Errno,
    },
}

impl MemoryError {
    pub(crate) fn of_call(call: &'static str, bytes: usize, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno as E;
        match errno {
            E::AGAIN if matches!(call, "mmap" | "mlock") => {
                Self::LockedMemory { bytes, limit: crate::limits::locked_memory() }
            }
            E::NOMEM if matches!(call, "mprotect" | "mremap") => {
                Self::MappedRanges { call, bytes, limit: crate::limits::Limit(crate::limits::max_map_count()) }
            }
            E::NOMEM if call == "mmap" => Self::AddressSpace { bytes, limit: crate::limits::address_space() },
            E::MFILE | E::NFILE => Self::Descriptors { bytes, limit: crate::limits::descriptors() },
            E::FBIG | E::OVERFLOW => Self::TooLong { bytes },
            _ => Self::System { call, bytes, errno: errno.into() },
        }
    }
}
