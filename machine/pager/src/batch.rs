//! Pages on which one thread works.

use mapwire_host::page::PAGE_BYTES;

use crate::config::MAX_BATCH_PAGES;
use crate::store::{PageId, StoreError};

/// Progress of the work on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing has been done yet.
    Claimed,
    /// Its bytes are at [`Item::memory`], and were checked if they came from the store.
    Filled,
    /// It is mapped, in its frame.
    Mapped,
    /// Nobody can store to it: it was moved to [`Item::memory`].
    Taken,
    /// It was taken, and its frame is to go back to the kernel.
    Leaving,
    /// It is no longer in RAM.
    Gone,
    /// The program dropped it, bypassing the pager.
    Missing,
    /// It could not be fetched, mapped or taken.
    Failed(StoreError),
}

/// What to do with a page that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Unknown,
    /// It is unchanged since it was stored.
    Clean,
    Zero,
    /// It changed since it was stored, and stays.
    Dirty,
    /// The store now has it.
    Stored,
}

impl Fate {
    /// Whether the page may leave the RAM.
    pub(crate) fn is_safe(self) -> bool {
        matches!(self, Self::Clean | Self::Zero | Self::Stored)
    }
}

/// One page, which the batch's thread has made busy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) id: PageId,
    /// Address in the region.
    pub(crate) address: usize,
    /// Address of its bytes, or their destination; 0 if none yet.
    pub(crate) memory: usize,
    /// Slot of the pool that contains `memory`, if any.
    pub(crate) slot: u32,
    /// Checksum of the store's copy, if `has_copy`, or of the file's page, if `is_original`.
    pub(crate) checksum: u64,
    pub(crate) has_copy: bool,
    pub(crate) is_of_file: bool,
    /// Whether the checksum is that of the file's bytes.
    pub(crate) is_original: bool,
    pub(crate) progress: Progress,
    pub(crate) fate: Fate,
}

const NO_ITEM: Item = Item {
    id: PageId { region: 0, page: 0 },
    address: 0,
    memory: 0,
    slot: u32::MAX,
    checksum: 0,
    has_copy: false,
    is_of_file: false,
    is_original: false,
    progress: Progress::Claimed,
    fate: Fate::Unknown,
};

/// Up to [`MAX_BATCH_PAGES`] pages. Lies on the stack: the program's allocator may be in a region.
#[derive(Debug)]
pub(crate) struct Batch {
    items: [Item; MAX_BATCH_PAGES],
    count: usize,
}

/// Consecutive pages whose memory is consecutive too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Index of the first item.
    pub(crate) first: usize,
    pub(crate) pages: usize,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { items: [NO_ITEM; MAX_BATCH_PAGES], count: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == MAX_BATCH_PAGES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a page; the caller has checked that there is room.
    pub(crate) fn push(&mut self, id: PageId, address: usize) -> &mut Item {
        let item = &mut self.items[self.count];
        self.count += 1;
        *item = Item { id, address, ..NO_ITEM };
        item
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.items[..self.count]
    }

    pub(crate) fn items_mut(&mut self) -> &mut [Item] {
        &mut self.items[..self.count]
    }

    /// Sorts by page. Stores and runs rely on it.
    pub(crate) fn sort(&mut self) {
        self.items_mut().sort_unstable_by_key(|item| item.id);
    }

    pub(crate) fn sort_by_slot(&mut self) {
        self.items_mut().sort_unstable_by_key(|item| item.slot);
    }

    /// Sorts by page, and sorts the slots, which are interchangeable, too: so that runs of pages get runs of slots.
    pub(crate) fn sort_with_slots(&mut self) {
        self.sort();
        let mut slots = [0; MAX_BATCH_PAGES];
        for (slot, item) in slots.iter_mut().zip(self.items()) {
            *slot = item.slot;
        }
        let slots = &mut slots[..self.count];
        slots.sort_unstable();
        for (item, slot) in self.items_mut().iter_mut().zip(slots) {
            item.slot = *slot;
        }
    }

    /// The first run of `wanted` items from item `from` on. With `by_memory`, their memory is contiguous as well.
    pub(crate) fn run(&self, from: usize, by_memory: bool, wanted: impl Fn(&Item) -> bool) -> Option<Run> {
        self.run_where(from, wanted, |before, item| {
            item.address == before.address + PAGE_BYTES && (!by_memory || item.memory == before.memory + PAGE_BYTES)
        })
    }

    /// The first run of `wanted` items from item `from` on with consecutive slots; after [`sort_by_slot`](Self::sort_by_slot).
    pub(crate) fn run_of_slots(&self, from: usize, wanted: impl Fn(&Item) -> bool) -> Option<Run> {
        self.run_where(from, wanted, |before, item| item.slot == before.slot + 1)
    }

    fn run_where(
        &self,
        from: usize,
        wanted: impl Fn(&Item) -> bool,
        follows: impl Fn(&Item, &Item) -> bool,
    ) -> Option<Run> {
        let items = self.items();
        let first = (from..items.len()).find(|&index| wanted(&items[index]))?;
        let ends = |&index: &usize| !(wanted(&items[index]) && follows(&items[index - 1], &items[index]));
        let end = (first + 1..items.len()).find(ends);
        Some(Run { first, pages: end.unwrap_or(items.len()) - first })
    }

    pub(crate) fn mark(&mut self, run: Run, progress: Progress) {
        for item in &mut self.items[run.first..run.first + run.pages] {
            item.progress = progress;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_addresses_or_memory_jump() {
        let mut batch = Batch::new();
        for (page, memory) in [(3, 0x5000), (1, 0x1000), (2, 0x2000), (9, 0x6000)] {
            let id = PageId { region: 0, page };
            batch.push(id, 0x10_0000 + page as usize * PAGE_BYTES).memory = memory;
        }
        batch.sort();
        let runs = |by_memory| {
            let mut runs = Vec::new();
            let mut from = 0;
            while let Some(run) = batch.run(from, by_memory, |_| true) {
                runs.push((run.first, run.pages));
                from = run.first + run.pages;
            }
            runs
        };
        assert_eq!(runs(false), [(0, 3), (3, 1)]);
        assert_eq!(runs(true), [(0, 2), (2, 1), (3, 1)]);
    }
}
