//! Errors of pagers and regions.

use crate::store::StoreError;
use mapwire_host::faults::uffd_abi::DEVICE;
use mapwire_host::memory::{Errno, MemoryError};
use mapwire_host::page::PageSizeError;

/// Why a call of the pager failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PagerError {
    /// Too few resident pages.
    #[error("a limit of {pages} pages in RAM is too low: give at least {least}")]
    LimitTooLow {
        /// Pages requested.
        pages: usize,
        /// Fewest pages possible.
        least: usize,
    },
    /// More resident pages than the address space has.
    #[error("a limit of {pages} pages in RAM is beyond the address space: give what this computer has")]
    LimitTooHigh {
        /// Pages requested.
        pages: usize,
    },
    /// The kernel's page size differs.
    #[error(transparent)]
    PageSize(#[from] PageSizeError),
    /// Neither the device nor the system call provides a userfaultfd that catches faults of system calls.
    #[error(
        "userfaultfd is refused for faults of system calls ({DEVICE}: {device}; system call: {call}): \
         run as root, or have root run `sysctl vm.unprivileged_userfaultfd=1` or give this user the device (`chmod 666 {DEVICE}`)"
    )]
    UserfaultfdRefused {
        /// Error of opening the device.
        device: Errno,
        /// Error of the system call.
        call: Errno,
    },
    /// The kernel's userfaultfd lacks a feature.
    #[error("this kernel's userfaultfd lacks {missing}: Linux {since} or later has it")]
    UserfaultfdTooOld {
        /// Name of the feature.
        missing: &'static str,
        /// First version that has it.
        since: &'static str,
    },
    /// A region of 0 bytes.
    #[error("a region of 0 bytes cannot be mapped: give its size")]
    Empty,
    /// More bytes than the address space or a region may have.
    #[error("a region of {bytes} bytes is beyond the address space: give at most {most}")]
    TooLarge {
        /// Length requested.
        bytes: usize,
        /// Greatest length.
        most: usize,
    },
    /// An address that is not page-aligned.
    #[error("address {address:#x} is not a multiple of 4096: a region begins on a page")]
    Unaligned {
        /// Address requested.
        address: usize,
    },
    /// No further region is possible.
    #[error("{regions} regions are mapped already: unmap one first")]
    TooManyRegions {
        /// Most regions.
        regions: usize,
    },
    /// A range that is not within the region.
    #[error("{bytes} bytes at {offset} are not within a region of {region_bytes} bytes")]
    OutOfRange {
        /// Offset of the first byte in the region.
        offset: usize,
        /// Length of the range.
        bytes: usize,
        /// Length of the region.
        region_bytes: usize,
    },
    /// Pages cannot move onto themselves.
    #[error("{bytes} bytes at {from} and at {to} overlap: move them in parts that do not")]
    Overlap {
        /// Offset of the source.
        from: usize,
        /// Offset of the destination.
        to: usize,
        /// Length of both.
        bytes: usize,
    },
    /// Not a file that pages can be read from; why.
    #[error("the file cannot be mapped: {0}")]
    File(&'static str),
    /// A system call on a file to map failed.
    #[error("{call} of the file to map: {errno}{advice}", advice = mapwire_host::limits::advice(errno.0))]
    FileCall { call: &'static str, errno: Errno },
    /// An offset in a file that is not page-aligned.
    #[error("offset {offset} in the file is not a multiple of 4096, or is too large: a page of a file begins on one")]
    FileOffset {
        /// Offset requested.
        offset: u64,
    },
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
    /// Cannot start a thread.
    #[error("cannot start a thread that serves page faults: {errno}; see `ulimit -u`")]
    Thread { errno: Errno },
    /// Another system call failed.
    #[error("{call} of {bytes} bytes at {address:#x}: {errno}{advice}")]
    System {
        call: &'static str,
        /// First address; 0 if the kernel was to choose.
        address: usize,
        /// Length concerned.
        bytes: usize,
        errno: Errno,
        /// How to fix it, if known.
        advice: String,
    },
}

impl PagerError {
    /// Whether the kernel refused because a limit is reached: of memory, address space, mappings or descriptors.
    #[must_use]
    pub fn is_of_limit(&self) -> bool {
        use rustix::io::Errno as Os;
        matches!(self, Self::System { errno, .. } | Self::FileCall { errno, .. } if [Os::NOMEM, Os::MFILE, Os::NFILE].contains(&errno.0))
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
        Self::System { call, address, bytes, errno: errno.into(), advice }
    }
}
