//! Which version of a page donors have, and where.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mapwire_gms::PageWord;

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

    fn find(&self, page: u64) -> Option<&AtomicU64> {
        self.chunks.get(page as usize / CHUNK)?.get()?.get(page as usize % CHUNK)
    }

    pub(super) fn word(&self, page: u64) -> PageWord {
        self.find(page).map_or(PageWord::NONE, |word| PageWord(word.load(Ordering::Acquire)))
    }

    /// Changes what is known of a page. One behind the end stays unknown.
    pub(super) fn set(&self, page: u64, word: PageWord) {
        let made = || (0..CHUNK).map(|_| AtomicU64::new(0)).collect();
        let Some(chunk) = self.chunks.get(page as usize / CHUNK) else { return };
        let of_page = &chunk.get_or_init(made)[page as usize % CHUNK];
        let was_known = PageWord(of_page.swap(word.0, Ordering::AcqRel)).known().is_some();
        match (was_known, word.known().is_some()) {
            (false, true) => _ = self.count.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.count.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Pages from `first` on, `count` at most, of which something is known.
    pub(super) fn known(&self, first: u64, count: u64) -> impl Iterator<Item = u64> + '_ {
        let range = first as usize..first.saturating_add(count) as usize;
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK).min(self.chunks.len());
        chunks.filter_map(|at| Some((at, self.chunks[at].get()?))).flat_map(move |(at, words)| {
            let pages = range.start.max(at * CHUNK)..range.end.min((at + 1) * CHUNK);
            let is_known = |page: &usize| words[page % CHUNK].load(Ordering::Acquire) != PageWord::NONE.0;
            pages.filter(is_known).map(|page| page as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use mapwire_gms::{Known, MAX_VERSION, Place};
    use mapwire_wire::NodeId;

    use super::*;

    #[test]
    fn a_word_is_kept_for_the_pages_of_which_something_is_known() {
        let count = Arc::<AtomicU64>::default();
        let versions = Versions::new(1 << 28, Arc::clone(&count));
        let len = || count.load(Ordering::Relaxed);
        let known = |first, count| versions.known(first, count).collect::<Vec<_>>();
        assert_eq!(versions.word(5), PageWord::NONE);
        let (one, two) = (
            PageWord::of(Known { version: 1, is_on_disk: true, place: None }),
            PageWord::of(Known {
                version: MAX_VERSION,
                is_on_disk: false,
                place: Some(Place { node: NodeId(255), frame: 7 }),
            }),
        );
        let last = (1 << 28) - 1;
        versions.set(5, one);
        versions.set(last, two);
        // Behind the end: nothing.
        versions.set(1 << 28, one);
        assert_eq!((versions.word(5), versions.word(6), versions.word(1 << 28)), (one, PageWord::NONE, PageWord::NONE));
        assert_eq!(known(0, u64::MAX), [5, last]);
        assert_eq!((known(5, 1), known(6, u64::MAX), known(0, 5)), (vec![5], vec![last], vec![]));
        versions.set(5, two);
        assert_eq!(len(), 2);
        versions.set(5, PageWord::LOST);
        assert_eq!((known(0, 6), len()), (vec![5], 1));
        versions.set(5, PageWord::NONE);
        versions.set(last, PageWord::SALVAGED);
        assert_eq!((known(0, u64::MAX), len()), (vec![last], 0));
    }
}
