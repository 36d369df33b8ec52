//! Why a pager or a region could not be made.

use super::store::StoreError;
use crate::errno::Errno;
use crate::faults::DEVICE;
use crate::memory::MemoryError;
use crate::page::PageSizeError;

/// Why a call of the pager failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PagerError {
    /// Too few resident pages.
    #[error("a limit of {pages} pages in RAM is too low: give at least {least}")]
    LimitTooLow {
        /// Asked for.
        pages: usize,
        /// The fewest.
        least: usize,
    },
    /// More resident pages than there are addresses.
    #[error("a limit of {pages} pages in RAM is beyond the address space: give what this computer has")]
    LimitTooHigh {
        /// Asked for.
        pages: usize,
    },
    /// No threads to serve faults, or too many.
    #[error("{threads} threads cannot serve page faults: give 1 to {most}")]
    Threads {
        /// Asked for.
        threads: usize,
        /// The most.
        most: usize,
    },
    /// The kernel's pages are of another size.
    #[error(transparent)]
    PageSize(#[from] PageSizeError),
    /// Neither the device nor the system call gives a userfaultfd that catches faults of system calls.
    #[error(
        "userfaultfd is refused for faults of system calls ({DEVICE}: {device}; system call: {call}): \
         run as root, or have root run `sysctl vm.unprivileged_userfaultfd=1` or give this user the device (`chmod 666 {DEVICE}`)"
    )]
    UserfaultfdRefused {
        /// What opening the device gave.
        device: Errno,
        /// What the system call gave.
        call: Errno,
    },
    /// Neither the device nor the system call gives a userfaultfd.
    #[error(
        "userfaultfd is refused ({DEVICE}: {device}; system call: {call}): \
         give this user the device (`chmod 666 {DEVICE}`), or let the container's seccomp \
         profile pass userfaultfd (vm.unprivileged_userfaultfd may stay 0)"
    )]
    UserModeRefused {
        /// What opening the device gave.
        device: Errno,
        /// What the system call gave.
        call: Errno,
    },
    /// The kernel's userfaultfd cannot do what is needed.
    #[error("this kernel's userfaultfd lacks {missing}: Linux {since} or later has it")]
    UserfaultfdTooOld {
        /// What is missing.
        missing: &'static str,
        /// The first version that has it.
        since: &'static str,
    },
    /// A region without pages.
    #[error("a region of 0 bytes cannot be mapped: give its size")]
    Empty,
    /// More bytes than there are addresses or than a region may have.
    #[error("a region of {bytes} bytes is beyond the address space: give at most {most}")]
    TooLarge {
        /// Asked for.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// An address that no page begins at.
    #[error("address {address:#x} is not a multiple of 4096: a region begins on a page")]
    Unaligned {
        /// Asked for.
        address: usize,
    },
    /// No place for another region.
    #[error("{regions} regions are mapped already: unmap one first")]
    TooManyRegions {
        /// The most.
        regions: usize,
    },
    /// Part of a region that it does not have.
    #[error("{bytes} bytes at {offset} are not within a region of {region_bytes} bytes")]
    OutOfRange {
        /// First byte, from the region's begin.
        offset: usize,
        /// Length.
        bytes: usize,
        /// Bytes of the region.
        region_bytes: usize,
    },
    /// Pages cannot move onto themselves.
    #[error("{bytes} bytes at {from} and at {to} overlap: move them in parts that do not")]
    Overlap {
        /// First byte of the one range.
        from: usize,
        /// First byte of the other.
        to: usize,
        /// Length of both.
        bytes: usize,
    },
    /// What is not a file that pages can be read from.
    #[error("the file cannot be mapped: {0}")]
    File(&'static str),
    /// A system call on a file to map.
    #[error("{call} of the file to map: {errno}{advice}", advice = crate::limits::advice(errno.0))]
    FileCall {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
    /// An offset in a file that no page begins at.
    #[error("offset {offset} in the file is not a multiple of 4096, or is too large: a page of a file begins on one")]
    FileOffset {
        /// Asked for.
        offset: u64,
    },
    /// The store refused the region.
    #[error("the backing store takes no region of {pages} pages: {cause}")]
    Store {
        /// Pages of the region.
        pages: u64,
        /// The store's reason.
        cause: StoreError,
    },
    /// What a region holds cannot be kept for a forked child.
    #[error("memory cannot be kept for a forked child: {cause}")]
    Fork {
        /// The store's reason.
        cause: StoreError,
    },
    /// Faults of the region cannot be caught in a signal.
    #[error("cannot catch faults in signals: {0}")]
    Watch(#[from] crate::faults::WatchError),
    /// The memory that figures are published in cannot be made.
    #[error("figures cannot be published: {0}")]
    Publish(#[from] MemoryError),
    /// A thread could not be started.
    #[error("cannot start a thread that serves page faults: {errno}; see `ulimit -u`")]
    Thread {
        /// The kernel's reason.
        errno: Errno,
    },
    /// A system call failed for a reason of its own.
    #[error("{call} of {bytes} bytes at {address:#x}: {errno}{advice}")]
    System {
        /// The call.
        call: &'static str,
        /// First address, 0 where the kernel was to choose.
        address: usize,
        /// Bytes concerned.
        bytes: usize,
        /// The kernel's reason.
        errno: Errno,
        /// How to mend it, if that is known.
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

    pub(super) fn system(call: &'static str, address: usize, bytes: usize, errno: rustix::io::Errno) -> Self {
        let advice = match errno {
            rustix::io::Errno::EXIST => ": something is mapped there, choose another address".into(),
            rustix::io::Errno::NOMEM => format!(
                ": not that much address space or memory (RLIMIT_AS is {}; see `ulimit -v` and vm.overcommit_memory)",
                crate::limits::address_space()
            ),
            errno => crate::limits::advice(errno),
        };
        Self::System { call, address, bytes, errno: errno.into(), advice }
    }
}
