//! State shared by the threads of a pager, and how they wait for each other.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno as Os;

use super::batch::{Batch, Item, Progress, Run};
use super::checksum::Checksum;
use super::config::{FaultService, MAX_BATCH_PAGES, PagerConfig};
use super::error::PagerError;
use super::frames::Frames;
use super::published::Counters;
use super::state::{BUFFERS, State};
use super::store::{BackingStore, PageId};
use crate::faults::uffd_abi::{self, FEATURE_FAULT_FLAG_WP, FEATURE_SIGBUS};
use crate::faults::uffd_paging::{
    self, FEATURE_EXACT_ADDRESS, FEATURE_MOVE, FEATURE_POISON, FEATURE_THREAD_ID, open_for_system_calls,
};
use crate::page::PAGE_BYTES;

/// Most repetitions of a call that the kernel says to repeat.
const TRIES: usize = 10_000;

/// A pager without its threads.
///
/// The state's lock is never held during system calls on pages, nor while the store works.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: PagerConfig,
    pub(super) uffd: OwnedFd,
    pub(super) store: Box<dyn BackingStore>,
    /// The pool.
    pub(super) pool: Frames,
    /// [`BUFFERS`] buffers of one window each, into which pages are fetched that are then copied into a region.
    buffers: Frames,
    /// Never written to.
    pub(super) zeros: Frames,
    pub(super) checksum: Checksum,
    pub(super) counters: Counters,
    state: Mutex<State>,
    changed: Condvar,
}

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Core {
    pub(super) fn new(
        config: PagerConfig,
        store: Box<dyn BackingStore>,
        checksum: Checksum,
    ) -> Result<Self, PagerError> {
        config.check()?;
        crate::page::check_page_size()?;
        let uffd = open(config.service())?;
        // Victims that wait, and two batches on their way.
        let slots = config.victim_pages() + 3 * config.batch_pages() + MAX_BATCH_PAGES;
        let map = |pages: usize| {
            Frames::new(pages).map_err(|errno| PagerError::system("mmap", 0, pages.saturating_mul(PAGE_BYTES), errno))
        };
        let pool = map(slots)?;
        // The kernel moves pages to registered memory only.
        uffd_paging::register(&uffd, pool.start(), pool.bytes(), false)
            .map_err(|errno| PagerError::system("ioctl(UFFDIO_REGISTER)", pool.start(), pool.bytes(), errno))?;
        let window = config.read_ahead_pages() + 1;
        let state = State::new(&config, slots)
            .map_err(|errno| PagerError::system("mmap", 0, config.resident_pages() * 16, errno))?;
        Ok(Self {
            uffd,
            store,
            pool,
            buffers: map(BUFFERS * window)?,
            zeros: map(window)?,
            checksum,
            counters: Counters::new(config.publishes(), config.resident_pages())?,
            state: Mutex::new(state),
            changed: Condvar::new(),
            config,
        })
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a page is no longer busy, an eviction ends, or a buffer is free.
    pub(super) fn wait<'a>(&self, mut state: Guard<'a>) -> Guard<'a> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Waits until the pager is not frozen, or only by the calling thread.
    pub(super) fn wait_for_thaw<'a>(&self, mut state: Guard<'a>) -> Guard<'a> {
        while state.bars(current_thread) {
            state = self.wait(state);
        }
        state
    }

    /// Publishes the numbers of pages, and makes threads in [`wait`](Self::wait) check again.
    pub(super) fn notify(&self, state: Guard<'_>) {
        let waiting = state.waiting > 0;
        self.counters.show(&state, self.store.remote());
        drop(state);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Makes threads that sleep on a fault in the range retry.
    pub(super) fn wake(&self, address: usize, bytes: usize) {
        if self.config.service() != FaultService::FaultingThread {
            // Fails only for memory that is no longer registered, where nobody sleeps.
            let _ = uffd_paging::wake(&self.uffd, address, bytes);
        }
    }

    /// Makes `call` for runs of items that are `wanted`, with the run's address, memory and bytes. If a page fails, `refused` decides what
    /// becomes of it; the rest of the run continues. The kernel refuses a run that is not in one mapping as a whole, for example after an
    /// `mprotect` of a part: then it is retried by halves.
    pub(super) fn for_runs(
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

    /// The address of a page of a buffer.
    pub(super) fn buffer_address(&self, buffer: u32, page: usize) -> usize {
        let window = self.config.read_ahead_pages() + 1;
        self.buffers.address(buffer as usize * window + page)
    }

    /// The bytes of a slot of the pool.
    pub(super) fn slot_address(&self, slot: u32) -> usize {
        self.pool.address(slot as usize)
    }

    /// Reports a page that raises SIGBUS from now on.
    pub(super) fn complain_of(&self, id: PageId, address: usize, cause: &dyn core::fmt::Display) {
        crate::saying::say_in_handler(format_args!(
            "far memory: {id} at address {address:#x} is lost, and access to it raises SIGBUS: {cause}"
        ));
    }
}

/// The calling thread, in the form that faults report.
pub(super) fn current_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// A userfaultfd that can do what a pager needs.
pub(super) fn open(service: FaultService) -> Result<OwnedFd, PagerError> {
    let (uffd, by_thread) = match service {
        FaultService::Threads(_) => (
            open_for_system_calls().map_err(|(device, call)| PagerError::UserfaultfdRefused {
                device: device.into(),
                call: call.into(),
            })?,
            FEATURE_THREAD_ID,
        ),
        FaultService::FaultingThread => (
            uffd_abi::open_userfaultfd()
                .map_err(|(device, call)| PagerError::UserModeRefused { device: device.into(), call: call.into() })?,
            FEATURE_SIGBUS,
        ),
    };
    let needed = [
        (FEATURE_FAULT_FLAG_WP, "write protection", "5.7"),
        (FEATURE_EXACT_ADDRESS, "exact addresses", "5.18"),
        (FEATURE_POISON, "UFFDIO_POISON", "6.6"),
        (FEATURE_MOVE, "UFFDIO_MOVE", "6.8"),
    ];
    let features = needed.iter().fold(by_thread, |all, (feature, ..)| all | feature);
    if let Err(errno) = uffd_abi::agree(&uffd, features) {
        let found = uffd_abi::agree(&uffd, 0).map_err(|errno| PagerError::system("ioctl(UFFDIO_API)", 0, 0, errno))?;
        let missing = needed.iter().find(|(feature, ..)| found & feature == 0);
        return Err(match missing {
            Some(&(_, missing, since)) => PagerError::UserfaultfdTooOld { missing, since },
            None => PagerError::system("ioctl(UFFDIO_API)", 0, 0, errno),
        });
    }
    Ok(uffd)
}
