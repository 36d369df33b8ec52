//! Stops a pager during a fork, with all contents of its regions in the store.
//!
//! The lock is not held meanwhile: the C library touches memory of the program within `fork()`, and such a fault of the forking thread
//! must be served. Faults of others wait, since the state says who froze the pager.

use core::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use mapwire_host::faults::uffd_abi;
use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::masking::{Mask, mask};
use mapwire_host::memory::{ClosedPart, closed_parts};
use mapwire_host::page::PAGE_BYTES;
use rustix::io::Errno as Os;

use crate::batch::{Batch, Fate, Item, Progress};
use crate::config::MAX_BATCH_PAGES;
use crate::core::{Core, current_thread};
use crate::error::PagerError;
use crate::frames::{self, Frames};
use crate::region::origin::Origins;
use crate::running::Running;
use crate::store::{PageId, StoreError};
use crate::table::{COPY, ORIGINAL, PageState, PageTable};

/// A stopped pager, for the thread that forks. Dropping it in the parent thaws it.
#[derive(Debug)]
pub struct Frozen {
    pub(crate) running: Arc<Running>,
    pub(crate) regions: Vec<Inherited>,
    /// Number of the parent process.
    process: u32,
    /// `None` only during drop.
    pub(crate) mask: Option<Mask>,
    /// Pages that a child touched before it has its regions.
    pub(crate) lent: Vec<Mapping>,
}

/// What a forked child needs to recreate a region.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) number: u32,
    pub(crate) start: usize,
    pub(crate) pages: u64,
    pub(crate) table: Arc<PageTable>,
    pub(crate) origins: Arc<Origins>,
    /// Parts that the program has closed to loads or stores.
    pub(crate) rights: Vec<ClosedPart>,
}

pub(crate) fn freeze(running: &Arc<Running>) -> Result<Frozen, PagerError> {
    let mask = mask();
    let core = running.core();
    let thread = current_thread();
    let mut state = core.lock();
    if state.frozen_by == thread {
        return Err(PagerError::Fork { cause: StoreError::Other("this thread has frozen the pager already") });
    }
    while state.frozen_by != 0 {
        state = core.wait(state);
    }
    // From now on nobody else begins anything.
    state.frozen_by = thread;
    while !state.is_at_rest() {
        state = core.wait(state);
    }
    let regions = state.regions().filter(|(_, region)| !region.is_closing());
    let regions = regions
        .map(|(number, region)| Inherited {
            number,
            start: region.address(0),
            pages: region.pages(),
            table: Arc::clone(&region.table),
            origins: Arc::clone(&region.origins),
            rights: Vec::new(),
        })
        .collect();
    drop(state);
    // Thaws if a later step fails.
    let mut frozen = Frozen {
        running: Arc::clone(running),
        regions,
        process: std::process::id(),
        mask: Some(mask),
        lent: Vec::new(),
    };
    for region in &mut frozen.regions {
        region.bar_stores(core, true)?;
        region.rights = closed_parts(&region.range());
    }
    let sealed = frozen.save().and_then(|()| core.store.seal());
    sealed.map_err(|cause| PagerError::Fork { cause })?;
    Ok(frozen)
}

impl Inherited {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.pages as usize * PAGE_BYTES
    }

    fn bar_stores(&self, core: &Core, bar: bool) -> Result<(), PagerError> {
        let range = self.range();
        loop {
            match uffd_abi::write_protect(&core.uffd, range.start, range.len(), bar) {
                Err(Os::AGAIN | Os::INTR) => {}
                done => {
                    return done.map_err(|errno| {
                        let call = "ioctl(UFFDIO_WRITEPROTECT)";
                        PagerError::system(call, range.start, range.len(), errno)
                    });
                }
            }
        }
    }
}

impl Frozen {
    /// Stores every resident page of which the store has no current copy.
    fn save(&self) -> Result<(), StoreError> {
        let core = self.running.core();
        let state = core.lock();
        let places = 0..state.clock.places();
        let mut pages: Vec<PageId> = places.filter_map(|at| state.clock.page_at(at)).collect();
        pages.extend(state.victims.victim_pages());
        drop(state);
        pages.sort_unstable();
        let mut copies = None;
        for part in pages.chunks(MAX_BATCH_PAGES) {
            self.save_batch(part, &mut copies)?;
        }
        Ok(())
    }

    fn save_batch(&self, pages: &[PageId], copies: &mut Option<Frames>) -> Result<(), StoreError> {
        let core = self.running.core();
        let mut batch = Batch::new();
        let mut state = core.lock();
        for &id in pages {
            let entry = state.entry(id);
            let Some(region) = state.region(id.region).filter(|region| !region.is_closing()) else {
                continue;
            };
            let item = region.describe(id, entry, &mut batch);
            item.progress = Progress::Taken;
            item.memory = match entry.state() {
                PageState::Victim => core.slot_address(entry.index()),
                _ => item.address,
            };
        }
        drop(state);
        self.copy_closed(&mut batch, copies)?;
        let stored = core.store_changed(&mut batch);
        let mut state = core.lock();
        state.note_store(stored);
        for item in batch.items() {
            // A page that the program dropped by itself has changed since.
            let entry = state.entry(item.id);
            match item.fate {
                Fate::Stored => {
                    state.set_checksum(item.id, item.checksum);
                    state.set_entry(item.id, entry.with(COPY).without(ORIGINAL));
                }
                Fate::Zero => state.set_entry(item.id, entry.without(COPY)),
                Fate::Clean | Fate::Dirty | Fate::Unknown => {}
            }
        }
        stored
    }

    /// Copies pages that the program has closed to loads, so that they can be read.
    fn copy_closed(&self, batch: &mut Batch, copies: &mut Option<Frames>) -> Result<(), StoreError> {
        let is_closed = |item: &Item| {
            let mut parts = self.regions.iter().flat_map(|region| &region.rights);
            item.memory == item.address && parts.any(|it| it.rights == Rights::None && it.range.contains(&item.address))
        };
        if !batch.items().iter().any(is_closed) {
            return Ok(());
        }
        let failure = |error: std::io::Error| {
            StoreError::system("read of /proc/self/mem", Os::from_io_error(&error).unwrap_or(Os::IO))
        };
        let memory = std::fs::File::open("/proc/self/mem").map_err(failure)?;
        let copies =
            match copies {
                Some(copies) => copies,
                None => copies.insert(Frames::new(MAX_BATCH_PAGES).map_err(|_| {
                    StoreError::Other("no memory for closed pages (see `ulimit -v` and vm.max_map_count)")
                })?),
            };
        for (index, item) in batch.items_mut().iter_mut().enumerate() {
            if is_closed(item) {
                item.memory = copies.address(index);
                let from = item.address as u64;
                memory.read_exact_at(frames::bytes_of_mut(item), from).map_err(failure)?;
            }
        }
        Ok(())
    }

    fn thaw(&self) {
        let core = self.running.core();
        for region in &self.regions {
            // Fails only where `freeze` failed too.
            let _ = region.bar_stores(core, false);
        }
        let mut state = core.lock();
        state.frozen_by = 0;
        core.notify(state);
        for region in &self.regions {
            core.wake(region.start, region.range().len());
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // In a child the calls would reach the parent's memory.
        if self.process == std::process::id() {
            self.thaw();
        }
    }
}
