//! Lookups with the rates that UTLB Table 4 prints.
//!
//! The traces of the seven applications are lost; the paper prints what they did to caches of five sizes. A stream has three kinds of
//! lookups, in the shares that follow from the table:
//!
//! * of a page that was never used: what UTLB's library finds not pinned. It takes a place of the cache that others have had, or one that
//!   is free, of each cache size as often as the table's unpins of the interrupt-based approach say;
//! * of one of two pages that lie in the same place of all caches up to a size, in turn: what a cache of that size misses and the next
//!   larger one does not;
//! * of the page that was used last: hits in every cache.
//!
//! Kinds follow each other as evenly as their shares allow; nothing is drawn.

use mapwire_study::published::{CACHE_SIZES, Paper, printed_rates, table};

const SIZES: usize = 5;
/// Kinds: fresh, a pair for each cache size, near.
const KINDS: usize = SIZES + 2;
/// Pages of the largest cache.
const LARGEST: u64 = 16 << 10;
/// Places of each 1024 that are left to pairs.
const PAIR_PLACES: u64 = 16;
/// The first pages of pairs, and of those that are used once.
const PAIRS: u64 = 2 * LARGEST;
const FRESH: u64 = 4 * LARGEST;

/// What the tables print of an application, in lookups of 100.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printed {
    pub(super) lookups: u64,
    check_misses: u64,
    nic_misses: [u64; SIZES],
    unpins: [u64; SIZES],
}

impl Printed {
    /// That of an application as Table 4 names it; `None` if the tables lack it.
    pub(super) fn of(application: &str) -> Option<Self> {
        let (mut nic_misses, mut unpins) = ([0; SIZES], [0; SIZES]);
        let mut check_misses = 0;
        for (at, (entries, _)) in CACHE_SIZES.into_iter().enumerate() {
            let rates = printed_rates("Table 4", entries, application)?;
            (nic_misses[at], unpins[at]) = (rates.intr_nic_misses, rates.intr_unpins);
            check_misses = rates.check_misses;
        }
        let row = match application {
            "Water" => "Water-spatial",
            other => other,
        };
        let sizes = table(Paper::Utlb, "Table 3")?;
        let row = sizes.rows.iter().find(|candidate| candidate.keys[0] == row)?;
        Some(Self { lookups: row.cells.last()?.value()? as u64, check_misses, nic_misses, unpins })
    }

    /// Lookups of each kind, of 100.
    fn shares(&self) -> [u64; KINDS] {
        let mut shares = [0; KINDS];
        shares[0] = self.check_misses;
        for size in 0..SIZES {
            let next = self.nic_misses.get(size + 1).unwrap_or(&self.check_misses);
            shares[size + 1] = self.nic_misses[size].saturating_sub(*next);
        }
        shares[KINDS - 1] = 100 - self.nic_misses[0];
        shares
    }

    /// Of the lookups of pages that were never used, how many take places that others have had: in no cache, then in caches up to each
    /// size. The others that the interrupt-based approach unpins are pairs.
    fn taken(&self) -> [u64; SIZES + 1] {
        let mut at_least = [0; SIZES + 1];
        for size in (0..SIZES).rev() {
            let of_pairs = self.nic_misses[size].saturating_sub(self.check_misses);
            let taken = self.unpins[size].saturating_sub(of_pairs);
            at_least[size] = taken.clamp(at_least[size + 1], self.check_misses);
        }
        let mut taken = [0; SIZES + 1];
        taken[0] = self.check_misses - at_least[0];
        for size in 0..SIZES {
            taken[size + 1] = at_least[size] - at_least[size + 1];
        }
        taken
    }
}

/// Kinds in turn, as evenly as their shares allow.
#[derive(Clone, Debug)]
struct Turns<const N: usize> {
    shares: [u64; N],
    /// How much each kind is behind its share.
    behind: [i64; N],
}

impl<const N: usize> Turns<N> {
    fn new(shares: [u64; N]) -> Self {
        let behind = [0; N];
        Self { shares, behind }
    }

    /// The kind that is most behind of those that can be.
    fn next(&mut self, mut can_be: impl FnMut(usize) -> bool) -> Option<usize> {
        for (behind, share) in self.behind.iter_mut().zip(self.shares) {
            *behind += share as i64;
        }
        let mut tried = [false; N];
        loop {
            let open = (0..N).filter(|&kind| !tried[kind] && self.shares[kind] > 0);
            let kind = open.max_by_key(|&kind| (self.behind[kind], N - kind))?;
            if can_be(kind) {
                self.behind[kind] -= self.shares.iter().sum::<u64>() as i64;
                return Some(kind);
            }
            tried[kind] = true;
        }
    }
}

/// Pages that are used once.
#[derive(Clone, Debug)]
struct Fresh {
    turns: Turns<{ SIZES + 1 }>,
    /// Of each cache size, the places that were taken.
    had: [Vec<bool>; SIZES],
    /// Where the search of each kind goes on, and how many pages it is left out after one in vain.
    next: [(u64, u32); SIZES + 1],
    /// How often each place of the largest cache has been taken.
    times: Vec<u64>,
}

impl Fresh {
    fn new(printed: &Printed) -> Self {
        Self {
            turns: Turns::new(printed.taken()),
            had: std::array::from_fn(|size| vec![false; 1024 << size]),
            next: [(0, 0); SIZES + 1],
            times: vec![0; LARGEST as usize],
        }
    }

    /// The next place that was had in the first `kind` cache sizes, and in no other.
    fn place(had: &[Vec<bool>; SIZES], next: &mut (u64, u32), kind: usize) -> Option<u64> {
        if next.1 > 0 {
            next.1 -= 1;
            return None;
        }
        for _ in 0..LARGEST {
            let place = next.0;
            next.0 = (place + 1) % LARGEST;
            let fits = |(size, had): (usize, &Vec<bool>)| had[place as usize % had.len()] == (size < kind);
            if place % 1024 >= PAIR_PLACES && had.iter().enumerate().all(fits) {
                return Some(place);
            }
        }
        next.1 = 100;
        None
    }

    fn page(&mut self) -> u64 {
        let Self { turns, had, next, .. } = self;
        let mut found = None;
        turns.next(|kind| {
            found = Self::place(had, &mut next[kind], kind);
            found.is_some()
        });
        // Any, if no cache has such a place any more.
        let place = found.unwrap_or(PAIR_PLACES);
        for had in &mut self.had {
            let at = place as usize % had.len();
            had[at] = true;
        }
        let times = &mut self.times[place as usize];
        *times += 1;
        FRESH + (*times - 1) * LARGEST + place
    }
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    turns: Turns<KINDS>,
    fresh: Fresh,
    pairs: [u64; SIZES],
    last: u64,
    left: u64,
}

impl Stream {
    /// A stream of so many lookups.
    pub(super) fn new(printed: &Printed, lookups: u64) -> Self {
        Self {
            turns: Turns::new(printed.shares()),
            fresh: Fresh::new(printed),
            pairs: [0; SIZES],
            last: FRESH,
            left: lookups,
        }
    }
}

impl Iterator for Stream {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let kind = self.turns.next(|_| true)?;
        self.last = match kind {
            0 => self.fresh.page(),
            near if near == KINDS - 1 => self.last,
            pair => {
                let size = pair - 1;
                self.pairs[size] += 1;
                let distance = 1024 << size;
                PAIRS + 2 * size as u64 + self.pairs[size] % 2 * distance
            }
        };
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_come_in_their_shares() {
        let printed = Printed::of("FFT").unwrap();
        assert_eq!(printed.lookups, 43_132);
        assert_eq!(printed.shares(), [25, 0, 1, 3, 8, 13, 50]);
        assert_eq!(printed.taken(), [1, 1, 1, 3, 7, 12]);
        let pages: Vec<u64> = Stream::new(&printed, 10_000).collect();
        let (fresh, pairs): (Vec<u64>, Vec<u64>) = pages.iter().partition(|&&page| page >= FRESH);
        let distinct = |pages: &[u64]| pages.iter().collect::<BTreeSet<_>>().len();
        assert!(distinct(&fresh).abs_diff(2_500) <= 1);
        assert_eq!(distinct(&pairs), 8, "one pair for each size that the table tells apart");
    }

    #[test]
    fn the_tables_have_all_seven_applications() {
        for application in mapwire_study::published::APPLICATIONS {
            let printed = Printed::of(application).unwrap();
            assert_eq!(printed.shares().iter().sum::<u64>(), 100, "{application}");
            assert_eq!(printed.taken().iter().sum::<u64>(), printed.shares()[0]);
        }
    }
}
