//! The files of a disk store: one that is written to, and those before it, which forked children or the parent read as well.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mapwire_host::page::PAGE_BYTES;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno as Os;

use crate::store::{IncomingPage, OutgoingPage, StoreError};

/// Most pages of one call.
pub(crate) const CALL_PAGES: usize = 128;

/// An unnamed file, which the kernel frees when the last process that has it closes it. A page has the same offset in all layers of a
/// store; a layer has holes where it has no page.
#[derive(Debug)]
pub(crate) struct Layer {
    file: OwnedFd,
    is_direct: bool,
    is_written: AtomicBool,
}

impl Layer {
    /// Makes an empty layer in the folder.
    pub(crate) fn new(folder: &Path) -> Result<Self, Os> {
        let open = |flags| {
            rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::RUSR | Mode::WUSR)
                .and_then(mapwire_host::descriptors::above_stdio)
        };
        let (file, is_direct) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(Os::INVAL) => (open(OFlags::empty())?, false),
            Err(errno) => return Err(errno),
        };
        Ok(Self { file, is_direct, is_written: AtomicBool::new(false) })
    }

    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }

    /// Without `O_DIRECT`: lets the page cache drop what was written or read.
    fn forget(&self, offset: u64, bytes: usize, written: bool) -> Result<(), StoreError> {
        if self.is_direct {
            return Ok(());
        }
        if written {
            // The cache can only drop what is on the disk.
            rustix::fs::fdatasync(&self.file).map_err(|errno| failure("fdatasync", errno))?;
        }
        let length = std::num::NonZeroU64::new(bytes as u64);
        // If this fails, the cache stays larger for a while.
        let _ = rustix::fs::fadvise(&self.file, offset, length, Advice::DontNeed);
        Ok(())
    }

    /// Writes at most [`CALL_PAGES`] pages from byte `offset` on.
    pub(crate) fn write(&self, pages: &[OutgoingPage<'_>], offset: u64) -> Result<(), StoreError> {
        self.is_written.store(true, Ordering::Relaxed);
        let mut done = 0;
        let bytes = pages.len() * PAGE_BYTES;
        while done < bytes {
            let mut parts = [IoSlice::new(&[]); CALL_PAGES];
            let first = done / PAGE_BYTES;
            for (part, page) in parts.iter_mut().zip(&pages[first..]) {
                *part = IoSlice::new(page.bytes);
            }
            let count = pages.len() - first;
            parts[0] = IoSlice::new(&pages[first].bytes[done % PAGE_BYTES..]);
            match rustix::io::pwritev(&self.file, &parts[..count], offset + done as u64) {
                Ok(0) => return Err(failure("pwritev", Os::IO)),
                Ok(written) => done += written,
                Err(Os::INTR | Os::AGAIN) => {}
                Err(errno) => return Err(failure("pwritev", errno)),
            }
        }
        self.forget(offset, bytes, true)
    }

    /// Reads at most [`CALL_PAGES`] pages from byte `offset` on.
    pub(crate) fn read(&self, pages: &mut [IncomingPage<'_>], offset: u64) -> Result<(), StoreError> {
        let read = read_pages(&self.file, pages, offset);
        let read = read.map_err(|errno| failure("preadv", errno))?;
        match pages.get(read / PAGE_BYTES) {
            Some(missing) => Err(StoreError::Missing(missing.id)),
            None => self.forget(offset, read, false),
        }
    }

    /// Frees pages `first` to `first + pages - 1` of the file. A failure costs only disk space.
    pub(crate) fn punch(&self, first: u64, pages: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let bytes = PAGE_BYTES as u64;
        let _ = rustix::fs::fallocate(&self.file, flags, first * bytes, pages * bytes);
    }
}

/// Reads at most [`CALL_PAGES`] pages of a file from byte `offset` on; returns the number of bytes before its end.
pub(crate) fn read_pages(file: &OwnedFd, pages: &mut [IncomingPage<'_>], offset: u64) -> Result<usize, Os> {
    let mut done = 0;
    while done < pages.len() * PAGE_BYTES {
        let first = done / PAGE_BYTES;
        let mut parts: [IoSliceMut<'_>; CALL_PAGES] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        for (part, page) in parts.iter_mut().zip(&mut pages[first..]) {
            let skip = if count == 0 { done % PAGE_BYTES } else { 0 };
            *part = IoSliceMut::new(&mut page.bytes[skip..]);
            count += 1;
        }
        match rustix::io::preadv(file, &mut parts[..count], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Os::INTR | Os::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

pub(crate) fn failure(call: &'static str, errno: Os) -> StoreError {
    match errno {
        Os::NOSPC | Os::DQUOT => {
            StoreError::Full { advice: "free space in the folder of the paging file, or give another folder" }
        }
        errno => StoreError::system(call, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_says_how_to_make_space() {
        for errno in [Os::NOSPC, Os::DQUOT] {
            let text = failure("pwritev", errno).to_string();
            assert!(text.contains("full: free space"), "{text}");
        }
        assert!(failure("pwritev", Os::IO).to_string().contains("pwritev"));
    }
}
