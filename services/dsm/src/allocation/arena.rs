//! Placement of allocations: pages from rank 0, minipages packed into them.
//!
//! Rank 0's [`ChunkPool`] hands out runs of pages, each once. A rank's [`Arena`] cuts its runs: an allocation
//! of at least a page takes whole pages in the first view; smaller ones share a page, each in the next view
//! (Millipage §2.1), until bytes or views run out. The unused end of a long allocation's last page takes small
//! ones too, in the views after the first.

use super::{Place, Wanted};
use crate::address::{Minipage, PAGE_BYTES};
use crate::units::{Units, align};

#[derive(Debug)]
pub(super) struct ChunkPool {
    next: u32,
    end: u32,
}

impl ChunkPool {
    pub(super) fn new(pages: u32) -> Self {
        ChunkPool { next: 0, end: pages }
    }

    pub(super) fn left_pages(&self) -> u32 {
        self.end - self.next
    }

    /// Takes between `need_pages` and `want_pages` pages; returns the first and their number.
    pub(super) fn take(&mut self, need_pages: u32, want_pages: u32) -> Option<(u32, u32)> {
        if need_pages == 0 || need_pages > self.left_pages() {
            return None;
        }
        let pages = want_pages.max(need_pages).min(self.left_pages());
        let first = self.next;
        self.next += pages;
        Some((first, pages))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Run {
    first: u32,
    pages: u32,
}

/// The pages of one rank.
#[derive(Debug)]
pub(super) struct Arena {
    /// Two runs, so that a large request does not waste the rest of the current one.
    runs: [Run; 2],
    /// The page that takes small allocations.
    packed: Packed,
    packing: Packing,
}

/// How small allocations share a page.
#[derive(Debug, Clone, Copy)]
pub(super) enum Packing {
    /// Each in a view of its own: from the first to before the end.
    Views { first: u16, end: u16 },
    /// All in view 0.
    Page,
}

/// A page with room for more small allocations.
#[derive(Debug, Clone, Copy)]
struct Packed {
    page: u32,
    used_bytes: u64,
    next_view: u16,
}

/// Pages of an allocation that starts on a fresh one; saturates at 32 bits.
pub(super) fn pages_for(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX)
}

impl Arena {
    pub(super) fn new(packing: Packing) -> Self {
        let full = Packed { page: 0, used_bytes: PAGE_BYTES, next_view: 0 };
        Arena { runs: [Run::default(); 2], packed: full, packing }
    }

    /// Adds pages. If they do not continue a run, they replace the shorter of the two runs.
    pub(super) fn add(&mut self, first: u32, pages: u32) {
        if let Some(run) = self.runs.iter_mut().find(|run| run.pages > 0 && run.first + run.pages == first) {
            run.pages += pages;
            return;
        }
        let shorter = usize::from(self.runs[1].pages < self.runs[0].pages);
        self.runs[shorter] = Run { first, pages };
    }

    /// Bytes on pages not yet allocated from.
    pub(super) fn left_bytes(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.pages) * PAGE_BYTES).sum()
    }

    /// View of what takes whole pages.
    pub(super) fn first_view(&self) -> u16 {
        self.packing.first()
    }

    /// Places what is wanted; `None` if [`add`](Self::add) must first supply its pages.
    pub(super) fn place(&mut self, wanted: Wanted) -> Option<Place> {
        let Wanted { bytes, unit_bytes, pages, .. } = wanted;
        if unit_bytes >= bytes {
            return self.reserve(bytes).map(Place::One);
        }
        // Small ones may share the last page of an array, in other views than the first, but none of rows, which may use all views.
        let is_array = unit_bytes.is_multiple_of(PAGE_BYTES);
        let last_bytes = if is_array { bytes - u64::from(pages - 1) * PAGE_BYTES } else { PAGE_BYTES };
        let first_page = self.reserve_pages(pages, last_bytes)?;
        Some(Place::Several(Units { view: self.first_view(), first_page, length_bytes: bytes, unit_bytes }))
    }

    /// Places a minipage of at least one byte; `None` if the pages given by [`pages_for`] are missing.
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<Minipage> {
        if bytes < PAGE_BYTES
            && let Some(minipage) = self.packed.reserve(bytes, self.packing)
        {
            return Some(minipage);
        }
        let need = pages_for(bytes);
        let page = self.reserve_pages(need, bytes.saturating_sub(u64::from(need - 1) * PAGE_BYTES))?;
        Some(Minipage { view: self.first_view(), offset_bytes: u64::from(page) * PAGE_BYTES, length_bytes: bytes })
    }

    /// Takes pages, of which the last is used up to `last_bytes`; returns the first.
    fn reserve_pages(&mut self, pages: u32, last_bytes: u64) -> Option<u32> {
        let run = self.runs.iter_mut().find(|run| run.pages >= pages)?;
        let first = run.first;
        run.first += pages;
        run.pages -= pages;
        let next_view = self.packing.next(self.packing.first());
        let tail = Packed { page: first + pages - 1, used_bytes: last_bytes, next_view };
        if tail.room(self.packing) > self.packed.room(self.packing) {
            self.packed = tail;
        }
        Some(first)
    }
}

impl Packing {
    fn first(self) -> u16 {
        match self {
            Packing::Views { first, .. } => first,
            Packing::Page => 0,
        }
    }

    /// The view after that one.
    fn next(self, view: u16) -> u16 {
        match self {
            Packing::Views { .. } => view + 1,
            Packing::Page => 0,
        }
    }

    fn has(self, view: u16) -> bool {
        match self {
            Packing::Views { end, .. } => view < end,
            Packing::Page => true,
        }
    }
}

impl Packed {
    fn room(&self, packing: Packing) -> u64 {
        if packing.has(self.next_view) { PAGE_BYTES - self.used_bytes } else { 0 }
    }

    fn reserve(&mut self, bytes: u64, packing: Packing) -> Option<Minipage> {
        let at = self.used_bytes.next_multiple_of(align(bytes));
        if !packing.has(self.next_view) || at + bytes > PAGE_BYTES {
            return None;
        }
        let view = self.next_view;
        self.used_bytes = at + bytes;
        self.next_view = packing.next(view);
        let offset_bytes = u64::from(self.page) * PAGE_BYTES + at;
        Some(Minipage { view, offset_bytes, length_bytes: bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn arena(views: u16, pages: u32) -> Arena {
        let mut arena = Arena::new(Packing::Views { first: 0, end: views });
        arena.add(0, pages);
        arena
    }

    #[test]
    fn small_allocations_share_a_page_in_views_of_their_own() {
        let mut arena = arena(32, 2);
        let places: Vec<_> = (0..32).map(|_| arena.reserve(128).unwrap()).collect();
        for (i, place) in places.iter().enumerate() {
            assert_eq!((place.view as usize, place.offset_bytes), (i, i as u64 * 128));
        }
        assert_eq!(arena.reserve(128).unwrap().first_page(), 1);
    }

    #[test]
    fn a_page_is_full_when_its_views_are_used_up() {
        let mut arena = arena(2, 2);
        assert_eq!(arena.reserve(16).unwrap().first_page(), 0);
        assert_eq!(arena.reserve(16).unwrap().first_page(), 0);
        assert_eq!(arena.reserve(16).unwrap().first_page(), 1);
    }

    #[test]
    fn the_tail_of_a_long_allocation_takes_small_ones_in_other_views() {
        let mut arena = arena(4, 4);
        let long = arena.reserve(4096 + 100).unwrap();
        let small = arena.reserve(100).unwrap();
        assert_eq!((long.view, long.pages()), (0, 2));
        assert_eq!((small.view, small.offset_bytes), (1, 4096 + 128));
    }

    #[test]
    fn a_large_request_does_not_cost_the_rest_of_the_current_run() {
        let mut arena = arena(1, 4);
        arena.reserve(4096).unwrap();
        assert_eq!(arena.reserve(100 * 4096), None);
        arena.add(50, 100);
        assert_eq!(arena.reserve(100 * 4096).unwrap().first_page(), 50);
        assert_eq!(arena.reserve(4096).unwrap().first_page(), 1);
        assert_eq!(arena.left_bytes(), 2 * 4096);
    }

    #[test]
    fn the_pool_gives_what_is_wanted_then_what_is_needed_then_nothing() {
        let mut pool = ChunkPool::new(10);
        assert_eq!(pool.take(1, 6), Some((0, 6)));
        assert_eq!(pool.take(5, 6), None);
        assert_eq!(pool.take(3, 6), Some((6, 4)));
        assert_eq!(pool.take(1, 1), None);
        assert_eq!(pool.take(0, 0), None);
    }

    proptest! {
        #[test]
        fn no_two_minipages_overlap_in_bytes_or_in_the_pages_of_a_view(
            views in 1u16..6,
            sizes in proptest::collection::vec(prop_oneof![1u64..600, 1u64..20_000], 1..80),
        ) {
            let mut arena = Arena::new(Packing::Views { first: 0, end: views });
            let mut next = 0;
            let mut taken: Vec<Minipage> = Vec::new();
            for bytes in sizes {
                let place = arena.reserve(bytes).or_else(|| {
                    let pages = pages_for(bytes).max(3);
                    next += pages / 3; // a gap, so that some runs do not continue
                    arena.add(next, pages);
                    next += pages;
                    arena.reserve(bytes)
                });
                let place = place.expect("pages were added");
                prop_assert_eq!(place.length_bytes, bytes);
                prop_assert!(place.is_well_formed(next, views));
                for other in &taken {
                    let apart = |a: (u64, u64), b: (u64, u64)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
                    prop_assert!(apart((place.offset_bytes, bytes), (other.offset_bytes, other.length_bytes)));
                    prop_assert!(place.view != other.view || apart(
                        (place.first_page(), place.pages()),
                        (other.first_page(), other.pages()),
                    ));
                }
                taken.push(place);
            }
        }
    }
}
