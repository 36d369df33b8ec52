//! The region with the fewest lookups per page goes first.

use std::collections::{BTreeSet, HashMap};

use mapwire_translation::{Candidates, ChooseVictims, Page, PageRange};

/// Pages of a region: 256 KiB. A trace does not tell where a program's buffers start, so memory is cut evenly.
pub const REGION_PAGES: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Region {
    lookups: u64,
    /// A bit for each page that was ever used.
    used: u64,
    /// A bit for each page that is pinned.
    pinned: u64,
    /// When each page was used last.
    times: [u64; REGION_PAGES as usize],
}

impl Region {
    const NEW: Region = Region {
        lookups: 0,
        used: 0,
        pinned: 0,
        times: [0; REGION_PAGES as usize],
    };

    /// Lookups of a used page, in 65536ths.
    fn warmth(&self) -> u64 {
        let pages = u64::from(self.used.count_ones()).max(1);
        self.lookups.saturating_mul(1 << 16) / pages
    }
}

/// Unpins from the region that has had the fewest lookups per page that was ever used; within it the page used least recently.
#[derive(Debug, Default)]
pub struct Regions {
    regions: HashMap<u64, Region>,
    /// Regions with pinned pages, coldest first.
    order: BTreeSet<(u64, u64)>,
    time: u64,
}

impl Regions {
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Region)) {
        let region = self.regions.entry(number).or_insert(Region::NEW);
        let (before, had) = (region.warmth(), region.pinned != 0);
        change(region);
        let (after, has) = (region.warmth(), region.pinned != 0);
        if had && (!has || after != before) {
            self.order.remove(&(before, number));
        }
        if has && (!had || after != before) {
            self.order.insert((after, number));
        }
    }
}

fn bit(page: Page) -> u64 {
    1 << (page.0 % REGION_PAGES)
}

impl ChooseVictims for Regions {
    fn used(&mut self, pages: PageRange) {
        for page in pages {
            self.time += 1;
            let time = self.time;
            self.change(page.0 / REGION_PAGES, |region| {
                region.lookups += 1;
                region.used |= bit(page);
                region.times[(page.0 % REGION_PAGES) as usize] = time;
            });
        }
    }

    fn pinned(&mut self, pages: PageRange) {
        for page in pages {
            self.change(page.0 / REGION_PAGES, |region| region.pinned |= bit(page));
        }
    }

    fn unpinned(&mut self, page: Page) {
        self.change(page.0 / REGION_PAGES, |region| region.pinned &= !bit(page));
    }

    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        let mut missing = count as usize;
        for (_, number) in &self.order {
            if missing == 0 {
                return;
            }
            let Some(region) = self.regions.get(number) else {
                continue;
            };
            let pages = (0..REGION_PAGES).map(|at| Page(number * REGION_PAGES + at));
            let mut idle: Vec<_> = pages.filter(|page| candidates.contains(*page)).collect();
            idle.sort_unstable_by_key(|page| region.times[(page.0 % REGION_PAGES) as usize]);
            idle.truncate(missing);
            missing -= idle.len();
            victims.extend(idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::driven::unpinned;
    use super::*;

    #[test]
    fn the_region_with_fewest_lookups_per_page_loses_its_oldest_page() {
        // Region 0 has 3 lookups on one page, region 1 two pages with one each; region 2 wants room twice.
        let operations = [(0, 1), (0, 1), (0, 1), (70, 1), (65, 1), (128, 1), (129, 1)];
        assert_eq!(
            unpinned(3, Some(Box::<Regions>::default()), &operations),
            [70, 65]
        );
        assert_eq!(unpinned(3, None, &operations), [0, 70]);
    }

    #[test]
    fn an_operation_that_wants_more_than_a_region_takes_from_the_next() {
        let operations = [(0, 2), (0, 2), (64, 2), (64, 1), (1000, 1), (200, 4)];
        // Lookups per page: 2, 1.5 and 1.
        assert_eq!(
            unpinned(5, Some(Box::<Regions>::default()), &operations),
            [1000, 65, 64, 0]
        );
    }
}
