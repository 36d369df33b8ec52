//! Memory that a process shares with its peers on the same host, and raw access to memory.
//!
//! [`SharedBuffer`] is the exporter's side: memory behind a memfd, so nothing is left on disk or
//! in `/dev/shm` whatever happens to the processes. [`MappedBuffer`] is an importer's mapping of
//! it. A store through either is seen by the other without any call.
//!
//! Memory that the program has already can become such a buffer ([`SharedBuffer::adopt`]): its pages move onto a memfd at their
//! place, and back when the buffer is dropped.
//!
//! # Two memfds
//! One holds whole pages of data, the other one page whose first word is the [`Status`]. Both are
//! sealed in length and against further seals, and an importer maps only what
//! [`memfd::verify`] approves: no exporter can make an importer's loads fault.
//!
//! # Revocation (VMMC §4)
//! [`SharedBuffer::revoke`] moves the exporter onto fresh memory with the same contents at the
//! same address. Importers keep the old memory, an orphan that nobody reads: their stores stay
//! harmless and need no check; [`MappedBuffer::revoked`] tells them.
//!
//! # Who may write
//! The kernel enforces it by seals. The exporter alone writes the status, and the data too when the
//! buffer is shared for loads only ([`Writers::Present`]): its own mapping is older than the seal, and
//! nobody gets another that is writable, by `/proc/self/fd` neither.
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
pub use crate::maps::{check_memory, is_plain_memory};

/// Why memory could not be allocated, mapped or reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A buffer of no bytes was asked for.
    #[error("a buffer of 0 bytes was asked for: ask for at least 1")]
    Zero,
    /// More bytes than an address space or a file can hold.
    #[error("{bytes} bytes are more than this computer can address: ask for fewer")]
    TooLong {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The address space has no room, because of the limit or of its size.
    #[error(
        "no address space left for {bytes} bytes (RLIMIT_AS is {limit}): \
         free other memory, or raise the limit with `ulimit -v`"
    )]
    AddressSpace {
        /// Bytes asked for.
        bytes: usize,
        /// RLIMIT_AS.
        limit: crate::limits::Limit,
    },
    /// More than a file may have.
    #[error(
        "a memory of {bytes} bytes is longer than files may be (RLIMIT_FSIZE is {limit} bytes): \
         raise the limit with `ulimit -f`"
    )]
    FileBytes {
        /// Bytes asked for.
        bytes: usize,
        /// RLIMIT_FSIZE.
        limit: crate::limits::Limit,
    },
    /// No descriptor is left for a memfd.
    #[error(
        "no file descriptor left for a memory of {bytes} bytes (RLIMIT_NOFILE is {limit}): \
         raise the limit with `ulimit -n`"
    )]
    Descriptors {
        /// Bytes asked for.
        bytes: usize,
        /// RLIMIT_NOFILE.
        limit: crate::limits::Limit,
    },
    /// More memory than may be locked, where what is mapped is locked (`mlockall`) or was.
    #[error(
        "no locked memory left for {bytes} bytes (RLIMIT_MEMLOCK is {limit} bytes): \
         raise the limit with `ulimit -l`, or unlock memory"
    )]
    LockedMemory {
        /// Bytes concerned.
        bytes: usize,
        /// RLIMIT_MEMLOCK.
        limit: crate::limits::Limit,
    },
    /// The process has as many mapped ranges as it may.
    #[error(
        "no mapped range left for {call} of {bytes} bytes (vm.max_map_count is {limit}): \
         raise it with `sysctl vm.max_map_count`, or unmap memory"
    )]
    MappedRanges {
        /// The call.
        call: &'static str,
        /// Bytes concerned.
        bytes: usize,
        /// `vm.max_map_count`.
        limit: crate::limits::Limit,
    },
    /// An import claims more than the exporter's memory holds.
    #[error("memory from another process has {found_bytes} bytes and must have {needed_bytes}")]
    TooShort {
        /// Bytes of the memfd.
        found_bytes: u64,
        /// Bytes that it must have.
        needed_bytes: u64,
    },
    /// Memory from another process whose loads could fault, or whose seals could change.
    #[error("memory from another process is {0}: mapwire did not make it")]
    NotSealed(&'static str),
    /// Memory of the program that cannot be moved onto a memfd.
    #[error("memory {address:#x}+{bytes} cannot be mapped by importers: it is {reason}")]
    NotAdoptable {
        /// First address.
        address: usize,
        /// Its length.
        bytes: usize,
        /// What is in the way.
        reason: &'static str,
    },
    /// Adopted memory was to be reached by the buffer.
    #[error("the buffer's memory belongs to the program: load and store there")]
    OfProgram,
    /// A range leaves the buffer.
    #[error("bytes {offset}..{offset}+{bytes} leave a buffer of {len} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// How many.
        bytes: usize,
        /// Bytes of the buffer.
        len: usize,
    },
    /// A word is not aligned to its size.
    #[error("the word at byte {offset} is not aligned to {align} bytes")]
    Misaligned {
        /// First byte of the word.
        offset: usize,
        /// What it should be a multiple of.
        align: usize,
    },
    /// A store into a mapping for loads only.
    #[error("the buffer was mapped for loads only: import it with the right to store")]
    ReadOnly,
    /// A range has pages with nothing mapped, or without the access needed.
    #[error(
        "memory {address:#x}+{bytes} is not all mapped for {wanted}: {at:#x} is {found}; \
         was the buffer freed?"
    )]
    NotMapped {
        /// First address of the range.
        address: usize,
        /// Its length.
        bytes: usize,
        /// What was to be done with it.
        wanted: &'static str,
        /// First address that lacks it.
        at: usize,
        /// What is there.
        found: &'static str,
    },
    /// The kernel's pages are of another size.
    #[error(transparent)]
    PageSize(#[from] crate::page::PageSizeError),
    /// A system call failed for a reason of its own.
    #[error("{call} of {bytes} bytes: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// Bytes concerned.
        bytes: usize,
        /// The kernel's reason.
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
