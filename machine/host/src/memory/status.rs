//! The status of an export: a word that the exporter writes and importers can only read.
//!
//! It has a page and a memfd of its own. The exporter maps the page, then seals the memfd against new writers: its own mapping stays
//! writable, and no importer can ever get one that is.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::memfd::{self, Writers};
use super::{MemoryError, revocation};
use crate::mapping::{Mapping, Rights};
use crate::page::PAGE_BYTES;
use crate::processes::Owner;

/// Bits of the status word. Importers ignore unknown ones.
pub mod flags {
    /// The exporter has moved away: stores no longer reach it.
    pub const REVOKED: u32 = 1;
    /// A thread of the exporter sleeps until a peer stores, and wants to be woken.
    pub const AWAITED: u32 = 2;
    /// The exporter's service thread wants to be woken after a store.
    pub const WATCHED: u32 = 4;
}

/// The exporter's side. Dropping it revokes the export.
#[derive(Debug)]
pub struct Status {
    file: OwnedFd,
    page: Mapping,
    owner: Owner,
    /// Whether anybody may have its descriptor, and read it.
    is_known: AtomicBool,
}

impl Status {
    /// A status without flags. `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// No descriptor, memory or address space left, or a kernel older than 5.1.
    pub fn new(name: &str) -> Result<Self, MemoryError> {
        let file = memfd::create(name, PAGE_BYTES)?;
        let page = Mapping::shared(&file, 0, PAGE_BYTES, Rights::ReadWrite)
            .map_err(|errno| MemoryError::of_call("mmap", PAGE_BYTES, errno))?;
        memfd::finish(&file, Writers::Present)?;
        Ok(Self { file, page, owner: Owner::me(), is_known: AtomicBool::new(false) })
    }

    /// The memfd, which its holders can only read.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.is_known.store(true, Ordering::Release);
        self.file.as_fd()
    }

    /// Whether its memfd was ever requested.
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// The word of [`flags`]. Importers load it before each store on the direct path.
    #[inline(always)]
    pub fn word(&self) -> &AtomicU32 {
        self.page.first_word32()
    }

    /// Marks the export as revoked, or as valid again.
    pub(super) fn set_revoked(&self, revoked: bool) {
        if !self.is_known() {
            // Nobody reads it, and its page need not exist.
        } else if revoked {
            revocation::revoke(self.word());
        } else {
            self.word().fetch_and(!flags::REVOKED, Ordering::SeqCst);
        }
    }

    /// Starts or stops asking importers to wake this process after a store: `flag` says whom.
    pub(super) fn set(&self, flag: u32, on: bool) {
        if on {
            self.word().fetch_or(flag, Ordering::SeqCst);
        } else {
            self.word().fetch_and(!flag, Ordering::SeqCst);
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if self.owner.is_me() && self.is_known() {
            self.set_revoked(true);
        }
    }
}

/// The importer's side.
#[derive(Debug)]
pub(super) struct PeerStatus(Mapping);

impl PeerStatus {
    pub(super) fn map(file: impl AsFd) -> Result<Self, MemoryError> {
        memfd::verify(&file, PAGE_BYTES)?;
        let page = Mapping::foreign(&file, PAGE_BYTES, Rights::Read)
            .map_err(|errno| MemoryError::of_call("mmap", PAGE_BYTES, errno))?;
        Ok(Self(page))
    }

    /// The word, for loads. The exporter may have written anything.
    #[inline(always)]
    pub(super) fn word(&self) -> &AtomicU32 {
        self.0.first_word32()
    }
}
