//! Serves one page fault, in a handler thread. Allocates nothing: the program's allocator may be in a region.

mod closed;
pub(crate) mod fill;
mod follow;
pub(crate) mod handler;
pub(crate) mod streams;
#[allow(unsafe_code)]
pub(crate) mod uffd;

use std::time::Instant;

use mapwire_host::faults::uffd_abi;
use mapwire_host::page::PAGE_BYTES;

use crate::batch::{Batch, Progress};
use crate::core::{Core, Guard};
use crate::faults::fill::Filling;
use crate::faults::streams::Prediction;
use crate::faults::uffd::Event;
use crate::frames::Frames;
use crate::statistics::published::Figure;
use crate::store::{PageId, StoreError};
use crate::table::{AHEAD, COPY, Entry, ORIGINAL, PageState, REFERENCED};

impl Core {
    /// Serves a fault: now, or by whoever works on the page or froze the pager, who wakes the thread that faulted.
    /// Pages are fetched into `buffer`, which has room for a window.
    pub(crate) fn serve_fault(&self, event: Event, buffer: &Frames) {
        if !self.serve(event, buffer) {
            // It retries, and meets what is there now: poison, or no memory.
            self.wake(event.address & !(PAGE_BYTES - 1), PAGE_BYTES);
        }
    }

    /// False if the address is in no region, or the page is lost.
    fn serve(&self, event: Event, buffer: &Frames) -> bool {
        let start = Instant::now();
        let mut state = self.lock();
        let mut may_make_room = true;
        let mut beyond = false;
        loop {
            let Some(id) = state.find(event.address) else {
                return false;
            };
            if state.bars(event.thread) {
                // The thaw wakes all.
                return true;
            }
            // The child must find the store and its records as they were when the pager was frozen: no page may leave.
            let is_frozen = state.frozen_by != 0;
            let entry = state.entry(id);
            match entry.state() {
                PageState::Poisoned => return false,
                PageState::Busy => {
                    self.counters.add(Figure::Waits, 1);
                    state.set_waited(id);
                    return true;
                }
                PageState::Resident => {
                    self.look_again(state, id, event.write && is_frozen);
                    return true;
                }
                PageState::Victim => {
                    self.bring_in(state, id, false, buffer);
                    self.counters.served_since(start);
                    return true;
                }
                PageState::Empty | PageState::Stored => {
                    let room = state.unused_frames();
                    may_make_room &= !is_frozen;
                    beyond |= is_frozen;
                    if room <= self.config.read_ahead_pages() && may_make_room {
                        may_make_room = room == 0;
                        let made;
                        (state, made) = self.make_room(state);
                        // No page can leave: use more memory rather than stop the program.
                        beyond = !made;
                        may_make_room &= made;
                        continue;
                    }
                    if room == 0 && !beyond {
                        may_make_room = true;
                        continue;
                    }
                    if room == 0 && state.clock.room() == 0 {
                        self.lose(state, id, StoreError::Other("no memory is left for it"));
                        return false;
                    }
                    let served = self.bring_in(state, id, event.write && !is_frozen, buffer);
                    self.counters.served_since(start);
                    return served;
                }
            }
        }
    }

    /// Claims the page and those likely to follow, which are in the same state.
    fn claim_window(&self, state: &mut Guard<'_>, id: PageId, from: PageState) -> Batch {
        let prediction = self.predict(state, id);
        let pages = state.region(id.region).map(|it| it.around(id.page));
        let pages = pages.unwrap_or_default();
        let mut batch = Batch::new();
        let mut considered = 0;
        for step in 0..=prediction.ahead {
            let page = match prediction.page(id.page, step as i64) {
                Some(page) if pages.contains(&page) && !batch.is_full() => page,
                _ => break,
            };
            let next = PageId { page, ..id };
            let entry = state.entry(next);
            if entry.state() == from {
                if from != PageState::Victim {
                    // The page itself comes in any case.
                    if !batch.is_empty() && state.unused_frames() == 0 {
                        break;
                    }
                    state.frames += 1;
                }
                state.claim(next, &mut batch);
                if from == PageState::Victim
                    && let Some(item) = batch.items_mut().last_mut()
                {
                    item.slot = entry.index();
                    state.victims.take_victim(item.slot);
                }
            }
            considered = step;
        }
        if let Some(region) = state.region(id.region) {
            region.reads.cut(prediction, id.page, considered);
        }
        batch
    }

    /// Notes a fault that brings pages, and counts the use of those before.
    fn predict(&self, state: &mut Guard<'_>, id: PageId) -> Prediction {
        let Some(region) = state.region(id.region) else {
            return Prediction::default();
        };
        let prediction = region.reads.fault(id.page);
        let mut hits = 0;
        for step in 1..=prediction.behind as i64 {
            let Some(page) = prediction.page(id.page, -step) else {
                break;
            };
            let before = PageId { page, ..id };
            let entry = state.entry(before);
            if entry.has(AHEAD) {
                state.set_entry(before, entry.without(AHEAD));
                hits += 1;
            }
        }
        self.counters.add(Figure::AheadHits, hits);
        prediction
    }

    /// Brings in a page that is not mapped, and those likely to follow. False if the page is lost.
    fn bring_in(&self, mut state: Guard<'_>, id: PageId, write: bool, buffer: &Frames) -> bool {
        let from = state.entry(id).state();
        // Keeps the file while its pages are busy.
        let file = state.file_of(id).cloned();
        let filling = Filling { from, write, file: file.as_ref() };
        let mut batch = self.claim_window(&mut state, id, from);
        drop(state);
        batch.sort();
        for (index, item) in batch.items_mut().iter_mut().enumerate() {
            item.memory = match (from, &file) {
                (PageState::Victim, _) => self.slot_address(item.slot),
                (PageState::Empty, None) => self.zeros.address(index),
                _ => buffer.address(index),
            };
        }
        self.bring(&mut batch, filling, id);
        let mut is_lost = false;
        for item in batch.items().iter().filter(|item| item.id == id && from != PageState::Victim) {
            if let Progress::Failed(cause) = item.progress {
                self.poison(item, cause);
                is_lost = true;
            }
        }
        self.publish_window(&batch, filling, id);
        !is_lost
    }

    /// Publishes what became of a window of pages.
    fn publish_window(&self, batch: &Batch, filling: Filling<'_>, asked: PageId) {
        let (is_stored, is_victim) = (filling.from == PageState::Stored, filling.from == PageState::Victim);
        let (mut no_longer_stored, mut hits) = (0, 0);
        let mut state = self.lock();
        for item in batch.items() {
            let (before, is_asked) = (state.entry(item.id), item.id == asked);
            let is_mapped = item.progress == Progress::Mapped;
            match (is_victim, is_mapped) {
                (true, true) => state.victims.put_vacant(item.slot),
                (true, false) => state.victims.put_victim(item.slot, item.id),
                (false, true) => {}
                (false, false) => state.frames -= 1,
            }
            hits += usize::from(is_asked && before.has(AHEAD));
            no_longer_stored += isize::from(is_stored && (is_mapped || is_asked));
            let entry = if is_mapped {
                if filling.file.is_some() {
                    state.set_checksum(item.id, item.checksum);
                }
                let before = if filling.from == PageState::Empty { Entry::new(PageState::Empty) } else { before };
                before
                    .in_state(PageState::Resident)
                    .at(state.clock.insert(item.id))
                    .without(AHEAD)
                    .with_if(AHEAD, !is_asked)
                    .with_if(REFERENCED, is_asked && is_victim)
                    .with_if(ORIGINAL, filling.file.is_some())
            } else if is_asked && !is_victim {
                Entry::new(PageState::Poisoned)
            } else {
                before.in_state(filling.from)
            };
            if state.publish(item.id, entry) {
                self.wake(item.address, PAGE_BYTES);
            }
        }
        state.count_stored(asked.region, -no_longer_stored);
        let (counters, pages) = (&self.counters, batch.items().len());
        counters.add(Figure::AheadHits, hits);
        match (filling.from, filling.file) {
            (PageState::Victim, _) => {
                counters.add(Figure::RescuedPages, pages);
                counters.add(Figure::MinorFaults, 1);
            }
            (PageState::Stored, _) | (_, Some(_)) => counters.add(Figure::MajorFaults, 1),
            _ => counters.add(Figure::ZeroFaults, 1),
        }
        if !is_victim {
            counters.add(Figure::AheadPages, pages.saturating_sub(1));
        }
        self.notify(state);
    }

    /// Marks a page as lost.
    fn lose(&self, mut state: Guard<'_>, id: PageId, cause: StoreError) {
        let mut batch = Batch::new();
        state.claim(id, &mut batch);
        drop(state);
        let item = &batch.items()[0];
        self.poison(item, cause);
        let mut state = self.lock();
        state.publish(id, Entry::new(PageState::Poisoned));
        self.wake(item.address, PAGE_BYTES);
        self.notify(state);
    }

    /// A fault on a page that should be mapped: mostly it was reported late. If the program itself dropped the page, bypassing the pager,
    /// it reads zeros, as it must expect. If `open`, lets the thread that froze the pager store to it; the store keeps its copy, for the
    /// child.
    fn look_again(&self, mut state: Guard<'_>, id: PageId, open: bool) {
        let mut batch = Batch::new();
        state.claim(id, &mut batch);
        drop(state);
        let address = batch.items()[0].address;
        if open {
            // If it fails, the thread retries.
            let _ = uffd_abi::write_protect(&self.uffd, address, PAGE_BYTES, false);
        }
        let (_, zeroed) = uffd::zero(&self.uffd, address, PAGE_BYTES);
        let mut state = self.lock();
        let entry = state.entry(id).in_state(PageState::Resident);
        let entry = match zeroed {
            Ok(()) => entry.without(COPY | ORIGINAL),
            Err(_) => entry,
        };
        state.publish(id, entry);
        self.wake(address, PAGE_BYTES);
        self.notify(state);
    }
}
