//! Residency under the lock of a pager: the state of each page. Never allocates after [`Residency::new`], so that fault handlers may use it.

use core::ops::Range;
use std::sync::Arc;

use mapwire_host::page::PAGE_BYTES;
use rustix::io::Errno;

use crate::batch::{Batch, Item, Progress};
use crate::config::Config;
use crate::faults::streams::Streams;
use crate::region::origin::{Origins, Part};
use crate::replacement::clock::Clock;
use crate::replacement::victims::Victims;
use crate::store::{MAX_REGIONS, PageId, StoreError};
use crate::table::{COPY, Entry, ORIGINAL, PageState, PageTable, WAITED};

/// Faults that go by without an eviction after the store failed.
const FAULTS_WITHOUT_EVICTION: u32 = 64;

/// The pager's data of a region.
#[derive(Debug)]
pub(crate) struct RegionState {
    base: usize,
    pages: u64,
    pub(crate) table: Arc<PageTable>,
    pub(crate) origins: Arc<Origins>,
    /// Streams of faults that bring pages.
    pub(crate) reads: Streams,
    busy: usize,
    /// Number of pages only in the store.
    stored: usize,
    /// Whether it no longer serves faults.
    closing: bool,
}

impl RegionState {
    pub(crate) fn new(
        base: usize,
        pages: u64,
        table: Arc<PageTable>,
        origins: Arc<Origins>,
        read_ahead: usize,
    ) -> Self {
        Self { base, pages, table, origins, reads: Streams::new(read_ahead), busy: 0, stored: 0, closing: false }
    }

    pub(crate) fn address(&self, page: u64) -> usize {
        self.base + page as usize * PAGE_BYTES
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Adds a page to a batch that has room, with its known properties.
    pub(crate) fn describe<'a>(&self, id: PageId, entry: Entry, batch: &'a mut Batch) -> &'a mut Item {
        let item = batch.push(id, self.address(id.page));
        item.checksum = self.table.checksum(id.page);
        item.has_copy = entry.has(COPY);
        item.is_of_file = self.origins.part(id.page).is_some();
        item.is_original = entry.has(ORIGINAL);
        item
    }

    /// Pages around this one that are read from the same file, or are zeros.
    pub(crate) fn around(&self, page: u64) -> Range<u64> {
        self.origins.around(page, self.pages)
    }

    /// Whether it is being removed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }
}

#[derive(Debug)]
pub(crate) struct Residency {
    regions: Box<[Option<RegionState>]>,
    /// Start addresses and numbers of regions, in order.
    order: Vec<(usize, u32)>,
    pub(crate) clock: Clock,
    pub(crate) victims: Victims,
    /// Frames in RAM: mapped pages, and victims.
    pub(crate) frames: usize,
    limit: usize,
    /// Number of pages of all regions only in the store.
    stored: usize,
    /// The thread that froze the pager and is about to fork; 0: none.
    pub(crate) frozen_by: u32,
    /// Number of threads that are mapping or removing regions.
    pub(crate) changing: usize,
    pub(crate) evicting: bool,
    /// Number of threads that wait on the condition.
    pub(crate) waiting: usize,
    pause: u32,
}

impl Residency {
    pub(crate) fn new(config: &Config, slots: usize) -> Result<Self, Errno> {
        Ok(Self {
            regions: (0..MAX_REGIONS).map(|_| None).collect(),
            order: Vec::with_capacity(MAX_REGIONS),
            clock: Clock::new(config.resident_pages * 2)?,
            victims: Victims::new(slots),
            frames: 0,
            limit: config.resident_pages,
            stored: 0,
            frozen_by: 0,
            changing: 0,
            evicting: false,
            waiting: 0,
            pause: 0,
        })
    }

    /// Whether another thread has frozen the pager.
    pub(crate) fn bars(&self, thread: u32) -> bool {
        self.frozen_by != 0 && self.frozen_by != thread
    }

    /// Whether no thread works on pages or regions.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_idle = |(_, region): (u32, &RegionState)| region.busy == 0;
        !self.evicting && self.changing == 0 && self.regions().all(is_idle)
    }

    /// All regions with their numbers.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (u32, &RegionState)> {
        let all = self.order.iter();
        all.filter_map(|&(_, number)| Some((number, self.regions[number as usize].as_ref()?)))
    }

    /// An unused region number.
    pub(crate) fn free_region(&self) -> Option<u32> {
        self.regions.iter().position(Option::is_none).map(|index| index as u32)
    }

    pub(crate) fn add_region(&mut self, number: u32, region: RegionState) {
        let at = self.order.partition_point(|&(base, _)| base < region.base);
        self.order.insert(at, (region.base, number));
        self.regions[number as usize] = Some(region);
    }

    pub(crate) fn remove_region(&mut self, number: u32) -> Option<RegionState> {
        self.order.retain(|&(_, other)| other != number);
        let region = self.regions[number as usize].take()?;
        self.stored -= region.stored;
        Some(region)
    }

    pub(crate) fn region(&mut self, number: u32) -> Option<&mut RegionState> {
        self.regions[number as usize].as_mut()
    }

    /// The page at an address, if it is in a region whose faults are served.
    pub(crate) fn find(&self, address: usize) -> Option<PageId> {
        let after = self.order.partition_point(|&(base, _)| base <= address);
        let (base, number) = *self.order.get(after.checked_sub(1)?)?;
        let region = self.regions[number as usize].as_ref()?;
        let page = ((address - base) / PAGE_BYTES) as u64;
        (page < region.pages && !region.closing).then_some(PageId { region: number, page })
    }

    /// The entry of a page; empty if there is no such region.
    pub(crate) fn entry(&self, id: PageId) -> Entry {
        match &self.regions[id.region as usize] {
            Some(region) if id.page < region.pages => region.table.get(id.page),
            _ => Entry::new(PageState::Empty),
        }
    }

    pub(crate) fn set_entry(&mut self, id: PageId, entry: Entry) {
        if let Some(region) = &self.regions[id.region as usize] {
            region.table.set(id.page, entry);
        }
    }

    /// The part of a file from which an empty page must be read.
    pub(crate) fn file_of(&self, id: PageId) -> Option<&Part> {
        let is_empty = self.entry(id).state() == PageState::Empty;
        let region = self.regions[id.region as usize].as_ref();
        region.filter(|_| is_empty)?.origins.part(id.page)
    }

    /// Records that the faulting thread waits until a page is no longer busy.
    pub(crate) fn set_waited(&mut self, id: PageId) {
        let entry = self.entry(id);
        self.set_entry(id, entry.with(WAITED));
    }

    /// Makes a page busy, and adds it to a batch that has room.
    pub(crate) fn claim(&mut self, id: PageId, batch: &mut Batch) {
        let entry = self.entry(id);
        let Some(region) = self.region(id.region) else {
            return;
        };
        region.busy += 1;
        region.table.set(id.page, entry.in_state(PageState::Busy));
        region.describe(id, entry, batch);
    }

    /// Ends the work on a page. Returns whether a thread must be woken.
    pub(crate) fn publish(&mut self, id: PageId, entry: Entry) -> bool {
        let waited = self.entry(id).has(WAITED);
        if let Some(region) = self.region(id.region) {
            region.busy -= 1;
            region.table.set(id.page, entry.without(WAITED));
        }
        waited
    }

    /// Takes back the slots whose frames the kernel has.
    pub(crate) fn note_released(&mut self, batch: &Batch) {
        for item in batch.items() {
            if item.progress == Progress::Gone {
                self.victims.put_vacant(item.slot);
                self.frames -= 1;
            }
        }
    }

    pub(crate) fn set_checksum(&mut self, id: PageId, sum: u64) {
        if let Some(region) = &self.regions[id.region as usize] {
            region.table.set_checksum(id.page, sum);
        }
    }

    /// Records that pages of a region came to be only in the store, or no longer are.
    pub(crate) fn count_stored(&mut self, region: u32, change: isize) {
        if let Some(region) = self.region(region) {
            region.stored = region.stored.saturating_add_signed(change);
            self.stored = self.stored.saturating_add_signed(change);
        }
    }

    /// Number of pages only in the store.
    pub(crate) fn stored_pages(&self) -> usize {
        self.stored
    }

    /// Stops serving faults of a region. Returns whether nobody works on its pages any more.
    pub(crate) fn close(&mut self, number: u32) -> bool {
        self.region(number).is_none_or(|region| {
            region.closing = true;
            region.busy == 0
        })
    }

    /// Number of frames that may still be taken.
    pub(crate) fn unused_frames(&self) -> usize {
        self.limit.saturating_sub(self.frames).min(self.clock.room())
    }

    /// Records whether the store took pages. If not, evictions pause for a while.
    pub(crate) fn note_store(&mut self, outcome: Result<(), StoreError>) {
        self.pause = if outcome.is_ok() { 0 } else { FAULTS_WITHOUT_EVICTION };
    }

    /// Whether evictions pause. Each call counts as a fault.
    pub(crate) fn pauses(&mut self) -> bool {
        self.pause = self.pause.saturating_sub(1);
        self.pause > 0
    }
}
