//! Contents of pages that the program has not changed: zeros, or a page of a file.
//!
//! Parts of a region are of files; the rest is zeros. Unchanged pages of a file are never stored: they are read again.

use core::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use mapwire_host::descriptors::copy_above_stdio;
use mapwire_host::page::PAGE_BYTES;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::error::PagerError;
use crate::store::layers::read_pages;
use crate::store::{IncomingPage, StoreError};

/// Effect of changes of a file on pages that the program has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChanges {
    /// The program may see the change at any time, or never, as with a private mapping of the kernel.
    Seen,
    /// The program keeps seeing the bytes that it has seen; if they are gone, access raises SIGBUS.
    Refused,
}

/// A file from which pages are read.
#[derive(Debug)]
pub(crate) struct File {
    file: OwnedFd,
    /// Device and inode number.
    identity: (u64, u64),
}

impl File {
    /// A regular, readable file. The descriptor is a copy, unless one of `known` is of the same file: closing a descriptor releases locks
    /// that the program may have on the file.
    fn new(file: impl AsFd, known: &Origins) -> Result<Arc<Self>, PagerError> {
        let found = look(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(PagerError::File("it is not a regular file"));
        }
        let flags = rustix::fs::fcntl_getfl(&file).map_err(failure("fcntl(F_GETFL)"))?;
        if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(PagerError::File("it is not open for reading"));
        }
        let identity = (found.st_dev, found.st_ino);
        let mut parts = known.parts.iter();
        if let Some(part) = parts.find(|part| part.file.identity == identity) {
            return Ok(Arc::clone(&part.file));
        }
        let copy = copy_above_stdio(&file).map_err(failure("fcntl(F_DUPFD_CLOEXEC)"))?;
        Ok(Arc::new(Self { file: copy, identity }))
    }
}

fn failure(call: &'static str) -> impl Fn(Errno) -> PagerError {
    move |errno| PagerError::FileCall { call, errno: errno.into() }
}

fn look(file: impl AsFd) -> Result<Stat, PagerError> {
    rustix::fs::fstat(file).map_err(failure("fstat"))
}

/// Present length of a file, in bytes.
///
/// # Errors
/// The kernel's error for the descriptor.
pub fn file_bytes(file: impl AsFd) -> Result<u64, PagerError> {
    Ok(look(file)?.st_size as u64)
}

/// Consecutive pages of a region with consecutive pages of the file.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pages: Range<u64>,
    file: Arc<File>,
    /// Offset of the first page in the file, in bytes.
    offset: u64,
    changes: FileChanges,
}

impl Part {
    /// Offset of a page in the file, in bytes.
    fn offset_of(&self, page: u64) -> u64 {
        self.offset + (page - self.pages.start) * PAGE_BYTES as u64
    }

    /// Whether the program may see other bytes than before.
    pub(crate) fn may_change(&self) -> bool {
        self.changes == FileChanges::Seen
    }

    /// The intersection of the part with `pages`.
    fn within(&self, pages: Range<u64>) -> Option<Self> {
        let pages = self.pages.start.max(pages.start)..self.pages.end.min(pages.end);
        (pages.start < pages.end).then(|| Self { offset: self.offset_of(pages.start), pages, ..self.clone() })
    }

    /// Reads consecutive pages of the part. Bytes behind the file's end are zero; returns the number of pages that begin before it.
    pub(crate) fn read(&self, pages: &mut [IncomingPage<'_>]) -> Result<usize, StoreError> {
        let Some(first) = pages.first() else {
            return Ok(0);
        };
        let offset = self.offset_of(first.id.page);
        let read = read_pages(&self.file.file, pages, offset)
            .map_err(|errno| StoreError::system("preadv of a mapped file", errno))?;
        for (index, page) in pages.iter_mut().enumerate() {
            let filled = read.saturating_sub(index * PAGE_BYTES).min(PAGE_BYTES);
            page.bytes[filled..].fill(0);
        }
        Ok(read.div_ceil(PAGE_BYTES))
    }
}

/// The parts of a region that are of files, in order and disjoint.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    parts: Vec<Part>,
}

impl Origins {
    /// The part that contains a page; `None`: it is zeros.
    pub(crate) fn part(&self, page: u64) -> Option<&Part> {
        let next = self.next(page);
        self.parts.get(next).filter(|part| part.pages.contains(&page))
    }

    /// The pages around this one with the same origin, out of `pages` in all.
    pub(crate) fn around(&self, page: u64, pages: u64) -> Range<u64> {
        let next = self.next(page);
        match self.parts.get(next) {
            Some(part) if part.pages.contains(&page) => part.pages.clone(),
            after => {
                let before = next.checked_sub(1).and_then(|index| self.parts.get(index));
                before.map_or(0, |part| part.pages.end)..after.map_or(pages, |it| it.pages.start)
            }
        }
    }

    /// Index of the first part that ends behind a page.
    fn next(&self, page: u64) -> usize {
        self.parts.partition_point(|part| part.pages.end <= page)
    }

    /// The same, but zeros in `pages`.
    fn without(&self, pages: Range<u64>) -> Self {
        let outside = [0..pages.start, pages.end..u64::MAX];
        let kept = |part: &Part| outside.clone().map(|range| part.within(range));
        let parts = self.parts.iter().flat_map(kept).flatten();
        Self { parts: parts.collect() }
    }

    /// The same, but pages of a file from byte `offset` on in `pages`.
    pub(crate) fn with_file(
        &self,
        pages: Range<u64>,
        file: impl AsFd,
        offset: u64,
        changes: FileChanges,
    ) -> Result<Self, PagerError> {
        let file = File::new(file, self)?;
        Ok(self.with(Part { pages, file, offset, changes }))
    }

    fn with(&self, part: Part) -> Self {
        let mut origins = self.without(part.pages.clone());
        let at = origins.next(part.pages.start);
        origins.parts.insert(at, part);
        origins
    }

    /// The same, but the origins of `from` also apply to as many pages from `to` on.
    pub(crate) fn copied(&self, from: &Range<u64>, to: u64) -> Self {
        let mut origins = self.without(to..to + (from.end - from.start));
        for part in self.parts.iter().filter_map(|part| part.within(from.clone())) {
            let first = to + (part.pages.start - from.start);
            origins = origins.with(Part { pages: first..first + (part.pages.end - part.pages.start), ..part });
        }
        origins
    }

    /// The same, but with the file of the page before `pages` continued in them. `None` if nothing changes.
    pub(crate) fn continued(&self, pages: &Range<u64>) -> Option<Self> {
        let before = pages.start.checked_sub(1).and_then(|page| self.part(page));
        match before {
            Some(part) => {
                Some(self.with(Part { offset: part.offset_of(pages.start), pages: pages.clone(), ..part.clone() }))
            }
            None => self.without_any(pages),
        }
    }

    /// The same, but zeros in `pages`. `None` if nothing changes.
    pub(crate) fn without_any(&self, pages: &Range<u64>) -> Option<Self> {
        let after = self.parts.get(self.next(pages.start));
        let is_there = after.is_some_and(|part| part.pages.start < pages.end);
        is_there.then(|| self.without(pages.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> std::fs::File {
        std::fs::File::open("/proc/self/exe").unwrap()
    }

    /// The parts: first page, number of pages, first page of the file.
    fn parts(origins: &Origins) -> Vec<(u64, u64, u64)> {
        let parts = origins.parts.iter();
        parts.map(|part| (part.pages.start, part.pages.end, part.offset / 4096)).collect()
    }

    fn with(origins: &Origins, pages: Range<u64>, page: u64) -> Origins {
        let seen = FileChanges::Seen;
        origins.with_file(pages, file(), page * 4096, seen).unwrap()
    }

    #[test]
    fn parts_are_cut_where_others_take_their_pages() {
        let one = with(&Origins::default(), 10..20, 100);
        assert_eq!(parts(&with(&one, 12..14, 0)), [(10, 12, 100), (12, 14, 0), (14, 20, 104)]);
        assert_eq!(parts(&with(&one, 5..11, 0)), [(5, 11, 0), (11, 20, 101)]);
        assert_eq!(parts(&one.without(0..15)), [(15, 20, 105)]);
        assert_eq!(parts(&one.without(0..u64::MAX)), []);
        assert_eq!(parts(&one.copied(&(12..30), 40)), [(10, 20, 100), (40, 48, 102)]);
        assert_eq!(parts(&one.copied(&(0..12), 25)), [(10, 20, 100), (35, 37, 100)]);
        assert_eq!(parts(&one.continued(&(20..22)).unwrap()), [(10, 20, 100), (20, 22, 110)]);
        assert!(one.continued(&(30..32)).is_none() && one.without_any(&(20..99)).is_none());
        assert_eq!(parts(&one.without_any(&(0..11)).unwrap()), [(11, 20, 101)]);
    }

    #[test]
    fn pages_around_are_of_one_origin() {
        let origins = with(&with(&Origins::default(), 10..20, 0), 20..25, 0);
        for (page, range) in [(0, 0..10), (9, 0..10), (10, 10..20), (24, 20..25), (25, 25..99)] {
            assert_eq!(origins.around(page, 99), range);
            assert_eq!(origins.part(page).is_some(), (10..25).contains(&page));
        }
    }

    #[test]
    fn a_file_that_is_mapped_twice_has_one_descriptor() {
        let origins = with(&with(&Origins::default(), 0..1, 0), 5..6, 0);
        assert!(Arc::ptr_eq(&origins.parts[0].file, &origins.parts[1].file));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let none = Origins::default();
        let refused = |file: std::fs::File| {
            let done = none.with_file(0..1, file, 0, FileChanges::Seen);
            done.unwrap_err().to_string()
        };
        let text = refused(std::fs::File::open("/dev/null").unwrap());
        assert!(text.contains("not a regular file"), "{text}");
        let path = std::env::temp_dir().join(format!("mapwire-origin-{}", std::process::id()));
        let text = refused(std::fs::File::create(&path).unwrap());
        std::fs::remove_file(path).unwrap();
        assert!(text.contains("not open for reading"), "{text}");
    }
}
