//! Brings the pages of a batch in: fetches them, checks them, and maps them.

use rustix::io::Errno as Os;

use super::batch::{Batch, Item, Progress};
use super::config::Eviction;
use super::core::Core;
use super::frames;
use super::store::{PageId, StoreError};
use super::table::PageState;
use crate::faults::uffd_paging;

/// How a batch is brought in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling {
    /// The state that all pages were in: empty, stored, or victims.
    pub(super) from: PageState,
    /// Frames are of the pool, and are moved in; else pages are copied or zeroed into new frames.
    pub(super) by_slots: bool,
    /// The access was a store.
    pub(super) write: bool,
}

impl Core {
    /// Fills and maps the pages of a batch, which are in order. Afterwards each is mapped, copied, or failed. A thread waits for
    /// `asked`; the others need not come.
    pub(super) fn bring(&self, batch: &mut Batch, filling: Filling, asked: PageId) {
        match filling.from {
            PageState::Stored => self.fetch(batch, asked),
            PageState::Empty if filling.by_slots => {
                batch.items_mut().iter_mut().for_each(frames::clear);
                set_all(batch, Progress::Filled);
            }
            _ => set_all(batch, Progress::Filled),
        }
        let wanted = |item: &Item| item.progress == Progress::Filled;
        let mapped = Progress::Mapped;
        if filling.by_slots {
            let call = |address, memory, bytes| {
                uffd_paging::move_pages(&self.uffd, address, memory, bytes)
            };
            self.for_runs(batch, true, wanted, mapped, call, |item, errno| {
                self.copy_instead(item, errno);
            });
        } else if filling.from == PageState::Empty && !filling.write {
            let call = |address, _, bytes| uffd_paging::zero(&self.uffd, address, bytes);
            self.for_runs(batch, false, wanted, mapped, call, |item, errno| {
                item.progress = Progress::Failed(failure("ioctl(UFFDIO_ZEROPAGE)", errno));
            });
        } else {
            // With write protection, later stores fault and so tell that the store's copy is no longer the page's.
            let protect = self.eviction == Eviction::WriteProtect
                && filling.from == PageState::Stored
                && !filling.write;
            let call = |address, memory, bytes| {
                uffd_paging::copy(&self.uffd, address, memory, bytes, protect)
            };
            self.for_runs(batch, true, wanted, mapped, call, |item, errno| {
                item.progress = Progress::Failed(failure("ioctl(UFFDIO_COPY)", errno));
            });
        }
    }

    /// Where the kernel does not move a frame, the page gets another with the same bytes.
    fn copy_instead(&self, item: &mut Item, errno: Os) {
        for _ in 0..100 {
            let bytes = crate::page::PAGE_BYTES;
            match uffd_paging::copy(&self.uffd, item.address, item.memory, bytes, false).1 {
                Ok(()) => {
                    item.progress = Progress::Copied;
                    return;
                }
                Err(Os::AGAIN | Os::INTR) => std::thread::yield_now(),
                Err(_) => break,
            }
        }
        item.progress = Progress::Failed(failure("ioctl(UFFDIO_MOVE)", errno));
    }

    /// Fetches all pages, or at least the one that was asked for.
    fn fetch(&self, batch: &mut Batch, asked: PageId) {
        let count = batch.items().len();
        let mut outcome = frames::with_incoming(batch, |_| true, |pages| self.store.fetch(pages));
        let mut fetched = count;
        if outcome.is_err() && count > 1 {
            // Something is wrong with one of them.
            let is_asked = |item: &Item| item.id == asked;
            outcome = frames::with_incoming(batch, is_asked, |pages| self.store.fetch(pages));
            fetched = 1;
        }
        self.counters.fetched_pages.add(fetched);
        for item in batch.items_mut() {
            let is_fetched = fetched == count || item.id == asked;
            item.progress = match outcome {
                Ok(()) if !is_fetched => Progress::Failed(StoreError::Other("fetched for nothing")),
                Ok(()) if self.checksum.of(item.id, frames::bytes_of(item)) == item.checksum => {
                    Progress::Filled
                }
                Ok(()) => self.fetch_other(item),
                Err(error) => Progress::Failed(error),
            };
        }
    }

    /// Fetches other copies of a page that came with wrong bytes, until one is right.
    fn fetch_other(&self, item: &mut Item) -> Progress {
        for attempt in 0.. {
            let fetched =
                frames::with_incoming_page(item, |page| self.store.fetch_other(page, attempt));
            match fetched {
                Err(error) => return Progress::Failed(error),
                Ok(()) if self.checksum.of(item.id, frames::bytes_of(item)) == item.checksum => {
                    return Progress::Filled;
                }
                Ok(()) => {}
            }
        }
        Progress::Failed(StoreError::Corrupt(item.id))
    }

    /// Makes accesses to a page that could not be had raise SIGBUS, and says why.
    pub(super) fn poison(&self, item: &Item, cause: StoreError) {
        self.counters.lost_pages.add(1);
        self.complain_of(item.id, item.address, &cause);
        for _ in 0..100 {
            match uffd_paging::poison(&self.uffd, item.address, crate::page::PAGE_BYTES).1 {
                Err(Os::AGAIN | Os::INTR) => std::thread::yield_now(),
                _ => return,
            }
        }
    }
}

fn set_all(batch: &mut Batch, progress: Progress) {
    for item in batch.items_mut() {
        item.progress = progress;
    }
}

fn failure(call: &'static str, errno: Os) -> StoreError {
    StoreError::System {
        call,
        errno: errno.into(),
    }
}
