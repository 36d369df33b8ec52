//! Residency shared by the threads of a pager, and how they wait for each other.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mapwire_host::page::PAGE_BYTES;
use rustix::io::Errno as Os;

use crate::batch::{Batch, Item, Progress, Run};
use crate::checksum::Checksum;
use crate::config::{Config, MAX_BATCH_PAGES};
use crate::error::PagerError;
use crate::faults::uffd;
use crate::frames::Frames;
use crate::residency::Residency;
use crate::statistics::published::Counters;
use crate::store::{BackingStore, PageId};

/// Most repetitions of a call that the kernel says to repeat.
const TRIES: usize = 10_000;

/// A pager without its threads.
///
/// The state's lock is never held during system calls on pages, nor while the store works.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) uffd: OwnedFd,
    pub(crate) store: Box<dyn BackingStore>,
    pub(crate) pool: Frames,
    /// Never written to.
    pub(crate) zeros: Frames,
    pub(crate) checksum: Checksum,
    pub(crate) counters: Counters,
    state: Mutex<Residency>,
    changed: Condvar,
}

pub(crate) type Guard<'a> = MutexGuard<'a, Residency>;

impl Core {
    pub(crate) fn new(config: Config, store: Box<dyn BackingStore>, checksum: Checksum) -> Result<Self, PagerError> {
        config.check()?;
        mapwire_host::page::check_page_size()?;
        let uffd = uffd::open()?;
        // Victims that wait, and two batches on their way.
        let slots = config.victim_pages + 3 * config.batch_pages() + MAX_BATCH_PAGES;
        let pool = Frames::new(slots)?;
        // The kernel moves pages to registered memory only.
        uffd::register(&uffd, pool.start(), pool.bytes(), false)?;
        let state = Residency::new(&config, slots)
            .map_err(|errno| PagerError::system("mmap", 0, config.resident_pages * 16, errno))?;
        Ok(Self {
            uffd,
            store,
            pool,
            zeros: Frames::new(config.window_pages())?,
            checksum,
            counters: Counters::new(config.resident_pages)?,
            state: Mutex::new(state),
            changed: Condvar::new(),
            config,
        })
    }

    pub(crate) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a page is no longer busy, or an eviction ends.
    pub(crate) fn wait<'a>(&self, mut state: Guard<'a>) -> Guard<'a> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Waits until the pager is not frozen, or only by the calling thread.
    pub(crate) fn wait_for_thaw<'a>(&self, mut state: Guard<'a>) -> Guard<'a> {
        while state.frozen_by != 0 && state.bars(current_thread()) {
            state = self.wait(state);
        }
        state
    }

    /// Publishes the numbers of pages, and makes threads in [`wait`](Self::wait) check again.
    pub(crate) fn notify(&self, state: Guard<'_>) {
        let waiting = state.waiting > 0;
        self.counters.show(&state, self.store.remote());
        drop(state);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Makes threads that sleep on a fault in the range retry.
    pub(crate) fn wake(&self, address: usize, bytes: usize) {
        uffd::wake(&self.uffd, address, bytes);
    }

    /// Makes `call` for runs of items that are `wanted`, with the run's address, memory and bytes. If a page fails, `refused` decides what
    /// becomes of it; the rest of the run continues. The kernel refuses a run that is not in one mapping as a whole, for example after an
    /// `mprotect` of a part: then it is retried by halves.
    pub(crate) fn for_runs(
        &self,
        batch: &mut Batch,
        by_memory: bool,
        wanted: impl Fn(&Item) -> bool,
        done: Progress,
        call: impl Fn(usize, usize, usize) -> (usize, Result<(), Os>),
        mut refused: impl FnMut(&mut Item, Os),
    ) {
        let mut from = 0;
        let mut tries = 0;
        let mut most = usize::MAX;
        while let Some(run) = batch.run(from, by_memory, &wanted) {
            let pages = run.pages.min(most);
            let run = Run { pages, ..run };
            let first = batch.items()[run.first];
            let (bytes, outcome) = call(first.address, first.memory, run.pages * PAGE_BYTES);
            let pages = (bytes / PAGE_BYTES).min(run.pages);
            batch.mark(Run { pages, ..run }, done);
            from = run.first + pages;
            match outcome {
                Ok(()) => most = usize::MAX,
                // Pages may have been done before; the next call meets the reason, if any.
                Err(Os::AGAIN | Os::INTR) if tries < TRIES => {
                    tries += 1;
                    if tries % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
                Err(_) if pages > 0 && pages < run.pages => {}
                // A first page that a device has pinned says nothing of the others.
                Err(errno) if errno != Os::BUSY && run.pages > 1 => most = run.pages / 2,
                Err(errno) => {
                    most = usize::MAX;
                    refused(&mut batch.items_mut()[from], errno);
                    from += 1;
                }
            }
        }
    }

    /// The bytes of a slot of the pool.
    pub(crate) fn slot_address(&self, slot: u32) -> usize {
        self.pool.address(slot as usize)
    }

    /// Reports a page that raises SIGBUS from now on.
    pub(crate) fn complain_of(&self, id: PageId, address: usize, cause: &dyn core::fmt::Display) {
        mapwire_host::stderr::say_in_handler(format_args!(
            "far memory: {id} at address {address:#x} is lost, and access to it raises SIGBUS: {cause}"
        ));
    }
}

/// The calling thread, in the form that faults report.
pub(crate) fn current_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
