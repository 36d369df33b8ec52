//! Serves one page fault, in a handler thread. Allocates nothing: the program's allocator may be in a region.

use std::time::Instant;

use crate::batch::{Batch, Progress};
use crate::core::{Core, Guard};
use crate::fill::Filling;
use crate::published::Figure;
use crate::store::{PageId, StoreError};
use crate::streams::Prediction;
use crate::table::{AHEAD, COPY, Entry, ORIGINAL, PageState};
use crate::uffd::Event;
use mapwire_host::page::PAGE_BYTES;

impl Core {
    /// Serves a fault: now, or by whoever works on the page or froze the pager, who wakes the thread that faulted.
    pub(crate) fn serve_fault(&self, event: Event) {
        if !self.serve(event) {
            // It retries, and meets what is there now: poison, or no memory.
            self.wake(event.address & !(PAGE_BYTES - 1), PAGE_BYTES);
        }
    }

    /// False if the address is in no region, or the page is lost.
    fn serve(&self, event: Event) -> bool {
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
                    if event.write && is_frozen {
                        self.open_frozen(state, id);
                    } else {
                        self.look_again(state, id);
                    }
                    return true;
                }
                PageState::Victim => {
                    self.rescue(state, id);
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
                    let mut buffer = None;
                    if entry.state() == PageState::Stored || state.file_of(id).is_some() {
                        buffer = state.take_buffer();
                        if buffer.is_none() {
                            state = self.wait(state);
                            continue;
                        }
                    }
                    let served = self.bring_in(state, id, event.write && !is_frozen, buffer);
                    self.counters.served_since(start);
                    return served;
                }
            }
        }
    }

    /// Claims the page and those likely to follow, which are in the state `from`, as long as `take` finds a slot for them. Returns how
    /// many likely ones were considered.
    pub(crate) fn claim_ahead(
        state: &mut Guard<'_>,
        id: PageId,
        prediction: Prediction,
        from: PageState,
        batch: &mut Batch,
        mut take: impl FnMut(&mut Guard<'_>, usize) -> Option<u32>,
    ) -> usize {
        let pages = state.region(id.region).map(|it| it.around(id.page));
        let pages = pages.unwrap_or_default();
        let mut considered = 0;
        for step in 0..=prediction.ahead {
            let page = match prediction.page(id.page, step as i64) {
                Some(page) if pages.contains(&page) && !batch.is_full() => page,
                _ => break,
            };
            let next = PageId { page, ..id };
            let entry = state.entry(next);
            if entry.state() == from {
                let Some(slot) = take(state, batch.items().len()) else {
                    break;
                };
                state.claim(next, batch);
                if let Some(item) = batch.items_mut().last_mut() {
                    // The slot of a victim is in its entry.
                    let of_victim = from == PageState::Victim;
                    item.slot = if of_victim { entry.index() } else { slot };
                }
            }
            considered = step;
        }
        considered
    }

    /// Notes a fault that brings pages, and counts the use of those before.
    pub(crate) fn predict(&self, state: &mut Guard<'_>, id: PageId) -> Prediction {
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

    /// Brings in a page that is not in RAM, and those likely to follow. False if the page is lost.
    fn bring_in(&self, mut state: Guard<'_>, id: PageId, write: bool, buffer: Option<u32>) -> bool {
        let from = state.entry(id).state();
        // Keeps the file while its pages are busy.
        let file = state.file_of(id).cloned();
        let filling = Filling { from, write, file: file.as_ref() };
        let prediction = self.predict(&mut state, id);
        let mut batch = Batch::new();
        let considered = Self::claim_ahead(&mut state, id, prediction, from, &mut batch, |state, index| {
            // The page itself comes in any case.
            if index > 0 && state.unused_frames() == 0 {
                return None;
            }
            state.frames += 1;
            Some(u32::MAX)
        });
        if let Some(region) = state.region(id.region) {
            region.reads.cut(prediction, id.page, considered);
        }
        drop(state);
        batch.sort();
        for (index, item) in batch.items_mut().iter_mut().enumerate() {
            item.memory = match buffer {
                Some(buffer) => self.buffer_address(buffer, index),
                None => self.zeros.address(index),
            };
        }
        self.counters.add(Figure::AheadPages, batch.items().len().saturating_sub(1));
        self.bring(&mut batch, filling, id);
        self.end_bringing(&batch, filling, id, buffer)
    }

    /// Publishes the results of a batch that was brought in. False if the page that was asked for is lost.
    fn end_bringing(&self, batch: &Batch, filling: Filling<'_>, asked: PageId, buffer: Option<u32>) -> bool {
        let mut is_lost = false;
        let is_stored = filling.from == PageState::Stored;
        let mut stored_before = 0;
        for item in batch.items() {
            if let Progress::Failed(cause) = item.progress
                && item.id == asked
            {
                self.poison(item, cause);
                is_lost = true;
            }
        }
        let mut state = self.lock();
        for item in batch.items() {
            let is_mapped = item.progress == Progress::Mapped;
            if !is_mapped {
                state.frames -= 1;
            }
            let entry = if is_mapped {
                stored_before += isize::from(is_stored);
                let place = state.clock.insert(item.id);
                let is_original = filling.file.is_some();
                if is_original {
                    state.set_checksum(item.id, item.checksum);
                }
                Entry::new(PageState::Resident)
                    .at(place)
                    .with_if(AHEAD, item.id != asked)
                    .with_if(COPY, is_stored)
                    .with_if(ORIGINAL, is_original)
            } else if item.id == asked {
                stored_before += isize::from(is_stored);
                Entry::new(PageState::Poisoned)
            } else {
                let entry = Entry::new(filling.from).with_if(COPY, is_stored);
                entry.with_if(ORIGINAL, item.is_original)
            };
            if state.publish(item.id, entry) {
                self.wake(item.address, PAGE_BYTES);
            }
        }
        if let Some(buffer) = buffer {
            state.put_buffer(buffer);
        }
        state.count_stored(asked.region, -stored_before);
        let counters = &self.counters;
        match (filling.from, filling.file) {
            (PageState::Stored, _) | (_, Some(_)) => counters.add(Figure::MajorFaults, 1),
            _ => counters.add(Figure::ZeroFaults, 1),
        }
        self.notify(state);
        !is_lost
    }
}
