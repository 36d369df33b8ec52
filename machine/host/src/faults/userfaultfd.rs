//! Pages protected through userfaultfd in SIGBUS mode: page table entries change, mapped ranges
//! never do.
//!
//! | page | page table entry |
//! |---|---|
//! | closed | none, or a marker left by write protection |
//! | open to loads | present, write-protected by userfaultfd |
//! | open to stores | present |

use std::os::fd::OwnedFd;

use rustix::io::Errno as Os;

use super::uffd_abi::{self, Opener};
use super::{Access, ProtectionError};
use crate::mapping::Rights;
use crate::page::PAGE_BYTES;
use crate::views::MultiView;

/// Features needed, and their names in errors.
const FEATURES: [(u64, &str); 5] = [
    (uffd_abi::FEATURE_FAULT_FLAG_WP, "write protection"),
    (uffd_abi::FEATURE_MISSING_SHMEM, "missing faults of shared memory"),
    (uffd_abi::FEATURE_SIGBUS, "SIGBUS mode"),
    (uffd_abi::FEATURE_MINOR_SHMEM, "minor faults of shared memory"),
    (uffd_abi::FEATURE_WP_SHMEM, "write protection of shared memory"),
];

/// Protects by userfaultfd. Needs no privilege since Linux 5.11, as only faults of user mode are caught.
#[derive(Debug)]
pub(super) struct Userfaultfd {
    uffd: OwnedFd,
}

impl Userfaultfd {
    pub(super) fn new(views: &MultiView, open: Opener) -> Result<Self, ProtectionError> {
        let uffd = open().map_err(|(device, call)| ProtectionError::UserfaultfdRefused {
            device: device.into(),
            call: call.into(),
        })?;
        agree(&uffd)?;
        let layout = views.layout();
        for range in (0..layout.views).map(|view| layout.view_range(view)) {
            let fail = |call| move |errno| system(call, range.start, layout.bytes, errno);
            // Registered while still closed to all: nothing slips through in between.
            uffd_abi::register(&uffd, range.start, layout.bytes).map_err(fail("ioctl(UFFDIO_REGISTER)"))?;
            views.zap(range.clone()).map_err(fail("madvise(MADV_DONTNEED_LOCKED)"))?;
            views.protect(range.clone(), Rights::ReadWrite).map_err(fail("mprotect"))?;
        }
        Ok(Self { uffd })
    }

    pub(super) fn set(
        &self,
        views: &MultiView,
        start: usize,
        bytes: usize,
        from: Access,
        to: Access,
    ) -> Result<(), ProtectionError> {
        match (from, to) {
            (_, Access::None) => views
                .zap(start..start + bytes)
                .map_err(|errno| system("madvise(MADV_DONTNEED_LOCKED)", start, bytes, errno)),
            (Access::Read, Access::Write) => self.write_protect(start, bytes, false),
            (Access::Write, Access::Read) => self.write_protect(start, bytes, true),
            (_, Access::Read) => self.open_pages(views, start, bytes, true),
            (_, Access::Write) => self.open_pages(views, start, bytes, false),
        }
    }

    /// Maps pages that may or may not be mapped already, with or without stores.
    fn open_pages(&self, views: &MultiView, start: usize, bytes: usize, protect: bool) -> Result<(), ProtectionError> {
        let end = start + bytes;
        let mut at = start;
        let mut populated_to = start;
        while at < end {
            let (mapped, done) = uffd_abi::resume(&self.uffd, at, end - at, protect);
            at += mapped;
            match done {
                Ok(()) => break,
                // Interrupted after `mapped` bytes; the next call meets the reason, if any.
                Err(Os::AGAIN) => {}
                // This page is mapped already, perhaps with the other protection.
                Err(Os::EXIST) => {
                    self.write_protect(at, PAGE_BYTES, protect)?;
                    at += PAGE_BYTES;
                }
                // This page never had memory.
                Err(Os::FAULT) if populated_to <= at => {
                    populate(views, at, end)?;
                    populated_to = end;
                }
                Err(errno) => return Err(system("ioctl(UFFDIO_CONTINUE)", at, end - at, errno)),
            }
        }
        Ok(())
    }

    fn write_protect(&self, start: usize, bytes: usize, protect: bool) -> Result<(), ProtectionError> {
        loop {
            match uffd_abi::write_protect(&self.uffd, start, bytes, protect) {
                Ok(()) => return Ok(()),
                Err(Os::AGAIN) => {}
                Err(errno) => {
                    return Err(system("ioctl(UFFDIO_WRITEPROTECT)", start, bytes, errno));
                }
            }
        }
    }
}

fn populate(views: &MultiView, start: usize, end: usize) -> Result<(), ProtectionError> {
    let pages = (end - start) / PAGE_BYTES;
    let offset = views.locate(start).map_or(0, |(_, offset)| offset);
    loop {
        match views.populate(offset / PAGE_BYTES, pages) {
            Ok(()) => return Ok(()),
            Err(Os::INTR) => {}
            Err(errno) => return Err(ProtectionError::OutOfMemory { pages, errno: errno.into() }),
        }
    }
}

fn agree(uffd: &OwnedFd) -> Result<(), ProtectionError> {
    let wanted = FEATURES.iter().fold(0, |all, (feature, _)| all | feature);
    let Err(errno) = uffd_abi::agree(uffd, wanted) else {
        return Ok(());
    };
    // Given no feature, the kernel reports what it has.
    let found = uffd_abi::agree(uffd, 0).map_err(|_| system("ioctl(UFFDIO_API)", 0, 0, errno))?;
    let missing = FEATURES.iter().find(|(feature, _)| found & feature == 0);
    Err(match missing {
        Some((_, missing)) => ProtectionError::UserfaultfdTooOld { missing },
        None => system("ioctl(UFFDIO_API)", 0, 0, errno),
    })
}

fn system(call: &'static str, address: usize, bytes: usize, errno: Os) -> ProtectionError {
    ProtectionError::System { call, address, bytes, errno: errno.into() }
}
