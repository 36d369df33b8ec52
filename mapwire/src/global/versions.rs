//! Which version of a page donors have, and where.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mapwire_gms::{Known, PageWord};

/// Pages whose versions are made room for together.
const CHUNK: usize = 1 << 15;

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
        self.chunks.get(page as usize / CHUNK)?.get()?.get(page as usize % CHUNK)
    }

    pub(super) fn get(&self, page: u64) -> Option<Known> {
        self.page(page).known()
    }

    pub(super) fn page(&self, page: u64) -> PageWord {
        self.word(page).map_or(PageWord::NONE, |word| PageWord(word.load(Ordering::Acquire)))
    }

    /// Changes what is known of a page, unless nothing was.
    fn change(&self, page: u64, change: impl FnOnce(PageWord) -> PageWord) -> Option<Known> {
        self.change_word(self.word(page)?, change)
    }

    fn change_word(&self, word: &AtomicU64, change: impl FnOnce(PageWord) -> PageWord) -> Option<Known> {
        let before = PageWord(word.load(Ordering::Relaxed));
        if before == PageWord::NONE {
            return None;
        }
        let known = PageWord(word.swap(change(before).0, Ordering::AcqRel)).known()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(known)
    }

    /// Donors have a page no more, and the disk has what was read in its place.
    pub(super) fn salvage(&self, page: u64) {
        self.change(page, |_| PageWord::SALVAGED);
    }

    /// Donors have a page no more: what the disk has, if that is the same version, or nothing.
    pub(super) fn lose(&self, page: u64) {
        self.change(page, PageWord::without_donors);
    }

    pub(super) fn set(&self, page: u64, known: Known) {
        let made = || (0..CHUNK).map(|_| AtomicU64::new(0)).collect();
        if let Some(chunk) = self.chunks.get(page as usize / CHUNK) {
            let word = &chunk.get_or_init(made)[page as usize % CHUNK];
            let is_new = PageWord(word.swap(PageWord::of(known).0, Ordering::AcqRel)).known().is_none();
            self.count.fetch_add(u64::from(is_new), Ordering::Relaxed);
        }
    }

    /// Donors have nothing of the page that anybody wants; what they had.
    pub(super) fn take(&self, page: u64) -> Option<Known> {
        self.change(page, |_| PageWord::NONE)
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
        self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            chunk.get().map_or(&[][..], |words| words).iter().enumerate().filter_map(move |(index, word)| {
                let known = PageWord(word.load(Ordering::Acquire)).known()?;
                Some(((at * CHUNK + index) as u64, known))
            })
        })
    }

    pub(super) fn clear(&self) {
        for word in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            self.change_word(word, PageWord::without_donors);
        }
    }
}

#[cfg(test)]
mod tests {
    use mapwire_gms::{MAX_VERSION, Place};
    use mapwire_wire::NodeId;

    use super::*;

    #[test]
    fn versions_are_kept_for_the_pages_that_have_one_and_go_when_taken() {
        let count = Arc::<AtomicU64>::default();
        let versions = Versions::new(1 << 28, Arc::clone(&count));
        let len = || count.load(Ordering::Relaxed);
        assert_eq!(versions.get(5), None);
        let (one, two) = (
            Known { version: 1, is_on_disk: true, place: None },
            Known { version: MAX_VERSION, is_on_disk: false, place: Some(Place { node: NodeId(255), frame: 7 }) },
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
        assert!(versions.page(7) == PageWord::LOST && versions.page(8) == PageWord::NONE);
        assert_eq!(versions.take(7), None);
        assert_eq!(versions.page(7), PageWord::NONE);
        versions.set(9, two);
        versions.salvage(9);
        assert_eq!(versions.page(9), PageWord::SALVAGED);
        versions.clear();
        assert_eq!((versions.page(9), len()), (PageWord::SALVAGED, 0));
        assert_eq!(versions.take(9), None);
        assert_eq!(versions.page(9), PageWord::NONE);
    }
}
