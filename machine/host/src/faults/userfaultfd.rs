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

use super::access::{Access, ProtectionError};
use super::uffd_abi::{self, Feature, Opener, REGISTER_MODE_MINOR, REGISTER_MODE_MISSING, REGISTER_MODE_WP};

use crate::errno::CallError;
use crate::mapping::Rights;
use crate::page::PAGE_BYTES;
use crate::views::MultiView;

const FEATURES: [Feature; 5] = [
    Feature { bit: uffd_abi::FEATURE_FAULT_FLAG_WP, name: "write protection", since: "5.7" },
    Feature { bit: 1 << 5, name: "missing faults of shared memory", since: "4.11" },
    Feature { bit: 1 << 7, name: "SIGBUS mode", since: "4.14" },
    Feature { bit: uffd_abi::FEATURE_MINOR_SHMEM, name: "minor faults of shared memory", since: "5.14" },
    Feature { bit: 1 << 12, name: "write protection of shared memory", since: "5.19" },
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
        uffd_abi::agree_on(&uffd, &FEATURES).map_err(|(missing, errno)| match missing {
            Some(Feature { name, .. }) => ProtectionError::UserfaultfdTooOld { missing: name },
            None => system("ioctl(UFFDIO_API)", 0, 0, errno),
        })?;
        let layout = views.layout();
        for range in (0..layout.views).map(|view| layout.view_range(view)) {
            let fail = |call| move |errno| system(call, range.start, layout.bytes, errno);
            // Registered while still closed to all: nothing slips through in between.
            let mode = REGISTER_MODE_MISSING | REGISTER_MODE_WP | REGISTER_MODE_MINOR;
            uffd_abi::register(&uffd, range.start, layout.bytes, mode).map_err(fail("ioctl(UFFDIO_REGISTER)"))?;
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

fn system(call: &'static str, address: usize, bytes: usize, errno: Os) -> ProtectionError {
    CallError::new(call, address, bytes, errno).into()
}
