//! Operations of a region's owner: discarding pages, and removing the region.

use crate::batch::{Batch, Progress};
use crate::core::Core;
use crate::frames;
use crate::store::PageId;
use crate::table::{Entry, PageState};

/// Pages discarded in one step: fewer than a batch holds.
const STEP_PAGES: u64 = 64;

impl Core {
    /// Makes pages `first` to `first + pages - 1` of a region zero, wherever they are. The caller blocks signal handlers.
    pub(crate) fn discard(&self, region: u32, first: u64, pages: u64) {
        let mut at = first;
        while at < first + pages {
            let step = STEP_PAGES.min(first + pages - at);
            self.discard_step(region, at, step);
            at += step;
        }
    }

    fn discard_step(&self, region: u32, first: u64, pages: u64) {
        let mut state = self.wait_for_thaw(self.lock());
        let ids = || (first..first + pages).map(|page| PageId { region, page });
        while ids().any(|id| state.entry(id).state() == PageState::Busy) {
            state = self.wait(state);
            state = self.wait_for_thaw(state);
        }
        if ids().all(|id| state.entry(id) == Entry::new(PageState::Empty)) {
            return;
        }
        let mut batch = Batch::new();
        let mut stored = 0;
        for id in ids() {
            let entry = state.entry(id);
            match entry.state() {
                PageState::Resident => {
                    state.clock.remove(entry.index());
                    state.frames -= 1;
                }
                PageState::Victim => {
                    state.victims.take_victim(entry.index());
                }
                PageState::Stored => stored += 1,
                PageState::Empty | PageState::Poisoned | PageState::Busy => {}
            }
            state.claim(id, &mut batch);
            if entry.state() == PageState::Victim
                && let Some(item) = batch.items_mut().last_mut()
            {
                item.slot = entry.index();
                item.progress = Progress::Leaving;
            }
        }
        state.count_stored(region, -stored);
        drop(state);
        if let Some(item) = batch.items().first() {
            let bytes = batch.items().len() * mapwire_host::page::PAGE_BYTES;
            // Also removes what makes poisoned pages raise SIGBUS.
            let dropped = frames::drop_pages(item.address, bytes);
            debug_assert!(dropped.is_ok(), "madvise: {dropped:?}");
        }
        self.release(&mut batch, |item| item.progress == Progress::Leaving);
        self.store.discard(region, first, pages);
        let mut state = self.lock();
        for item in batch.items() {
            if state.publish(item.id, Entry::new(PageState::Empty)) {
                self.wake(item.address, mapwire_host::page::PAGE_BYTES);
            }
        }
        state.note_released(&batch);
        self.notify(state);
    }

    /// Begins to map or remove a region: waits until the pager is not frozen, and keeps others from freezing it.
    pub(crate) fn begin_change(&self) {
        let mut state = self.lock();
        while state.frozen_by != 0 {
            state = self.wait(state);
        }
        state.changing += 1;
    }

    pub(crate) fn end_change(&self) {
        let mut state = self.lock();
        state.changing -= 1;
        self.notify(state);
    }

    /// Removes a region: serves no more faults of it, and frees its frames and stored pages. Its memory stays mapped. The caller blocks
    /// signal handlers.
    pub(crate) fn remove_region(&self, number: u32) {
        self.begin_change();
        let mut state = self.lock();
        while !state.close(number) {
            state = self.wait(state);
        }
        for place in 0..state.clock.places() {
            if let Some(id) = state.clock.page_at(place)
                && id.region == number
            {
                state.clock.remove(place as u32);
                state.frames -= 1;
            }
        }
        loop {
            let mut batch = Batch::new();
            while !batch.is_full()
                && let Some(slot) = state.victims.take_victim_of(number)
            {
                batch.push(PageId::default(), 0).slot = slot;
            }
            if batch.is_empty() {
                break;
            }
            drop(state);
            self.release(&mut batch, |_| true);
            state = self.lock();
            state.note_released(&batch);
        }
        let region = state.remove_region(number);
        self.notify(state);
        // Frees its table, which takes a while: without the lock.
        drop(region);
        self.store.remove_region(number);
        self.end_change();
    }
}
