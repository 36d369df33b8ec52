//! Why memory could not be allocated, mapped or accessed.

use crate::errno::Errno;
use crate::limits::{self, Limit};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A buffer of 0 bytes was requested.
    #[error("a buffer of 0 bytes was asked for: ask for at least 1")]
    Zero,
    /// More bytes than an address space or a file can hold.
    #[error("{bytes} bytes are more than this computer can address: ask for fewer")]
    TooLong { bytes: usize },
    /// A limit of this process or of the kernel is reached.
    #[error("{lack} {bytes} bytes ({name} is {limit}): {mend}")]
    Limit { lack: &'static str, bytes: usize, name: &'static str, limit: Limit, mend: &'static str },
    /// An import claims more than the exporter's memory holds.
    #[error("memory from another process has {found_bytes} bytes and must have {needed_bytes}")]
    TooShort { found_bytes: u64, needed_bytes: u64 },
    /// Memory from another process whose loads could fault, or whose seals could change.
    #[error("memory from another process is {0}: mapwire did not make it")]
    NotSealed(&'static str),
    /// Memory of the program that cannot be moved onto a memfd.
    #[error("memory {address:#x}+{bytes} cannot be mapped by importers: it is {reason}")]
    NotAdoptable { address: usize, bytes: usize, reason: &'static str },
    /// Adopted memory must be accessed by its addresses, not through the buffer.
    #[error("the buffer's memory belongs to the program: load and store there")]
    OfProgram,
    /// A range leaves the buffer.
    #[error("bytes {offset}..{offset}+{bytes} leave a buffer of {len} bytes")]
    OutOfRange { offset: usize, bytes: usize, len: usize },
    /// A store into a mapping for loads only.
    #[error("the buffer was mapped for loads only: import it with the right to store")]
    ReadOnly,
    /// A range has unmapped pages, or pages without the access needed.
    #[error(
        "memory {address:#x}+{bytes} is not all mapped for {wanted}: {at:#x} is {found}; \
         was the buffer freed?"
    )]
    NotMapped { address: usize, bytes: usize, wanted: &'static str, at: usize, found: &'static str },
    /// The kernel's pages are of another size.
    #[error(transparent)]
    PageSize(#[from] crate::page::PageSizeError),
    #[error("{call} of {bytes} bytes: {errno}")]
    System { call: &'static str, bytes: usize, errno: Errno },
}

impl MemoryError {
    /// The error of a call on memory of so many bytes: names the limit that is in the way, if one is.
    pub fn of_call(call: &'static str, bytes: usize, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno as E;
        let limit = |lack, name, limit, mend| Self::Limit { lack, bytes, name, limit, mend };
        match errno {
            E::AGAIN if matches!(call, "mmap" | "mlock") => limit(
                "no locked memory left for",
                "RLIMIT_MEMLOCK",
                limits::locked_memory(),
                "raise the limit with `ulimit -l`, or unlock memory",
            ),
            E::NOMEM if matches!(call, "mprotect" | "mremap") => limit(
                "no mapped range left for memory of",
                "vm.max_map_count",
                Limit(limits::max_map_count()),
                "raise it with `sysctl vm.max_map_count`, or unmap memory",
            ),
            E::NOMEM if call == "mmap" => limit(
                "no address space left for",
                "RLIMIT_AS",
                limits::address_space(),
                "free other memory, or raise the limit with `ulimit -v`",
            ),
            E::MFILE | E::NFILE => limit(
                "no file descriptor left for a memory of",
                "RLIMIT_NOFILE",
                limits::descriptors(),
                "raise the limit with `ulimit -n`",
            ),
            // RLIMIT_FSIZE, which a memfd has too. Without the limit, no file is so long.
            E::FBIG if limits::file_bytes().0.is_some() => limit(
                "files may not be as long as",
                "RLIMIT_FSIZE",
                limits::file_bytes(),
                "raise the limit with `ulimit -f`",
            ),
            E::FBIG | E::OVERFLOW => Self::TooLong { bytes },
            _ => Self::System { call, bytes, errno: errno.into() },
        }
    }

    /// Whether no descriptor is left.
    #[must_use]
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Limit { name: "RLIMIT_NOFILE", .. })
    }
}
