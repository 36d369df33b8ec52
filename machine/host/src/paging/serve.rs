//! Serves one page fault.
//!
//! Runs in handler threads and in signal handlers: it allocates nothing, and takes the lock only where the interrupted code cannot hold
//! it.

use std::time::Instant;

use super::batch::{Batch, Progress};
use super::core::{Core, Guard, current_thread};
use super::fill::Filling;
use super::published::Figure;
use super::store::{PageId, StoreError};
use super::streams::Prediction;
use super::table::{AHEAD, COPY, Entry, ORIGINAL, PageState};
use crate::faults::uffd_paging::Event;
use crate::page::PAGE_BYTES;

/// Result of serving a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// The thread that faulted may retry, and was woken.
    Retry,
    /// Another thread works on the page, and wakes the one that faulted.
    Later,
    /// The address is in no region, or the page is lost.
    Refused,
}

impl Core {
    /// Serves a fault. If `may_wait`, waits for other threads that work on the page, or froze the pager.
    pub(super) fn serve_fault(&self, event: Event, may_wait: bool) -> Served {
        let (address, write) = (event.address, event.write);
        let thread = || match event.thread {
            0 => current_thread(),
            thread => thread,
        };
        let start = Instant::now();
        let mut state = self.lock();
        let mut may_make_room = true;
        let mut beyond = false;
        let served = loop {
            let Some(id) = state.find(address) else {
                break Served::Refused;
            };
            if state.bars(thread) {
                if !may_wait {
                    // The thaw wakes all.
                    break Served::Later;
                }
                state = self.wait(state);
                continue;
            }
            // The child must find the store and its records as they were when the pager was frozen: no page may leave.
            let is_frozen = state.frozen_by != 0;
            let entry = state.entry(id);
            match entry.state() {
                PageState::Poisoned => break Served::Refused,
                PageState::Busy => {
                    self.counters.add(Figure::Waits, 1);
                    if !may_wait {
                        state.set_waited(id);
                        break Served::Later;
                    }
                    state = self.wait(state);
                }
                PageState::Resident if write && is_frozen => {
                    self.open_frozen(state, id);
                    return Served::Retry;
                }
                PageState::Resident => {
                    self.look_again(state, id);
                    return Served::Retry;
                }
                PageState::Victim => {
                    self.rescue(state, id);
                    self.counters.served_since(start);
                    return Served::Retry;
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
                        return Served::Refused;
                    }
                    let is_stored = entry.state() == PageState::Stored;
                    let buffer = if is_stored || state.file_of(id).is_some() {
                        let Some(buffer) = state.take_buffer() else {
                            state = self.wait(state);
                            continue;
                        };
                        Some(buffer)
                    } else {
                        None
                    };
                    let served = self.bring_in(state, id, write && !is_frozen, buffer);
                    self.counters.served_since(start);
                    return served;
                }
            }
        };
        drop(state);
        served
    }

    /// Claims the page and those likely to follow, which are in the state `from`, as long as `take` finds a slot for them. Returns how
    /// many likely ones were considered.
    pub(super) fn claim_ahead(
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
    pub(super) fn predict(&self, state: &mut Guard<'_>, id: PageId) -> Prediction {
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

    /// Brings in a page that is not in RAM, and those likely to follow.
    fn bring_in(&self, mut state: Guard<'_>, id: PageId, write: bool, buffer: Option<u32>) -> Served {
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

    /// Publishes the results of a batch that was brought in.
    fn end_bringing(&self, batch: &Batch, filling: Filling<'_>, asked: PageId, buffer: Option<u32>) -> Served {
        let mut served = Served::Retry;
        let is_stored = filling.from == PageState::Stored;
        let mut stored_before = 0;
        for item in batch.items() {
            if let Progress::Failed(cause) = item.progress
                && item.id == asked
            {
                self.poison(item, cause);
                served = Served::Refused;
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
        served
    }
}
