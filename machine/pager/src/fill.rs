//! Brings in the pages of a batch: fetches, checks and maps them.

use rustix::io::Errno as Os;

use crate::batch::{Batch, Item, Progress};
use crate::core::Core;
use crate::frames;
use crate::origin::Part;
use crate::published::Figure;
use crate::store::{PageId, StoreError};
use crate::table::PageState;
use crate::uffd;

/// How to bring in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filling<'a> {
    /// The state of all pages before: empty, stored, or victims.
    pub(crate) from: PageState,
    /// Whether the access was a store.
    pub(crate) write: bool,
    /// The file from which empty pages are read.
    pub(crate) file: Option<&'a Part>,
}

impl Core {
    /// Fills and maps the pages of a batch, which are in order: victims in their frames, others in new ones. Afterwards each is mapped or
    /// failed. A thread waits for `asked`; the others are optional.
    pub(crate) fn bring(&self, batch: &mut Batch, filling: Filling<'_>, asked: PageId) {
        match (filling.from, filling.file) {
            (PageState::Stored, _) => self.fetch(batch, asked),
            (PageState::Empty, Some(file)) => self.read(batch, file),
            _ => {
                for item in batch.items_mut() {
                    item.progress = Progress::Filled;
                }
            }
        }
        let wanted = |item: &Item| item.progress == Progress::Filled;
        let mapped = Progress::Mapped;
        if filling.from == PageState::Victim {
            let call = |address, memory, bytes| self.bring_frames(address, memory, bytes);
            self.for_runs(batch, true, wanted, mapped, call, |item, errno| {
                item.progress = Progress::Failed(failure("ioctl(UFFDIO_MOVE)", errno));
            });
        } else if filling.from == PageState::Empty && filling.file.is_none() && !filling.write {
            let call = |address, _, bytes| uffd::zero(&self.uffd, address, bytes);
            self.for_runs(batch, false, wanted, mapped, call, |item, errno| {
                item.progress = Progress::Failed(failure("ioctl(UFFDIO_ZEROPAGE)", errno));
            });
        } else {
            let call = |address, memory, bytes| uffd::copy(&self.uffd, address, memory, bytes);
            self.for_runs(batch, true, wanted, mapped, call, |item, errno| {
                item.progress = Progress::Failed(failure("ioctl(UFFDIO_COPY)", errno));
            });
        }
    }

    /// Reads the pages, which belong to one part of a file.
    fn read(&self, batch: &mut Batch, file: &Part) {
        let mut from = 0;
        while let Some(run) = batch.run(from, false, |_| true) {
            let items = &batch.items()[run.first..run.first + run.pages];
            let ids = items[0].id..=items[run.pages - 1].id;
            let wanted = |item: &Item| ids.contains(&item.id);
            let read = frames::with_incoming(batch, wanted, |pages| file.read(pages));
            from = run.first + run.pages;
            for (index, item) in batch.items_mut()[run.first..from].iter_mut().enumerate() {
                item.progress = match read {
                    Err(error) => Progress::Failed(error),
                    Ok(pages) if index >= pages => Progress::Failed(StoreError::BehindEnd(item.id)),
                    Ok(_) => self.check_original(item, file),
                };
            }
        }
        self.counters.add(Figure::FilePages, batch.items().len());
    }

    /// Computes the checksum of a page read from a file, and compares it with what the program has seen.
    fn check_original(&self, item: &mut Item, file: &Part) -> Progress {
        let sum = self.checksum.of(item.id, frames::bytes_of(item));
        if item.is_original && item.checksum != sum && !file.may_change() {
            return Progress::Failed(StoreError::Changed(item.id));
        }
        item.checksum = sum;
        Progress::Filled
    }

    /// Fetches all pages, or at least the one that was requested.
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
        self.counters.add(Figure::FetchedPages, fetched);
        for item in batch.items_mut() {
            let is_fetched = fetched == count || item.id == asked;
            item.progress = match outcome {
                Ok(()) if !is_fetched => Progress::Failed(StoreError::Other("fetched for nothing")),
                Ok(()) if self.checksum.of(item.id, frames::bytes_of(item)) == item.checksum => Progress::Filled,
                Ok(()) => self.fetch_other(item),
                Err(error) => Progress::Failed(error),
            };
        }
    }

    /// Fetches other copies of a page that arrived with wrong bytes, until one is right.
    fn fetch_other(&self, item: &mut Item) -> Progress {
        for attempt in 0.. {
            let fetched = frames::with_incoming_page(item, |page| self.store.fetch_other(page, attempt));
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

    /// Makes accesses to a page that could not be fetched raise SIGBUS, and says why.
    pub(crate) fn poison(&self, item: &Item, cause: StoreError) {
        // Nor does the kernel say anything about a page behind the end of a file.
        if !matches!(cause, StoreError::BehindEnd(_)) {
            self.counters.add(Figure::LostPages, 1);
            self.complain_of(item.id, item.address, &cause);
        }
        for _ in 0..100 {
            match uffd::poison(&self.uffd, item.address, mapwire_host::page::PAGE_BYTES).1 {
                Err(Os::AGAIN | Os::INTR) => std::thread::yield_now(),
                _ => return,
            }
        }
    }
}

fn failure(call: &'static str, errno: Os) -> StoreError {
    StoreError::System { call, errno: errno.into() }
}
