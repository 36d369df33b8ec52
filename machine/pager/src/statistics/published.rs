//! The page with a pager's counters, which other processes may read while the pager runs.
//!
//! It is an array of words of 8 bytes, each written by relaxed atomics: first a header, then a word for each [`Figure`], then the buckets
//! of the latencies. Figures read at one moment need not be consistent.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::error::PagerError;
use crate::residency::Residency;

pub(crate) use crate::statistics::Figure;
use crate::statistics::Statistics;
use crate::statistics::latencies::{BUCKETS, bucket_of};
use crate::store::RemotePages;
use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::memory::Errno;
use mapwire_host::memory::memfd::{self, Writers};
use mapwire_host::page::PAGE_BYTES;

/// Name of the memory with published figures in `/proc/PID/fd`, after `/memfd:`.
pub const MEMORY_NAME: &str = "mapwire:mapwire-far-stats";

/// First word: identifies the page.
const MAGIC: u64 = u64::from_le_bytes(*b"mapwfar\0");
/// Second word. Changes with the meaning or the position of any word.
const VERSION: u64 = 3;
/// Number of words before the figures.
const HEADER: usize = 2;

/// Words before the buckets.
const FIGURES: usize = HEADER + Figure::MaxLatencyNs as usize + 1;
const WORDS: usize = FIGURES + BUCKETS;
const _: () = assert!(WORDS * 8 <= PAGE_BYTES);

/// Counters of a pager. Counting is a relaxed addition to a word of the page.
#[derive(Debug)]
pub(crate) struct Counters {
    page: Mapping,
    file: OwnedFd,
}

impl Counters {
    pub(crate) fn new(limit_pages: usize) -> Result<Self, PagerError> {
        // The name is shown with `mapwire:` before it.
        let file = memfd::create("mapwire-far-stats", PAGE_BYTES)?;
        let page = Mapping::shared(&file, 0, PAGE_BYTES, Rights::ReadWrite)
            .map_err(|errno| PagerError::system("mmap", 0, PAGE_BYTES, errno))?;
        memfd::finish(&file, Writers::Present)?;
        let counters = Self { page, file };
        counters.set(Figure::LimitPages, limit_pages);
        counters.word(1).store(VERSION, Ordering::Relaxed);
        counters.word(0).store(MAGIC, Ordering::Release);
        Ok(counters)
    }

    /// The descriptor by which others find the page.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.page.word64(index * 8)
    }

    fn figure(&self, figure: Figure) -> &AtomicU64 {
        self.word(HEADER + figure as usize)
    }

    pub(crate) fn add(&self, figure: Figure, count: usize) {
        if count > 0 {
            self.figure(figure).fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    fn set(&self, figure: Figure, value: usize) {
        self.figure(figure).store(value as u64, Ordering::Relaxed);
    }

    /// Updates the numbers of pages in each state.
    pub(crate) fn show(&self, state: &Residency, remote: RemotePages) {
        for (figure, count) in [
            (Figure::RemotePages, remote.pages),
            (Figure::RemotePut, remote.put),
            (Figure::RemoteGot, remote.got),
            (Figure::RemoteMissed, remote.missed),
        ] {
            self.figure(figure).store(count, Ordering::Relaxed);
        }
        self.set(Figure::ResidentPages, state.frames);
        self.figure(Figure::PeakPages).fetch_max(state.frames as u64, Ordering::Relaxed);
        self.set(Figure::MappedPages, state.clock.pages());
        self.set(Figure::StoredPages, state.stored_pages());
    }

    /// Counts a fault served since `start`.
    pub(crate) fn served_since(&self, start: Instant) {
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.word(FIGURES + bucket_of(ns)).fetch_add(1, Ordering::Relaxed);
        let max = self.figure(Figure::MaxLatencyNs);
        if max.load(Ordering::Relaxed) < ns {
            max.fetch_max(ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> Statistics {
        Statistics::gather(
            |figure| self.figure(figure).load(Ordering::Relaxed),
            |bucket| self.word(FIGURES + bucket).load(Ordering::Relaxed),
        )
    }
}

/// Why the figures of another process cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FiguresError {
    /// The descriptor is of something else.
    #[error("no figures of far memory are there")]
    Foreign,
    /// Another version of mapwire published them.
    #[error(
        "the figures are of version {found}, and this program reads version {VERSION}: use the `mapwire` that started the process"
    )]
    Version { found: u64 },
    #[error("pread: {0}")]
    Read(Errno),
}

impl Statistics {
    /// Reads the counters of a pager from its memory, or a copy. Arbitrary contents cause no
    /// failure other than an error; the publisher answers for the numbers.
    ///
    /// # Errors
    /// It is not such memory, or of another version.
    pub fn read(file: impl AsFd) -> Result<Self, FiguresError> {
        let mut bytes = [0; WORDS * 8];
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(&file, &mut bytes[done..], done as u64) {
                Ok(0) => return Err(FiguresError::Foreign),
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(FiguresError::Read(errno.into())),
            }
        }
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_ne_bytes(words[index]);
        match (word(0), word(1)) {
            (MAGIC, VERSION) => {}
            (MAGIC, found) => return Err(FiguresError::Version { found }),
            _ => return Err(FiguresError::Foreign),
        }
        Ok(Self::gather(|figure| word(HEADER + figure as usize), |bucket| word(FIGURES + bucket)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reader_finds_what_was_counted() {
        let counters = Counters::new(77).unwrap();
        counters.add(Figure::MajorFaults, 3);
        counters.add(Figure::LostPages, 1);
        counters.served_since(Instant::now());
        let read = Statistics::read(counters.file()).unwrap();
        assert_eq!(read, counters.snapshot());
        assert_eq!((read.limit_pages, read.major_faults, read.lost_pages), (77, 3, 1));
        assert_eq!(read.fault_latency.count(), 1);
        assert!(!read.fault_latency.max().is_zero());
    }

    #[test]
    fn who_has_the_descriptor_cannot_change_the_figures() {
        let counters = Counters::new(77).unwrap();
        let file = counters.file();
        assert!(rustix::io::pwrite(file, &[1], 0).is_err());
        assert!(Mapping::shared(file, 0, PAGE_BYTES, Rights::ReadWrite).is_err());
        assert!(rustix::fs::ftruncate(file, 0).is_err());
    }

    #[test]
    fn memory_of_another_kind_or_version_is_refused_and_hostile_numbers_are_only_numbers() {
        let file = memfd::create("other", PAGE_BYTES).unwrap();
        let read = || Statistics::read(&file);
        assert_eq!(read(), Err(FiguresError::Foreign));
        let write = |bytes: &[u8], at| rustix::io::pwrite(&file, bytes, at).unwrap();
        write(&[0xff; PAGE_BYTES], 0);
        write(&MAGIC.to_ne_bytes(), 0);
        assert_eq!(read(), Err(FiguresError::Version { found: u64::MAX }));
        write(&VERSION.to_ne_bytes(), 8);
        let statistics = read().unwrap();
        assert_eq!(statistics.faults(), u64::MAX);
        assert!((0.0..=1.0).contains(&statistics.hit_ratio()));
        for share in [f64::NAN, -1.0, 0.5, 2.0] {
            let _ = statistics.fault_latency_at(share);
        }
        rustix::fs::ftruncate(&file, 100).unwrap();
        assert_eq!(read(), Err(FiguresError::Foreign));
    }
}
