//! The kernel calls that make up a pager, without a pager: lower bounds for benches.

use core::ops::Range;
use std::sync::Arc;

use rustix::io::Errno as Os;

use super::batch::Batch;
use super::config::{FaultService, MAX_BATCH_PAGES};
use super::core::open;
use super::error::PagerError;
use super::frames::{self, Frames};
use super::handler;
use super::store::{BackingStore, PageId, StoreError};
use crate::faults::uffd_paging::{self, Event};
use crate::page::PAGE_BYTES;

/// Private memory whose faults get a copy of one page, and loops of the bare calls over it. For benches.
#[derive(Debug)]
pub struct BarePages {
    /// Must end before the other fields are dropped.
    _service: Service,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    uffd: std::os::fd::OwnedFd,
    memory: Frames,
    /// The page that is copied.
    source: Frames,
}

#[derive(Debug)]
enum Service {
    Threads { _threads: handler::Handlers },
    Signal { _watch: super::signal::Watched<Inner> },
}

impl BarePages {
    /// Makes `pages` pages, missing at first, whose faults are served as by a pager.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(pages: usize, service: FaultService) -> Result<Self, PagerError> {
        let map = |pages: usize| {
            Frames::new(pages).map_err(|errno| PagerError::system("mmap", 0, pages.saturating_mul(PAGE_BYTES), errno))
        };
        let uffd = open(service)?;
        let inner = Arc::new(Inner { uffd, memory: map(pages)?, source: map(MAX_BATCH_PAGES)? });
        let (start, bytes) = (inner.memory.start(), inner.memory.bytes());
        uffd_paging::register(&inner.uffd, start, bytes, true)
            .map_err(|errno| PagerError::system("ioctl(UFFDIO_REGISTER)", start, bytes, errno))?;
        inner.with_source(MAX_BATCH_PAGES, |batch| {
            batch.items_mut().iter_mut().for_each(frames::clear);
        });
        let service = match service {
            FaultService::Threads(threads) => Service::Threads { _threads: handler::Handlers::start(&inner, threads)? },
            FaultService::FaultingThread => {
                Service::Signal { _watch: super::signal::Watched::start(&inner, start..start + bytes)? }
            }
        };
        Ok(Self { _service: service, inner })
    }

    /// The first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.inner.memory.start())
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.memory.bytes()
    }

    /// Copies pages in and drops them again, `batch` at a time: `UFFDIO_COPY` and `MADV_DONTNEED`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn copy_and_drop(&self, batch: usize) -> Result<(), PagerError> {
        let step = batch.clamp(1, MAX_BATCH_PAGES) * PAGE_BYTES;
        let (start, end) = (self.inner.memory.start(), self.inner.memory.bytes());
        for offset in (0..end).step_by(step) {
            let bytes = step.min(end - offset);
            let from = self.inner.source.start();
            self.inner.copy(start + offset, from, bytes)?;
            frames::drop_pages(start + offset, bytes)
                .map_err(|errno| PagerError::system("madvise", start + offset, bytes, errno))?;
        }
        Ok(())
    }

    /// Makes all pages missing.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn drop_all(&self) -> Result<(), PagerError> {
        let (start, bytes) = (self.inner.memory.start(), self.inner.memory.bytes());
        frames::drop_pages(start, bytes).map_err(|errno| PagerError::system("madvise", start, bytes, errno))
    }

    /// Has `store` take or return some unused pages of its region 0, `batch` at a time.
    ///
    /// # Errors
    /// The store refuses.
    pub fn stream(
        &self,
        store: &dyn BackingStore,
        pages: Range<usize>,
        batch: usize,
        fetch: bool,
    ) -> Result<(), StoreError> {
        let batch = batch.clamp(1, MAX_BATCH_PAGES);
        for first in pages.clone().step_by(batch) {
            self.inner.with_source(batch.min(pages.end - first), |items| {
                for (index, item) in items.items_mut().iter_mut().enumerate() {
                    item.id = PageId { region: 0, page: (first + index) as u64 };
                }
                if fetch {
                    frames::with_incoming(items, |_| true, |pages| store.fetch(pages))
                } else {
                    frames::with_outgoing(items, |_| true, |pages| store.store(pages))
                }
            })?;
        }
        Ok(())
    }
}

impl Inner {
    /// Calls `work` with a batch whose memory is the source.
    fn with_source<T>(&self, pages: usize, work: impl FnOnce(&mut Batch) -> T) -> T {
        let mut batch = Batch::new();
        for page in 0..pages {
            batch.push(PageId::default(), 0).memory = self.source.address(page);
        }
        work(&mut batch)
    }

    fn copy(&self, to: usize, from: usize, bytes: usize) -> Result<(), PagerError> {
        let mut done = 0;
        while done < bytes {
            let (copied, outcome) = uffd_paging::copy(&self.uffd, to + done, from + done, bytes - done);
            done += copied;
            match outcome {
                Ok(()) | Err(Os::AGAIN | Os::INTR) => {}
                Err(errno) => {
                    return Err(PagerError::system("ioctl(UFFDIO_COPY)", to, bytes, errno));
                }
            }
        }
        Ok(())
    }
}

impl handler::Serves for Inner {
    fn uffd(&self) -> &std::os::fd::OwnedFd {
        &self.uffd
    }

    fn serve(&self, event: Event, _may_wait: bool) -> bool {
        let page = event.address & !(PAGE_BYTES - 1);
        self.copy(page, self.source.start(), PAGE_BYTES).is_ok()
    }
}
