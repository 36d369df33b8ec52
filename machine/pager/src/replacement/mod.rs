//! Evicts pages, storing those that changed. One thread at a time.

pub(crate) mod clock;
pub(crate) mod victims;

use mapwire_host::page::PAGE_BYTES;
use rustix::io::Errno as Os;

use crate::batch::{Batch, Fate, Item, Progress};
use crate::checksum::is_zero;
use crate::core::{Core, Guard};
use crate::frames;
use crate::statistics::published::Figure;
use crate::store::StoreError;
use crate::table::{AHEAD, COPY, Entry, ORIGINAL, PageState, REFERENCED, WAITED};

impl Core {
    /// Makes room for a batch of pages, or waits until another thread has. False if no page can leave now.
    pub(crate) fn make_room<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, bool) {
        if state.evicting {
            return (self.wait(state), true);
        }
        if state.pauses() {
            return (state, false);
        }
        state.evicting = true;
        // So many that the oldest batch has had its second chance.
        let enough = self.config.victim_pages + self.config.batch_pages();
        let mut before = usize::MAX;
        while state.victims.count() < enough && state.victims.count() != before {
            before = state.victims.count();
            state = self.take_victims(state);
        }
        let made;
        (state, made) = self.clean_victims(state);
        state.evicting = false;
        // Others wait for the end of the eviction, or for its pages.
        if state.waiting > 0 {
            self.notify(state);
            state = self.lock();
        }
        (state, made)
    }

    /// Claims pages that were not referenced since the hand last passed.
    fn sweep(&self, state: &mut Guard<'_>, batch: &mut Batch, most: usize) {
        let mut steps = 2 * state.clock.places();
        while batch.items().len() < most && steps > 0 {
            steps -= 1;
            let Some(id) = state.clock.step() else {
                continue;
            };
            let entry = state.entry(id);
            if entry.state() != PageState::Resident {
                continue;
            }
            if entry.has(REFERENCED) {
                state.set_entry(id, entry.without(REFERENCED));
                continue;
            }
            state.clock.remove(entry.index());
            state.claim(id, batch);
        }
    }

    /// Moves a batch of pages into vacant slots.
    fn take_victims<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        let mut batch = Batch::new();
        let vacant = state.victims.vacant();
        self.sweep(&mut state, &mut batch, self.config.batch_pages().min(vacant));
        for item in batch.items_mut() {
            if let Some(slot) = state.victims.take_vacant() {
                item.slot = slot;
            }
        }
        drop(state);
        batch.sort_with_slots();
        for item in batch.items_mut() {
            item.memory = self.slot_address(item.slot);
        }
        let wanted = |item: &Item| item.progress == Progress::Claimed;
        let call = |address, memory, bytes| self.take_frames(address, memory, bytes);
        self.for_runs(&mut batch, true, wanted, Progress::Taken, call, refuse);
        let mut state = self.lock();
        for item in batch.items() {
            let entry = state.entry(item.id);
            let entry = match item.progress {
                Progress::Taken => {
                    state.victims.put_victim(item.slot, item.id);
                    entry.in_state(PageState::Victim).at(item.slot)
                }
                Progress::Missing => {
                    state.victims.put_vacant(item.slot);
                    state.frames -= 1;
                    Entry::new(PageState::Empty)
                }
                _ => {
                    // A device uses the frame, or nobody can read it: the page stays.
                    state.victims.put_vacant(item.slot);
                    let place = state.clock.insert(item.id);
                    entry.in_state(PageState::Resident).at(place)
                }
            };
            if state.publish(item.id, entry) {
                self.wake(item.address, PAGE_BYTES);
            }
        }
        state
    }

    /// Stores the oldest changed victims, and returns the frames of all that nobody waits for to the kernel.
    fn clean_victims<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, bool) {
        let mut batch = Batch::new();
        while batch.items().len() < self.config.batch_pages() {
            let Some((slot, id)) = state.victims.take_oldest() else {
                break;
            };
            state.claim(id, &mut batch);
            if let Some(item) = batch.items_mut().last_mut() {
                item.slot = slot;
                item.memory = self.slot_address(slot);
                item.progress = Progress::Taken;
            }
        }
        if batch.is_empty() {
            return (state, false);
        }
        drop(state);
        batch.sort();
        let stored = self.store_changed(&mut batch);
        self.offer_clean(&batch);
        let mut state = self.lock();
        state.note_store(stored);
        for item in batch.items_mut() {
            // A thread that waits for the page gets it without the store.
            if item.fate.is_safe() && !state.entry(item.id).has(WAITED) {
                item.progress = Progress::Leaving;
            }
        }
        drop(state);
        self.release(&mut batch, |item| item.progress == Progress::Leaving);
        let mut state = self.lock();
        let mut freed = 0;
        for item in batch.items() {
            let before = state.entry(item.id);
            self.note_eviction(&mut state, item);
            let entry = if item.progress == Progress::Gone {
                freed += 1;
                self.gone(&mut state, item, before)
            } else {
                state.victims.put_victim(item.slot, item.id);
                let entry = before.in_state(PageState::Victim);
                match item.fate {
                    Fate::Stored => entry.without(ORIGINAL).with(COPY),
                    _ => entry,
                }
            };
            if state.publish(item.id, entry) {
                self.wake(item.address, PAGE_BYTES);
            }
        }
        state.note_released(&batch);
        (state, freed > 0)
    }

    /// Returns the frames of `wanted` items' slots to the kernel: these items are [`Progress::Gone`] then.
    ///
    /// No other page may come into such a frame: a pipe, a socket or an io_uring can hold it by a plain reference, which moves along with
    /// the page, and reads it later.
    pub(crate) fn release(&self, batch: &mut Batch, wanted: impl Fn(&Item) -> bool) {
        batch.sort_by_slot();
        let mut from = 0;
        while let Some(run) = batch.run_of_slots(from, &wanted) {
            let first = batch.items()[run.first].slot as usize;
            // A slot whose frame stays is not used again unless its page is in it still.
            if self.pool.free(first, run.pages).is_ok() {
                batch.mark(run, Progress::Gone);
            }
            from = run.first + run.pages;
        }
    }

    /// Finds out which of the pages that were taken changed since they were stored, and stores those.
    pub(crate) fn store_changed(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let taken = |item: &&mut Item| item.progress == Progress::Taken;
        for item in batch.items_mut().iter_mut().filter(taken) {
            item.fate = self.examine(item);
        }
        let dirty = |item: &Item| item.fate == Fate::Dirty;
        let count = batch.items().iter().filter(|item| dirty(item)).count();
        if count == 0 {
            return Ok(());
        }
        let outcome = frames::with_outgoing(batch, dirty, |pages| self.store.store(pages));
        if outcome.is_err() {
            self.counters.add(Figure::StoreFailures, 1);
            return outcome;
        }
        for item in batch.items_mut().iter_mut().filter(|item| dirty(item)) {
            item.fate = Fate::Stored;
        }
        self.counters.add(Figure::WrittenPages, count);
        Ok(())
    }

    /// Offers the store the pages that leave unchanged and that it has.
    fn offer_clean(&self, batch: &Batch) {
        let offered = |item: &Item| {
            let is_clean = item.progress == Progress::Taken && item.fate == Fate::Clean;
            is_clean && item.has_copy && self.store.wants(item.id)
        };
        frames::with_outgoing(batch, offered, |pages| {
            if !pages.is_empty() {
                self.store.offer(pages);
            }
        });
    }

    /// Whether a page changed since it was stored, or read from its file. If so, updates its checksum.
    fn examine(&self, item: &mut Item) -> Fate {
        let is_lost = item.has_copy && !self.store.holds(item.id);
        let bytes = frames::bytes_of(item);
        if !item.is_of_file && is_zero(bytes) {
            return Fate::Zero;
        }
        let sum = self.checksum.of(item.id, bytes);
        if !is_lost && (item.has_copy || item.is_original) && sum == item.checksum {
            return Fate::Clean;
        }
        item.checksum = sum;
        Fate::Dirty
    }

    /// Counts a page's fate, and keeps its checksum.
    fn note_eviction(&self, state: &mut Guard<'_>, item: &Item) {
        match item.fate {
            Fate::Clean => self.counters.add(Figure::CleanEvictions, 1),
            Fate::Zero => self.counters.add(Figure::ZeroEvictions, 1),
            Fate::Stored => {
                self.counters.add(Figure::DirtyEvictions, 1);
                state.set_checksum(item.id, item.checksum);
            }
            Fate::Dirty | Fate::Unknown => {}
        }
    }

    /// The entry of a page that is no longer in RAM.
    fn gone(&self, state: &mut Guard<'_>, item: &Item, before: Entry) -> Entry {
        if before.has(AHEAD) {
            self.counters.add(Figure::AheadWaste, 1);
            if let Some(region) = state.region(item.id.region) {
                region.reads.waste();
            }
        }
        if item.fate == Fate::Zero {
            return Entry::new(PageState::Empty);
        }
        if item.fate == Fate::Clean && item.is_original {
            return Entry::new(PageState::Empty).with(ORIGINAL);
        }
        state.count_stored(item.id.region, 1);
        Entry::new(PageState::Stored).with(COPY)
    }
}

/// A page that the kernel does not release stays where it is.
fn refuse(item: &mut Item, errno: Os) {
    item.progress = match errno {
        Os::NOENT => Progress::Missing,
        _ => Progress::Failed(StoreError::system("ioctl(userfaultfd)", errno)),
    };
}
