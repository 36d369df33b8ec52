//! Which version of a page donors have, and where.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mapwire_gms::Place;
use mapwire_wire::NodeId;

/// Pages whose versions are made room for together.
const CHUNK: usize = 1 << 15;

/// The disk has the page as well.
const ON_DISK: u64 = 1 << 31;

/// Only donors had the page, and they have it no more.
const LOST: u64 = ON_DISK;

/// Donors have the page no more, and the disk has what lay where it was: the page, or another one.
const SALVAGED: u64 = ON_DISK | 1 << PLACE;

/// The version of a word.
const VERSION: u64 = ON_DISK - 1;

/// Where the place of a word begins: a frame and, above it, a node. Both are 0 where it is not known.
const PLACE: u32 = 32;

/// Bits of a place's frame, counted from 1. A node is one of 256.
const FRAME_BITS: u32 = 24;

/// Versions end before this one.
pub(super) const MAX_VERSION: u32 = VERSION as u32;

/// What is known of a page that donors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The version that was put, at least 1.
    pub(super) version: u32,
    /// Whether the disk has the same.
    pub(super) is_on_disk: bool,
    /// Where a donor has it, as far as is known. It may be elsewhere by now.
    pub(super) place: Option<Place>,
}

type Chunk = Box<[AtomicU64]>;

/// A word for each page of a region, with room made for those that are used.
#[derive(Debug)]
pub(super) struct Versions {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Pages that donors have, of all regions.
    count: Arc<AtomicU64>,
}

impl Versions {
    /// No page is at donors. `count` counts those that are, of all regions.
    pub(super) fn new(pages: u64, count: Arc<AtomicU64>) -> Self {
        let chunks = pages.div_ceil(CHUNK as u64);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), count }
    }

    fn word(&self, page: u64) -> Option<&AtomicU64> {
        let chunk = self.chunks.get(page as usize / CHUNK)?.get()?;
        chunk.get(page as usize % CHUNK)
    }

    /// What donors have of a page.
    pub(super) fn get(&self, page: u64) -> Option<Known> {
        known(self.word(page)?.load(Ordering::Acquire))
    }

    /// Whether donors have the page, or had it alone and have it no more.
    pub(super) fn holds(&self, page: u64) -> bool {
        let word = self.word(page);
        word.is_some_and(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Whether only donors had the page, and have it no more.
    pub(super) fn is_lost(&self, page: u64) -> bool {
        let word = self.word(page);
        word.is_some_and(|word| word.load(Ordering::Acquire) == LOST)
    }

    /// Whether the page can be had, for sure.
    pub(super) fn is_kept(&self, page: u64) -> bool {
        let word = self.word(page).map(|word| word.load(Ordering::Acquire));
        !matches!(word, Some(LOST | SALVAGED))
    }

    /// Donors have a page no more, and the disk has what was read in its place.
    pub(super) fn salvage(&self, page: u64) {
        if let Some(word) = self.word(page)
            && known(word.swap(SALVAGED, Ordering::AcqRel)).is_some()
        {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Donors have a page no more: what the disk has, if that is the same version, or nothing.
    pub(super) fn lose(&self, page: u64) {
        if let Some(word) = self.word(page) {
            self.lose_word(word);
        }
    }

    fn lose_word(&self, word: &AtomicU64) {
        let before = word.load(Ordering::Acquire);
        if let Some(known) = known(before) {
            let after = if known.is_on_disk { 0 } else { LOST };
            word.store(after, Ordering::Release);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Donors have this.
    pub(super) fn set(&self, page: u64, known: Known) {
        let made = || (0..CHUNK).map(|_| AtomicU64::new(0)).collect();
        if let Some(chunk) = self.chunks.get(page as usize / CHUNK) {
            let word = &chunk.get_or_init(made)[page as usize % CHUNK];
            let before = word.swap(word_of(known), Ordering::AcqRel);
            let is_new = self::known(before).is_none();
            self.count.fetch_add(u64::from(is_new), Ordering::Relaxed);
        }
    }

    /// Donors have nothing of the page that anybody wants; what they had.
    pub(super) fn take(&self, page: u64) -> Option<Known> {
        let word = self.word(page)?;
        match word.load(Ordering::Relaxed) {
            0 => None,
            _ => {
                let known = known(word.swap(0, Ordering::AcqRel))?;
                self.count.fetch_sub(1, Ordering::Relaxed);
                Some(known)
            }
        }
    }

    /// Takes those of `pages` pages from `first` on.
    pub(super) fn take_all(&self, first: u64, pages: u64, mut taken: impl FnMut(u64, Known)) {
        let end = first.saturating_add(pages);
        let mut page = first;
        while page < end {
            let chunk = page as usize / CHUNK;
            match self.chunks.get(chunk) {
                None => return,
                Some(chunk_of) if chunk_of.get().is_none() => page = (chunk as u64 + 1) * CHUNK as u64,
                Some(_) => {
                    if let Some(known) = self.take(page) {
                        taken(page, known);
                    }
                    page += 1;
                }
            }
        }
    }

    /// All pages that donors have, with what they have.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Known)> + '_ {
        let chunks = self.chunks.iter().enumerate();
        chunks.flat_map(|(at, chunk)| {
            let words = chunk.get().map_or(&[][..], |words| words);
            let words = words.iter().enumerate();
            words.filter_map(move |(index, word)| {
                let known = known(word.load(Ordering::Acquire))?;
                Some(((at * CHUNK + index) as u64, known))
            })
        })
    }

    /// Donors have nothing any more.
    pub(super) fn clear(&self) {
        for word in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            self.lose_word(word);
        }
    }
}

fn known(word: u64) -> Option<Known> {
    let version = (word & VERSION) as u32;
    (version != 0).then_some(Known { version, is_on_disk: word & ON_DISK != 0, place: place(word >> PLACE) })
}

fn word_of(known: Known) -> u64 {
    let bit = if known.is_on_disk { ON_DISK } else { 0 };
    let place = known.place.map_or(0, |place| {
        let number = u64::from(place.frame) + 1;
        let fits = number >> FRAME_BITS == 0 && place.node.0 < 1 << 8;
        u64::from(fits) * (u64::from(place.node.0) << FRAME_BITS | number)
    });
    place << PLACE | bit | u64::from(known.version)
}

fn place(word: u64) -> Option<Place> {
    let frame = (word as u32 & ((1 << FRAME_BITS) - 1)).checked_sub(1)?;
    let node = NodeId((word >> FRAME_BITS) as u16);
    Some(Place { node, frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_whose_number_is_too_large_has_no_place() {
        let versions = Versions::new(1, Arc::default());
        let frame = (1 << FRAME_BITS) - 1;
        let known = Known { version: 3, is_on_disk: false, place: Some(Place { node: NodeId(1), frame }) };
        versions.set(0, known);
        let place = None;
        assert_eq!(versions.get(0), Some(Known { place, ..known }));
    }

    #[test]
    fn versions_are_kept_for_the_pages_that_have_one_and_go_when_taken() {
        let count = Arc::<AtomicU64>::default();
        let versions = Versions::new(1 << 28, Arc::clone(&count));
        let len = || count.load(Ordering::Relaxed);
        assert_eq!(versions.get(5), None);
        let (one, two) = (
            Known { version: 1, is_on_disk: true, place: None },
            Known {
                version: MAX_VERSION,
                is_on_disk: false,
                place: Some(Place { node: NodeId(255), frame: (1 << FRAME_BITS) - 2 }),
            },
        );
        versions.set(5, one);
        versions.set((1 << 28) - 1, two);
        // Behind the end: nothing.
        versions.set(1 << 28, one);
        assert_eq!(versions.get(5), Some(one));
        assert_eq!(versions.get(6), None);
        assert_eq!(versions.all().collect::<Vec<_>>(), [(5, one), ((1 << 28) - 1, two)]);
        versions.set(5, one);
        assert_eq!(len(), 2);
        let mut taken = Vec::new();
        versions.take_all(0, u64::MAX, |page, known| taken.push((page, known)));
        assert_eq!(taken, [(5, one), ((1 << 28) - 1, two)]);
        assert_eq!((versions.all().count(), len()), (0, 0));
        versions.set(7, two);
        versions.set(8, one);
        versions.clear();
        assert_eq!((versions.get(7), versions.get(8), len()), (None, None, 0));
        assert!(versions.is_lost(7) && !versions.is_lost(8));
        assert_eq!(versions.take(7), None);
        assert!(!versions.is_lost(7));
        versions.set(9, two);
        assert!(versions.is_kept(9));
        versions.salvage(9);
        assert!(!versions.is_kept(9) && !versions.is_lost(9) && versions.holds(9));
        versions.clear();
        assert_eq!((versions.get(9), versions.is_lost(9), len()), (None, false, 0));
        assert_eq!(versions.take(9), None);
        assert!(versions.is_kept(9) && !versions.holds(9));
    }
}
