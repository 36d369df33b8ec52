//! The pages that memory lies on, and sets of them.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use crate::spread::Spread;

/// Bytes of a page unless a trace says otherwise.
pub const PAGE_BYTES: u64 = 4096;

const CHUNK_PAGES: u64 = 512;
/// Runs of more pages are kept as runs, not page by page.
const WIDE_PAGES: u64 = 1 << 24;

/// The pages that `bytes` bytes from `address` on lie on: the first, and how many; none for no bytes. Memory that would reach
/// beyond the end of the address space ends there. `page_bytes` is a power of two.
pub const fn pages_of(address: u64, bytes: u64, page_bytes: u64) -> (u64, u64) {
    let shift = page_bytes.trailing_zeros();
    let first = address >> shift;
    if bytes == 0 {
        return (first, 0);
    }
    let last = address.saturating_add(bytes - 1) >> shift;
    (first, last - first + 1)
}

/// Cuts memory at the borders of pages: the address and the bytes of each part. Memory that would reach beyond the end of the address
/// space ends there.
pub fn cut(address: u64, bytes: u64, page_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let last = address.saturating_add(bytes.saturating_sub(1));
    let (first, pages) = pages_of(address, bytes, page_bytes);
    (first..first + pages).map(move |page| {
        let begin = (page * page_bytes).max(address);
        let end = (page * page_bytes + (page_bytes - 1)).min(last);
        (begin, end - begin + 1)
    })
}

/// A set of pages. Its memory grows with the pages in it (at worst 100 bytes each, an eighth of a byte where they are
/// dense), not with how often they are put in.
#[derive(Debug, Default)]
pub struct PageSet {
    /// A bit for each page, by the page's number ÷ 512.
    chunks: HashMap<u64, [u64; 8], BuildHasherDefault<Spread>>,
    /// Long runs, apart from each other: first page → page behind the last.
    wide: BTreeMap<u64, u64>,
    last: Option<(u64, u64)>,
}

impl PageSet {
    /// Puts in `count` pages from `first` on.
    pub fn insert(&mut self, first: u64, count: u64) {
        // What a process used last it often uses next.
        if count == 0 || self.last == Some((first, count)) {
            return;
        }
        self.last = Some((first, count));
        if count > WIDE_PAGES {
            return self.insert_wide(first, first.saturating_add(count));
        }
        let end = first.saturating_add(count);
        let mut page = first;
        while page < end {
            let chunk = self.chunks.entry(page / CHUNK_PAGES).or_default();
            let chunk_end = (page / CHUNK_PAGES + 1).saturating_mul(CHUNK_PAGES).min(end);
            while page < chunk_end {
                let bit = page % CHUNK_PAGES;
                let word_end = (page | 63).saturating_add(1).min(chunk_end);
                let pages = word_end - page;
                chunk[(bit / 64) as usize] |= (u64::MAX >> (64 - pages)) << (bit % 64);
                page = word_end;
            }
        }
    }

    fn insert_wide(&mut self, mut first: u64, mut end: u64) {
        while let Some((&before, &before_end)) = self.wide.range(..=end).next_back() {
            if before_end < first {
                break;
            }
            self.wide.remove(&before);
            first = first.min(before);
            end = end.max(before_end);
        }
        self.wide.insert(first, end);
    }

    pub fn len(&self) -> u64 {
        let wide: u64 = self.wide.iter().map(|(first, end)| end - first).sum();
        let mut single = 0;
        for (chunk, words) in &self.chunks {
            for (index, word) in (0..).zip(words) {
                let page = chunk * CHUNK_PAGES + index * 64;
                single += u64::from((word & !self.wide_bits(page)).count_ones());
            }
        }
        wide + single
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.wide.is_empty()
    }

    /// Which of the 64 pages from `page` on are in long runs.
    fn wide_bits(&self, page: u64) -> u64 {
        let mut bits = 0;
        // Each is longer than 64 pages: two at most overlap these.
        for (first, end) in self.wide.range(..page.saturating_add(64)).rev().take(2) {
            let (from, to) = ((*first).max(page), (*end).min(page.saturating_add(64)));
            if from < to {
                bits |= (u64::MAX >> (64 - (to - from))) << (from - page);
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn memory_lies_on_the_pages_that_its_bytes_touch() {
        for (address, bytes, pages) in [
            (0, 0, (0, 0)),
            (5000, 0, (1, 0)),
            (4095, 1, (0, 1)),
            (4095, 2, (0, 2)),
            (4096, 4096, (1, 1)),
            (4097, 4096, (1, 2)),
            (u64::MAX, 1, (u64::MAX >> 12, 1)),
            (u64::MAX - 4096, u64::MAX, ((u64::MAX >> 12) - 1, 2)),
            (0, u64::MAX, (0, 1 << 52)),
        ] {
            assert_eq!(pages_of(address, bytes, 4096), pages, "{address}+{bytes}");
        }
        assert_eq!(pages_of(0x20_0000, 1, 0x20_0000), (1, 1));
        assert_eq!(pages_of(7, 3, 1), (7, 3));
    }

    #[test]
    fn memory_is_cut_at_the_borders_of_pages() {
        let parts = |address, bytes| cut(address, bytes, 4096).collect::<Vec<_>>();
        assert_eq!(parts(100, 0), []);
        assert_eq!(parts(4095, 2), [(4095, 1), (4096, 1)]);
        assert_eq!(parts(100, 8192), [(100, 3996), (4096, 4096), (8192, 100)]);
        assert_eq!(parts(u64::MAX - 1, 9), [(u64::MAX - 1, 2)]);
        assert_eq!(cut(7, 3, 1).collect::<Vec<_>>(), [(7, 1), (8, 1), (9, 1)]);
    }

    #[test]
    fn the_longest_runs_are_counted_at_once() {
        let mut set = PageSet::default();
        assert!(set.is_empty());
        set.insert(10, 1 << 51);
        set.insert(5, 10);
        set.insert((1 << 51) + 8, 4);
        assert_eq!(set.len(), 5 + (1 << 51) + 2);
        set.insert(1 << 50, 1 << 51);
        assert_eq!(set.len(), 5 + (1 << 50) + (1 << 51) - 10);
        set.insert(u64::MAX - (1 << 40), u64::MAX);
        assert_eq!(set.wide.len(), 2);
    }

    proptest! {
        #[test]
        fn a_set_counts_like_a_set(runs in prop::collection::vec((0..3000_u64, 0..700_u64), 0..40)) {
            let (mut set, mut oracle) = (PageSet::default(), BTreeSet::new());
            for (first, count) in runs {
                set.insert(first, count);
                oracle.extend(first..first + count);
                prop_assert_eq!(set.len(), oracle.len() as u64);
            }
            prop_assert_eq!(set.is_empty(), oracle.is_empty());
        }

        #[test]
        fn long_runs_and_single_pages_make_one_set(
            wide in prop::collection::vec((0..100_u64, 1..5_u64), 0..5),
            single in prop::collection::vec((0..100_u64, 0..200_u64), 0..20),
        ) {
            let mut set = PageSet::default();
            let mut ends = Vec::new();
            // Long runs in units of one more page than is kept page by page.
            let unit = WIDE_PAGES + 1;
            for (first, count) in wide {
                set.insert(first * unit, count * unit);
                ends.push((first * unit, (first + count) * unit));
            }
            for (at, count) in single {
                let first = (at * unit).saturating_sub(100);
                set.insert(first, count);
                ends.push((first, first + count));
            }
            ends.sort_unstable();
            let (mut total, mut reached) = (0, 0);
            for (first, end) in ends {
                let from = first.max(reached);
                total += end.saturating_sub(from);
                reached = reached.max(end);
            }
            prop_assert_eq!(set.len(), total);
        }
    }
}
