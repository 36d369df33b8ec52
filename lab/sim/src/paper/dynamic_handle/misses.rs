//! Misses of the VMH cache (Figure 5): the design of the firmware translates what applications move.

use mapwire_translation::{
    CacheConfig, CacheError, DynamicHandle, DynamicHandleConfig, Frame, HandleCounters, HostRequest, Lookup, Page,
    Process, TranslationDesign,
};

use super::patterns::Access;

/// A shape of the cache, as Table III has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) entries: usize,
    pub(super) line: usize,
    pub(super) ways: usize,
}

/// The shape that §V.C calls the best tradeoff.
pub(super) const BEST: Shape = Shape { entries: 16 << 10, line: 64, ways: 4 };

/// Entries of the smallest caches.
pub(super) const SMALL: usize = 8 << 10;

impl Shape {
    /// The 36 of Figure 5, left to right.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [8, 16, 32].into_iter().flat_map(|kilo: usize| {
            [8, 16, 64, 128]
                .into_iter()
                .flat_map(move |line| [2, 4, 8].into_iter().map(move |ways| Self { entries: kilo << 10, line, ways }))
        })
    }

    /// Its name in Figure 5.
    pub(super) fn name(self) -> String {
        format!("C{}.L{}.A{}", self.entries >> 10, self.line, self.ways)
    }

    /// The design with a cache of that shape.
    pub(super) fn config(self) -> DynamicHandleConfig {
        let cache = CacheConfig::default()
            .with_entries(self.entries)
            .with_ways(self.ways)
            .with_line_entries(self.line)
            .with_offset_per_process(false);
        DynamicHandleConfig::default().with_cache(cache)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Misses {
    pub(super) lookups: u64,
    pub(super) counters: HandleCounters,
}

impl Misses {
    pub(super) fn all(&self) -> u64 {
        let HandleCounters { send_cold_misses, send_other_misses, receive_cold_misses, receive_other_misses, .. } =
            self.counters;
        send_cold_misses + send_other_misses + receive_cold_misses + receive_other_misses
    }

    /// Misses that no larger cache would avoid.
    pub(super) fn cold(&self) -> u64 {
        self.counters.send_cold_misses + self.counters.receive_cold_misses
    }

    /// So many of the lookups, in thousandths of a percent.
    pub(super) fn percent(&self, count: u64) -> i64 {
        (100_000 * count / self.lookups.max(1)) as i64
    }
}

/// Lets the design translate all accesses of a process, the host bringing in each line that misses.
pub(super) fn misses(accesses: &[Access], shape: Shape) -> Result<Misses, CacheError> {
    let process = Process(0);
    let mut design = DynamicHandle::new(shape.config())?;
    // A design that was just made has no process.
    let _ = design.open(process);
    let mut evicted = Vec::new();
    for access in accesses {
        let page = Page(access.page);
        // A miss, then a hit.
        for _ in 0..2 {
            let lookup =
                if access.receives { design.lookup_receive(process, page) } else { design.lookup(process, page) };
            let Lookup::Host(HostRequest::Fill { pages, .. }) = lookup else { break };
            for page in pages {
                if design.installed(process, page).is_garbage() {
                    // The page is of the address space, and the process is open.
                    let _ = design.install(process, page, Frame(page.0));
                }
            }
            design.fill(process, pages, &mut evicted);
            evicted.clear();
        }
    }
    Ok(Misses { lookups: accesses.len() as u64, counters: design.counters().handles })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pages: impl Iterator<Item = u64>, shape: Shape) -> Misses {
        let accesses: Vec<_> = pages.map(|page| Access { page, receives: page % 2 == 0 }).collect();
        misses(&accesses, shape).unwrap()
    }

    #[test]
    fn a_walk_misses_once_a_line_and_a_second_walk_only_if_it_does_not_fit() {
        let shape = Shape { entries: 8 << 10, line: 8, ways: 4 };
        let fits = run((0..4096).chain(0..4096), shape);
        assert_eq!((fits.lookups, fits.cold(), fits.all()), (8192, 512, 512));
        let too_large = run((0..16384).chain(0..16384), shape);
        assert_eq!((too_large.cold(), too_large.all()), (2048, 4096));
        assert_eq!(too_large.percent(too_large.all()), 12_500);
    }

    #[test]
    fn figure_5_has_36_shapes() {
        let names: Vec<_> = Shape::all().map(Shape::name).collect();
        assert_eq!(names.len(), 36);
        assert_eq!((names[0].as_str(), names[35].as_str()), ("C8.L8.A2", "C32.L128.A8"));
        assert!(names.contains(&BEST.name()));
    }
}
