//! Serves faults on pages that are in RAM: victims, pages of a frozen pager, and pages told of late.

use crate::batch::{Batch, Progress};
use crate::core::{Core, Guard};
use crate::fill::Filling;
use crate::published::Figure;
use crate::store::{PageId, StoreError};
use crate::table::{AHEAD, COPY, Entry, ORIGINAL, PageState, REFERENCED};
use mapwire_host::faults::uffd_abi;

use crate::uffd;
use mapwire_host::page::PAGE_BYTES;

impl Core {
    /// Maps a victim again, and those likely to follow.
    pub(crate) fn rescue(&self, mut state: Guard<'_>, id: PageId) {
        let prediction = self.predict(&mut state, id);
        let mut batch = Batch::new();
        let considered =
            Self::claim_ahead(&mut state, id, prediction, PageState::Victim, &mut batch, |_, _| Some(u32::MAX));
        if let Some(region) = state.region(id.region) {
            region.reads.cut(prediction, id.page, considered);
        }
        for item in batch.items_mut() {
            item.memory = self.slot_address(item.slot);
            state.slots.take_victim(item.slot);
        }
        drop(state);
        batch.sort();
        let filling = Filling { from: PageState::Victim, write: false, file: None };
        self.bring(&mut batch, filling, id);
        let mut state = self.lock();
        let mut hits = 0;
        for item in batch.items() {
            let before = state.entry(item.id);
            match item.progress {
                Progress::Mapped => state.slots.put_vacant(item.slot),
                _ => state.slots.put_victim(item.slot, item.id),
            }
            hits += usize::from(before.has(AHEAD) && item.id == id);
            let entry = match item.progress {
                Progress::Mapped => before
                    .in_state(PageState::Resident)
                    .at(state.clock.insert(item.id))
                    .without(AHEAD)
                    .with_if(REFERENCED, item.id == id)
                    .with_if(AHEAD, item.id != id),
                _ => before.in_state(PageState::Victim),
            };
            if state.publish(item.id, entry) {
                self.wake(item.address, PAGE_BYTES);
            }
        }
        self.counters.add(Figure::RescuedPages, batch.items().len());
        self.counters.add(Figure::AheadHits, hits);
        self.counters.add(Figure::MinorFaults, 1);
        self.notify(state);
    }

    /// Opens a page to stores of the thread that froze the pager. The store keeps its copy, for the child.
    pub(crate) fn open_frozen(&self, mut state: Guard<'_>, id: PageId) {
        let address = state.region(id.region).map_or(0, |it| it.address(id.page));
        // If it fails, the thread retries.
        let _ = uffd_abi::write_protect(&self.uffd, address, PAGE_BYTES, false);
        self.look_again(state, id);
    }

    /// Marks a page as lost.
    pub(crate) fn lose(&self, mut state: Guard<'_>, id: PageId, cause: StoreError) {
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
    /// it reads zeros, as it must expect.
    pub(crate) fn look_again(&self, mut state: Guard<'_>, id: PageId) {
        let mut batch = Batch::new();
        state.claim(id, &mut batch);
        drop(state);
        let address = batch.items()[0].address;
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
