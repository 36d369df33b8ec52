//! Brings in the pages of a batch: fetches, checks and maps them.

use mapwire_host::faults::uffd_abi::Done;
use rustix::io::Errno as Os;

use crate::batch::{Batch, Item, Progress};
use crate::core::Core;
use crate::faults::uffd;
use crate::frames;
use crate::region::origin::Part;
use crate::statistics::published::Figure;
use crate::store::{PageId, StoreError};
use crate::table::PageState;

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
        type Call = fn(&Core, usize, usize, usize) -> Done;
        let pages = self.fill(batch, filling, asked);
        match (filling.from, filling.file) {
            (PageState::Stored, _) => self.counters.add(Figure::FetchedPages, pages),
            (PageState::Empty, Some(_)) => self.counters.add(Figure::FilePages, pages),
            _ => {}
        }
        let (name, by_memory, call): (_, _, Call) = match (filling.from, filling.file) {
            (PageState::Victim, _) => ("ioctl(UFFDIO_MOVE)", true, Core::bring_frames),
            (PageState::Empty, None) if !filling.write => {
                ("ioctl(UFFDIO_ZEROPAGE)", false, |core, address, _, bytes| uffd::zero(&core.uffd, address, bytes))
            }
            _ => ("ioctl(UFFDIO_COPY)", true, |core, to, from, bytes| uffd::copy(&core.uffd, to, from, bytes)),
        };
        let wanted = |item: &Item| item.progress == Progress::Filled;
        let call = |address, memory, bytes| call(self, address, memory, bytes);
        self.for_runs(batch, by_memory, wanted, Progress::Mapped, call, |item, errno| {
            item.progress = Progress::Failed(StoreError::system(name, errno));
        });
    }

    /// Fetches or reads the pages of a batch and checks them. Afterwards each is filled or failed. Returns how many were read.
    pub(crate) fn fill(&self, batch: &mut Batch, filling: Filling<'_>, asked: PageId) -> usize {
        match (filling.from, filling.file) {
            (PageState::Stored, _) => self.fetch(batch, asked),
            (PageState::Empty, Some(file)) => self.read(batch, file),
            _ => {
                for item in batch.items_mut() {
                    item.progress = Progress::Filled;
                }
                0
            }
        }
    }

    /// Reads the pages, which belong to one part of a file.
    fn read(&self, batch: &mut Batch, file: &Part) -> usize {
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
        batch.items().len()
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
    fn fetch(&self, batch: &mut Batch, asked: PageId) -> usize {
        let count = batch.items().len();
        let mut outcome = frames::with_incoming(batch, |_| true, |pages| self.store.fetch(pages));
        let mut fetched = count;
        if outcome.is_err() && count > 1 {
            // Something is wrong with one of them.
            let is_asked = |item: &Item| item.id == asked;
            outcome = frames::with_incoming(batch, is_asked, |pages| self.store.fetch(pages));
            fetched = 1;
        }
        for index in 0..count {
            let item = batch.items()[index];
            let is_fetched = fetched == count || item.id == asked;
            batch.items_mut()[index].progress = match outcome {
                Ok(()) if !is_fetched => Progress::Failed(StoreError::Other("fetched for nothing")),
                Ok(()) if self.is_right(&item) => Progress::Filled,
                Ok(()) => self.fetch_other(batch, &item),
                Err(error) => Progress::Failed(error),
            };
        }
        fetched
    }

    fn is_right(&self, item: &Item) -> bool {
        self.checksum.of(item.id, frames::bytes_of(item)) == item.checksum
    }

    /// Fetches other copies of a page that arrived with wrong bytes, until one is right.
    fn fetch_other(&self, batch: &mut Batch, item: &Item) -> Progress {
        let mut attempts = 0..;
        let fetched = attempts.find_map(|attempt| {
            let is_it = |other: &Item| other.id == item.id;
            let fetched = frames::with_incoming(batch, is_it, |pages| self.store.fetch_other(&mut pages[0], attempt));
            match fetched {
                Err(error) => Some(Progress::Failed(error)),
                Ok(()) => self.is_right(item).then_some(Progress::Filled),
            }
        });
        fetched.unwrap_or(Progress::Failed(StoreError::Corrupt(item.id)))
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
