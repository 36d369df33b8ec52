//! Errors of pagers and regions.

use mapwire_host::faults::uffd_abi::DEVICE;
use mapwire_host::memory::{CallError, Errno, MemoryError};
use mapwire_host::page::PageSizeError;

use crate::store::StoreError;

/// Why a call of the pager failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PagerError {
    #[error("a limit of {pages} pages in RAM is too low: give at least {least}")]
    LimitTooLow { pages: usize, least: usize },
    /// More resident pages than the address space has.
    #[error("a limit of {pages} pages in RAM is beyond the address space: give what this computer has")]
    LimitTooHigh { pages: usize },
    /// The kernel's page size differs.
    #[error(transparent)]
    PageSize(#[from] PageSizeError),
    /// Neither the device nor the system call provides a userfaultfd that catches faults of system calls.
    #[error(
        "userfaultfd is refused for faults of system calls ({DEVICE}: {device}; system call: {call}): \
         run as root, or have root run `sysctl vm.unprivileged_userfaultfd=1` or give this user the device (`chmod 666 {DEVICE}`)"
    )]
    UserfaultfdRefused { device: Errno, call: Errno },
    /// The kernel's userfaultfd lacks a feature.
    #[error("this kernel's userfaultfd lacks {missing}: Linux {since} or later has it")]
    UserfaultfdTooOld { missing: &'static str, since: &'static str },
    /// A region of 0 bytes.
    #[error("a region of 0 bytes cannot be mapped: give its size")]
    Empty,
    /// More bytes than the address space or a region may have.
    #[error("a region of {bytes} bytes is beyond the address space: give at most {most}")]
    TooLarge { bytes: usize, most: usize },
    /// An address that is not page-aligned.
    #[error("address {address:#x} is not a multiple of 4096: a region begins on a page")]
    Unaligned { address: usize },
    /// No further region is possible.
    #[error("{regions} regions are mapped already: unmap one first")]
    TooManyRegions { regions: usize },
    /// A range that is not within the region.
    #[error("{bytes} bytes at {offset} are not within a region of {region_bytes} bytes")]
    OutOfRange {
        /// Offset of the first byte in the region.
        offset: usize,
        bytes: usize,
        region_bytes: usize,
    },
    /// Pages cannot move onto themselves.
    #[error("{bytes} bytes at {from} and at {to} overlap: move them in parts that do not")]
    Overlap { from: usize, to: usize, bytes: usize },
    /// Not a file that pages can be read from; why.
    #[error("the file cannot be mapped: {0}")]
    File(&'static str),
    /// A system call on a file to map failed.
    #[error("{call} of the file to map: {errno}{advice}", advice = mapwire_host::limits::advice(errno.0))]
    FileCall { call: &'static str, errno: Errno },
    /// An offset in a file that is not page-aligned.
    #[error("offset {offset} in the file is not a multiple of 4096, or is too large: a page of a file begins on one")]
    FileOffset { offset: u64 },
    /// The store refused the region.
    #[error("the backing store takes no region of {pages} pages: {cause}")]
    Store {
        /// Length of the region, in pages.
        pages: u64,
        cause: StoreError,
    },
    /// The contents of a region cannot be kept for a forked child.
    #[error("memory cannot be kept for a forked child: {cause}")]
    Fork { cause: StoreError },
    /// The memory for published figures cannot be made.
    #[error("figures cannot be published: {0}")]
    Publish(#[from] MemoryError),
    #[error("cannot start a thread that serves page faults: {errno}; see `ulimit -u`")]
    Thread { errno: Errno },
    /// Another system call failed; how to fix it, if known.
    #[error("{0}{1}")]
    System(CallError, String),
}

impl PagerError {
    /// Whether the kernel refused because a limit is reached: of memory, address space, mappings or descriptors.
    #[must_use]
    pub fn is_of_limit(&self) -> bool {
        use rustix::io::Errno as Os;
        matches!(self, Self::System(CallError { errno, .. }, _) | Self::FileCall { errno, .. } if [Os::NOMEM, Os::MFILE, Os::NFILE].contains(&errno.0))
    }

    pub(crate) fn system(call: &'static str, address: usize, bytes: usize, errno: rustix::io::Errno) -> Self {
        let advice = match errno {
            rustix::io::Errno::EXIST => ": something is mapped there, choose another address".into(),
            rustix::io::Errno::NOMEM => format!(
                ": not that much address space or memory (RLIMIT_AS is {}; see `ulimit -v` and vm.overcommit_memory)",
                mapwire_host::limits::address_space()
            ),
            errno => mapwire_host::limits::advice(errno),
        };
        Self::System(CallError::new(call, address, bytes, errno), advice)
    }
}
