//! What threads may do with pages of views, and why that could not be changed.

use super::uffd_abi::DEVICE;
use crate::errno::{CallError, Errno};

/// Access of application threads to a page of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Access {
    /// No access: loads and stores fault.
    #[default]
    None,
    /// Load; stores fault.
    Read,
    /// Load and store.
    Write,
}

/// Why pages could not be protected. Holds no allocation, so that a fault handler may make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectionError {
    /// Pages outside of the view.
    #[error(
        "pages {first_page}..{first_page}+{pages} of view {view} do not exist: there are {views} views of {view_pages} pages"
    )]
    OutOfRange { view: usize, first_page: usize, pages: usize, views: usize, view_pages: usize },
    /// Neither the device nor the system call provides a userfaultfd.
    #[error(
        "userfaultfd is refused ({DEVICE}: {device}; system call: {call}): \
         give this user the device (`chmod 666 {DEVICE}`), or let the container's seccomp \
         profile pass userfaultfd (vm.unprivileged_userfaultfd may stay 0); \
         or set MAPWIRE_FAULTS=sigsegv"
    )]
    UserfaultfdRefused { device: Errno, call: Errno },
    /// The kernel's userfaultfd lacks a feature.
    #[error(
        "this kernel's userfaultfd lacks {missing}: \
         Linux 6.4 or later has it; or set MAPWIRE_FAULTS=sigsegv"
    )]
    UserfaultfdTooOld { missing: &'static str },
    /// mprotect splits mapped ranges, and the kernel's limit of them is reached.
    #[error(
        "protections differ from page to page so much that this process reached the kernel's \
         limit of {limit} mapped ranges: raise it with `sysctl vm.max_map_count={wanted}`, \
         or use MAPWIRE_FAULTS=userfaultfd, which needs no ranges"
    )]
    TooManyRanges { limit: u64, wanted: u64 },
    /// No memory is left for pages opened for the first time.
    #[error(
        "no memory left for {pages} pages of shared memory: {errno}; free memory, or raise the limit of the control group"
    )]
    OutOfMemory { pages: usize, errno: Errno },
    #[error(transparent)]
    System(#[from] CallError),
}
