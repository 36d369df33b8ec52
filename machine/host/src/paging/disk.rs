//! A store in a file of a local disk.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno as Os;

use super::store::{BackingStore, IncomingPage, MAX_REGIONS, OutgoingPage, PageId, StoreError};
use crate::page::PAGE_BYTES;

/// Pages of one call, at most.
const CALL_PAGES: usize = 128;

/// Where a region lies in the file, in pages.
#[derive(Debug, Clone, Copy)]
struct Extent {
    first: u64,
    pages: u64,
}

/// Keeps pages in a file without a name, which the kernel frees when the store is dropped, or when the process dies.
///
/// A region takes one range of the sparse file, so neighbouring pages are written and read by one call. The page cache is
/// passed by (`O_DIRECT`) where the file system can; else its pages are dropped after use.
#[derive(Debug)]
pub struct DiskStore {
    file: OwnedFd,
    is_direct: bool,
    regions: RwLock<Box<[Option<Extent>]>>,
}

impl DiskStore {
    /// A store in the folder `path`.
    ///
    /// # Errors
    /// The folder does not exist, may not be written to, or its file system has no files without names.
    pub fn new(path: impl AsRef<Path>) -> std::io::Result<Self> {
        let path = path.as_ref();
        let open = |flags| {
            rustix::fs::open(
                path,
                OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags,
                Mode::RUSR | Mode::WUSR,
            )
            .and_then(crate::descriptors::above_stdio)
        };
        let (file, is_direct) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(Os::INVAL) => (open(OFlags::empty())?, false),
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self {
            file,
            is_direct,
            regions: RwLock::new(vec![None; MAX_REGIONS].into()),
        })
    }

    /// Whether the page cache is passed by.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The byte of the file at which a page begins.
    fn offset(&self, id: PageId) -> Result<u64, StoreError> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        match regions.get(id.region as usize) {
            Some(Some(extent)) if id.page < extent.pages => {
                Ok((extent.first + id.page) * PAGE_BYTES as u64)
            }
            _ => Err(StoreError::Missing(id)),
        }
    }

    /// Without `O_DIRECT`: lets the page cache drop what was written or read.
    fn forget(&self, offset: u64, bytes: usize, written: bool) -> Result<(), StoreError> {
        if self.is_direct {
            return Ok(());
        }
        if written {
            // The cache can only drop what the disk has.
            rustix::fs::fdatasync(&self.file).map_err(|errno| failure("fdatasync", errno))?;
        }
        let length = std::num::NonZeroU64::new(bytes as u64);
        // The cache is larger for a while where this fails.
        let _ = rustix::fs::fadvise(&self.file, offset, length, Advice::DontNeed);
        Ok(())
    }

    fn write(&self, pages: &[OutgoingPage<'_>], offset: u64) -> Result<(), StoreError> {
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

    fn read(&self, pages: &mut [IncomingPage<'_>], offset: u64) -> Result<(), StoreError> {
        let mut done = 0;
        let bytes = pages.len() * PAGE_BYTES;
        while done < bytes {
            let first = done / PAGE_BYTES;
            let id = pages[first].id;
            let mut parts: [IoSliceMut<'_>; CALL_PAGES] =
                core::array::from_fn(|_| IoSliceMut::new(&mut []));
            let mut count = 0;
            for (part, page) in parts.iter_mut().zip(&mut pages[first..]) {
                let skip = if count == 0 { done % PAGE_BYTES } else { 0 };
                *part = IoSliceMut::new(&mut page.bytes[skip..]);
                count += 1;
            }
            match rustix::io::preadv(&self.file, &mut parts[..count], offset + done as u64) {
                // Behind the end of the file.
                Ok(0) => return Err(StoreError::Missing(id)),
                Ok(read) => done += read,
                Err(Os::INTR | Os::AGAIN) => {}
                Err(errno) => return Err(failure("preadv", errno)),
            }
        }
        self.forget(offset, bytes, false)
    }
}

/// How many of the pages, from the first on, follow each other in the file.
fn run_pages(ids: impl Iterator<Item = PageId>) -> usize {
    let mut next = None;
    ids.take(CALL_PAGES)
        .take_while(|&id| {
            let follows = next.is_none_or(|next| id == next);
            next = Some(PageId {
                page: id.page + 1,
                ..id
            });
            follows
        })
        .count()
}

impl BackingStore for DiskStore {
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError> {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        // The first gap that is large enough. Allocates nothing: the program's allocator may be in a region, and a fault there
        // would need this lock.
        let mut first = 0_u64;
        while let Some(extent) = regions.iter().flatten().find(|extent| {
            extent.first < first.saturating_add(pages) && first < extent.first + extent.pages
        }) {
            first = extent.first + extent.pages;
        }
        let end = first
            .checked_add(pages)
            .and_then(|end| end.checked_mul(PAGE_BYTES as u64));
        let most = crate::limits::file_bytes().0.unwrap_or(i64::MAX as u64);
        if end.is_none_or(|end| end > most) {
            return Err(StoreError::Region {
                reason: "the file would be longer than this process may make one: raise `ulimit -f`",
            });
        }
        let place = regions.get_mut(region as usize).ok_or(StoreError::Region {
            reason: "a region's number is below 1024",
        })?;
        *place = Some(Extent { first, pages });
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let extent = regions.get_mut(region as usize).and_then(Option::take);
        if let Some(extent) = extent {
            // Before another region can take the range.
            punch(&self.file, extent.first, extent.pages);
        }
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        let mut rest = pages;
        while let Some(page) = rest.first() {
            let count = run_pages(rest.iter().map(|page| page.id));
            self.write(&rest[..count], self.offset(page.id)?)?;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        let mut rest = pages;
        while let Some(page) = rest.first() {
            let offset = self.offset(page.id)?;
            let count = run_pages(rest.iter().map(|page| page.id));
            let (run, others) = rest.split_at_mut(count);
            self.read(run, offset)?;
            rest = others;
        }
        Ok(())
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        if let Ok(offset) = self.offset(PageId {
            region,
            page: first,
        }) {
            punch(&self.file, offset / PAGE_BYTES as u64, pages);
        }
    }
}

/// Frees a range of the file. Costs disk space only where it fails.
fn punch(file: &OwnedFd, first: u64, pages: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let bytes = PAGE_BYTES as u64;
    let _ = rustix::fs::fallocate(file, flags, first * bytes, pages * bytes);
}

fn failure(call: &'static str, errno: Os) -> StoreError {
    match errno {
        Os::NOSPC | Os::DQUOT => StoreError::Full {
            advice: "free space in the folder of the paging file, or give another folder",
        },
        errno => StoreError::System {
            call,
            errno: errno.into(),
        },
    }
}

impl DiskStore {
    /// Bytes of disk space that the store takes now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn disk_bytes(&self) -> std::io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let file = File::from(self.file.try_clone()?);
        Ok(file.metadata()?.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_child, lower_limit};

    fn outgoing(page: u64, bytes: &[u8]) -> OutgoingPage<'_> {
        let id = PageId { region: 7, page };
        OutgoingPage { id, bytes }
    }

    #[test]
    fn a_disk_that_is_full_says_how_to_make_space() {
        for errno in [Os::NOSPC, Os::DQUOT] {
            let text = failure("pwritev", errno).to_string();
            assert!(text.contains("full: free space"), "{text}");
        }
        assert!(failure("pwritev", Os::IO).to_string().contains("pwritev"));
    }

    #[test]
    fn a_file_longer_than_the_process_may_make_is_refused_before_it_is_written() {
        in_child("long", || {
            lower_limit(rustix::process::Resource::Fsize, 1 << 20);
            let store = DiskStore::new("/tmp").unwrap();
            assert_eq!(store.add_region(0, 256), Ok(()));
            let error = store.add_region(1, 1).unwrap_err();
            assert!(error.to_string().contains("ulimit -f"), "{error}");
            store.remove_region(0);
            assert_eq!(store.add_region(1, 256), Ok(()));
        });
    }

    #[test]
    fn regions_lie_side_by_side_and_gaps_are_used_again() {
        let store = DiskStore::new("/tmp").unwrap();
        for region in 0..3 {
            store.add_region(region, 10).unwrap();
        }
        store.remove_region(1);
        store.add_region(7, 10).unwrap();
        store.add_region(8, 11).unwrap();
        let first = |region| store.offset(PageId { region, page: 0 }).unwrap() / 4096;
        assert_eq!([0, 7, 2, 8].map(first), [0, 10, 20, 30]);
        for id in [
            PageId {
                region: 7,
                page: 10,
            },
            PageId { region: 1, page: 0 },
            PageId {
                region: u32::MAX,
                page: 0,
            },
        ] {
            assert_eq!(store.offset(id), Err(StoreError::Missing(id)));
        }
        let missing = store.store(&[outgoing(10, &[0; 4096])]).unwrap_err();
        assert!(
            missing.to_string().contains("page 10 of region 7"),
            "{missing}"
        );
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(DiskStore::new("/nowhere/at/all").is_err());
    }
}
