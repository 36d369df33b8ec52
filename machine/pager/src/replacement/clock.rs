//! The resident pages, in a ring with a clock hand.
//!
//! A page keeps its position until it is removed; free positions form a list within the ring. The ring lies in sparse memory for as many
//! pages as this computer could hold, so that it grows without an allocation.

use core::sync::atomic::Ordering;

use mapwire_host::mapping::Mapping;
use mapwire_host::page::{PAGE_BYTES, round_to_pages};
use rustix::io::Errno;

use crate::store::PageId;

/// Marks a word that holds a page.
const PRESENT: u64 = 1 << 63;

#[derive(Debug)]
pub(crate) struct Clock {
    places: Mapping,
    capacity: usize,
    /// Number of positions ever used.
    used: usize,
    /// Number of pages in the ring.
    pages: usize,
    hand: usize,
    /// First free position below `used`, plus one; each holds the next.
    free: u64,
}

impl Clock {
    /// Reserves room for all frames of this computer and its swap space, and for at least `least` pages.
    pub(crate) fn new(least: usize) -> Result<Self, Errno> {
        let system = rustix::system::sysinfo();
        let bytes =
            (system.totalram as u64).saturating_add(system.totalswap as u64).saturating_mul(u64::from(system.mem_unit));
        let frames = usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE_BYTES;
        let capacity = frames.max(least).min(u32::MAX as usize - 1);
        let bytes = round_to_pages(capacity * 8).ok_or(Errno::NOMEM)?;
        let places = Mapping::sparse(bytes, None)?;
        // A forked child has none of the pages.
        places.advise(0, bytes, rustix::mm::Advice::LinuxDontFork)?;
        Ok(Self { places, capacity, used: 0, pages: 0, hand: 0, free: 0 })
    }

    fn load(&self, place: usize) -> u64 {
        self.places.word64(place * 8).load(Ordering::Relaxed)
    }

    fn store(&self, place: usize, word: u64) {
        self.places.word64(place * 8).store(word, Ordering::Relaxed);
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Number of pages that still fit.
    pub(crate) fn room(&self) -> usize {
        self.capacity - self.pages
    }

    /// Inserts a page, and returns its position. The caller has checked [`room`](Self::room).
    pub(crate) fn insert(&mut self, id: PageId) -> u32 {
        let place = if self.free != 0 {
            let place = self.free as usize - 1;
            self.free = self.load(place);
            place
        } else {
            self.used += 1;
            self.used - 1
        };
        self.store(place, PRESENT | id.packed());
        self.pages += 1;
        place as u32
    }

    /// Removes the page at a position.
    pub(crate) fn remove(&mut self, place: u32) {
        self.store(place as usize, self.free);
        self.free = u64::from(place) + 1;
        self.pages -= 1;
    }

    /// Advances the hand by one position; returns the page there.
    pub(crate) fn step(&mut self) -> Option<PageId> {
        if self.hand >= self.used {
            self.hand = 0;
        }
        let at = self.hand;
        self.hand += usize::from(at < self.used);
        self.page_at(at)
    }

    /// Number of positions that may hold pages.
    pub(crate) fn places(&self) -> usize {
        self.used
    }

    /// The page at a position.
    pub(crate) fn page_at(&self, place: usize) -> Option<PageId> {
        let word = if place < self.used { self.load(place) } else { 0 };
        (word & PRESENT != 0).then(|| PageId::from_packed(word & !PRESENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(page: u64) -> PageId {
        PageId { region: 1023, page }
    }

    #[test]
    fn the_hand_meets_every_page_once_a_round_and_places_are_used_again() {
        let mut clock = Clock::new(10).unwrap();
        assert_eq!(clock.step(), None);
        let places: Vec<_> = (0..5).map(|page| clock.insert(id(page))).collect();
        let round = |clock: &mut Clock| (0..5).filter_map(|_| clock.step()).collect::<Vec<_>>();
        assert_eq!(round(&mut clock), (0..5).map(id).collect::<Vec<_>>());
        clock.remove(places[1]);
        clock.remove(places[3]);
        assert_eq!(round(&mut clock), [id(0), id(2), id(4)]);
        assert_eq!(clock.insert(id(8)), places[3]);
        assert_eq!(clock.insert(id(9)), places[1]);
        assert_eq!(clock.insert(id(10)), 5);
        assert_eq!((clock.pages(), clock.places()), (6, 6));
        assert_eq!(clock.page_at(99), None);
    }
}
