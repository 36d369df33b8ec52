//! Figure 5: miss ratios of the VMH cache, for each application and shape, and what §V.C says of them.

use mapwire_translation::CacheError;

use super::misses::{BEST, Misses, SMALL, Shape, misses};
use super::patterns::{Application, sort};
use crate::paper::{Cell, Figure, Line, Table};

/// The misses of all applications with all shapes: by application, then by shape.
#[derive(Debug)]
pub(super) struct Ratios {
    names: Vec<&'static str>,
    shapes: Vec<Shape>,
    counts: Vec<Vec<Misses>>,
}

/// Those of which §V.C says that they miss much.
pub(super) const LARGE: [&str; 3] = ["FFT", "LUContiguous", "Radix"];

/// The highest labels of the axes of Figure 5, in thousandths of a percent.
const AXES: [(&str, i64); 8] = [
    ("FFT", 40_000),
    ("Radix", 15_000),
    ("WaterNsquared", 1_900),
    ("Raytrace", 950),
    ("LUContiguous", 30_000),
    ("Ocean", 1_900),
    ("Volrend", 950),
    ("WaterSpatial", 3_000),
];

impl Ratios {
    /// Lets all applications run with all shapes.
    pub(super) fn new(applications: &[Application]) -> Result<Self, CacheError> {
        let shapes: Vec<Shape> = Shape::all().collect();
        let of = |application: &Application| {
            shapes.iter().map(|&shape| misses(&application.accesses, shape)).collect::<Result<Vec<_>, _>>()
        };
        let counts = applications.iter().map(of).collect::<Result<_, _>>()?;
        Ok(Self { names: applications.iter().map(|it| it.name).collect(), shapes, counts })
    }

    /// The misses of an application by number, with each shape.
    pub(super) fn of(&self, application: usize) -> impl Iterator<Item = (Shape, Misses)> {
        self.shapes.iter().copied().zip(self.counts[application].iter().copied())
    }

    fn named(&self, name: &str, shape: Shape) -> Misses {
        let application = self.names.iter().position(|it| *it == name);
        let at = self.shapes.iter().position(|it| *it == shape);
        match (application, at) {
            (Some(application), Some(at)) => self.counts[application][at],
            _ => Misses::default(),
        }
    }

    fn ratio(&self, name: &str, shape: Shape) -> i64 {
        let counts = self.named(name, shape);
        counts.percent(counts.all())
    }

    /// The least and the greatest ratio of an application.
    fn range(&self, name: &str) -> (i64, i64) {
        let ratios = || self.shapes.iter().map(|&shape| self.ratio(name, shape));
        (ratios().min().unwrap_or(0), ratios().max().unwrap_or(0))
    }

    /// All miss ratios, and those of the best shape by path and kind.
    pub(super) fn tables(&self) -> Vec<Table> {
        let caption =
            "misses of the VMH cache in % of lookups, by shape: entries in K, entries of a line, lines of a set";
        let mut all = Table::new("Figure 5", caption, "%", &["cache"], &self.names);
        for (at, shape) in self.shapes.iter().enumerate() {
            let cells = self.counts.iter().map(|of| of[at].percent(of[at].all()));
            all.row(&[&shape.name()], cells);
        }
        all.note("The bars of the paper's Figure 5 have no numbers; `Figure 5, as described` compares what the text says of them.");
        all.note("The accesses are those of kernels with the structure of the applications; the paper's traces and problem sizes are not public.");
        let caption = format!("misses by path and kind with {}, in % of lookups", BEST.name());
        let columns = ["cold send", "cold receive", "other send", "other receive"];
        let mut parts = Table::new("Misses by path", &caption, "%", &["application"], &columns);
        for name in &self.names {
            let counts = self.named(name, BEST);
            let of = counts.counters;
            let cells = [of.send_cold_misses, of.receive_cold_misses, of.send_other_misses, of.receive_other_misses];
            let cells = cells.map(|count| Cell::new(counts.percent(count)));
            parts.row(&[name], cells.to_vec());
        }
        vec![all, parts, self.described()]
    }

    /// The highest ratios, beside the highest labels of the paper's axes, and those of sorts into other numbers of buckets.
    pub(super) fn highest(&self, seed: u64) -> Result<Table, CacheError> {
        let caption = "highest miss ratio over all caches, and the highest label of the paper's axis, which ends above its highest bar";
        let columns = ["here", "axis ends"];
        let mut table = Table::new("Figure 5, highest", caption, "%", &["application"], &columns);
        for name in &self.names {
            let top = AXES.iter().find(|axis| axis.0 == *name).map_or(Cell::NONE, |axis| Cell::new(axis.1));
            table.row(&[name], vec![Cell::new(self.range(name).1), top]);
        }
        for buckets in [16, 64, 1024] {
            let accesses = sort(seed, buckets);
            let ratio = |&shape: &Shape| {
                let counts = misses(&accesses, shape)?;
                Ok(counts.percent(counts.all()))
            };
            let ratios = self.shapes.iter().map(ratio).collect::<Result<Vec<_>, CacheError>>()?;
            let highest = ratios.into_iter().max().unwrap_or(0);
            let name = format!("Radix, {buckets} buckets");
            table.row(&[&name], vec![Cell::new(highest), Cell::NONE]);
        }
        table.note("Radix misses more here than on the paper's axis with lines of 64 and 128 entries, but not with 32 K entries: keys fill all buckets at once, and a cache with fewer lines than buckets (8 K entries have 128 lines of 64) misses at nearly each new page. Fewer buckets lower that, more raise it; the paper does not say how many it had. With lines of 8 and 16 entries it stays within the axis, except with 8 K entries and 2 ways. FFT and LUContiguous, whose geometry follows from their blocks, come close.");
        table.note("Ocean's borders take a line each: with lines of 64 entries they do not fit into 8 K entries, with lines of 128 not into 16 K. §V.C says that of lines of 64 in both, but of fewer misses: how often Ocean relaxes on how many grids is assumed here.");
        Ok(table)
    }

    /// What §V.C says of the figure, with what ours says of it.
    fn described(&self) -> Table {
        let caption = "what §V.C says of Figure 5, and whether it is so here";
        let mut table =
            Table::new("Figure 5, as described", caption, "", &["the paper", "here", "measure"], &["value"]);
        let mut row = |said: &str, holds, measure: &str, milli| table.said(said, holds, measure, milli);
        let most = |name: &&&str| self.range(name).1;
        let highest = self.names.iter().map(|name| self.range(name).1).max().unwrap_or(0);
        row("misses lie between 0 and 40 %", highest <= 40_000, "highest ratio, %", highest);
        let small = || self.names.iter().filter(|name| !LARGE.contains(name));
        let least_large = LARGE.iter().map(|name| self.range(name).1).min().unwrap_or(0);
        for name in small() {
            let (_, top) = self.range(name);
            let said = format!("{name} stays within 0 to 2 %");
            row(&said, top <= 2_000, "highest ratio, %", top);
        }
        row(
            "FFT, LUContiguous and Radix miss much more",
            small().all(|name| most(&name) < least_large),
            "least of their highest ratios, %",
            least_large,
        );
        let shape = |kilo: usize, line, ways| Shape { entries: kilo << 10, line, ways };
        let falls = |name: &&&str| {
            [8, 16, 32].into_iter().all(|kilo| {
                let ratios = [8, 16, 64, 128].map(|line| self.ratio(name, shape(kilo, line, 4)));
                ratios.windows(2).all(|pair| pair[1] <= pair[0])
            })
        };
        let shorter = self.names.iter().filter(falls).count();
        row(
            "longer lines miss less, for most applications",
            2 * shorter > self.names.len(),
            "applications of 8, in 4 ways of every size",
            1000 * shorter as i64,
        );
        for name in ["FFT", "LUContiguous"] {
            let remains = [2, 4, 8].map(|ways| {
                let (small, large) = (shape(16, 128, ways), shape(32, 128, ways));
                1000 * self.ratio(name, large) / self.ratio(name, small).max(1)
            });
            let most = remains.into_iter().max().unwrap_or(0);
            let said = format!("{name} with L128: 32 K entries miss less than half as often as 16 K");
            row(&said, most < 500, "ratio with 32 K / ratio with 16 K, most", most);
        }
        let saved = |name: &str, from: Shape, ways| self.ratio(name, from) - self.ratio(name, Shape { ways, ..from });
        let of_ways = |ways| self.shapes.iter().filter(move |shape| shape.ways == ways);
        let gains = |name: &&&str| of_ways(2).any(|&from| saved(name, from, 4) > 0);
        let gaining = self.names.iter().filter(gains).count();
        row(
            "2 to 4 ways help most applications",
            2 * gaining > self.names.len(),
            "applications of 8 that gain with any cache",
            1000 * gaining as i64,
        );
        let all_saved = |from, to, is_meant: fn(&Shape) -> bool| -> i64 {
            let shapes = of_ways(from).filter(|shape| is_meant(shape));
            let of = |&shape: &Shape| self.names.iter().map(move |name| saved(name, shape, to));
            shapes.flat_map(of).sum()
        };
        let (by_four, by_eight) = (all_saved(2, 4, |_| true), all_saved(4, 8, |_| true));
        row("4 to 8 ways help less than 2 to 4", by_eight < by_four, "saved by 8 ways, sum of all ratios, %", by_eight);
        let in_small = all_saved(2, 4, |shape| shape.entries == SMALL && shape.line <= 16);
        row(
            "ways matter mostly with few entries and short lines",
            2 * in_small > by_four,
            "part of what 4 ways save with C8 and L8 or L16, %",
            100_000 * in_small / by_four.max(1),
        );
        let others = |kilo, line| {
            let counts = self.named("Ocean", shape(kilo, line, 4));
            counts.all() - counts.cold()
        };
        row(
            "Ocean's non-cold misses more than double from L16 to L64 with C8 and C16",
            [8, 16].into_iter().all(|kilo| others(kilo, 64) > 2 * others(kilo, 16)),
            "non-cold misses, C16.L64.A4",
            1000 * others(16, 64) as i64,
        );
        table.note("With 4 ways only Radix and LUContiguous miss less than with 2: most of the other kernels fit into the smallest cache. `Figure 5, highest` says why Radix and Ocean are off.");
        table
    }

    /// The figure: a line for each application over the shapes.
    pub(super) fn figure(&self) -> Figure {
        let line = |(name, counts): (&&str, &Vec<Misses>)| {
            let points = (1..).zip(counts).map(|(x, counts)| (x, counts.percent(counts.all())));
            Line { name: (*name).to_owned(), points: points.collect() }
        };
        Figure::lines(
            "Figure 5",
            "misses of the VMH cache, by application and shape",
            ("shape, in the order of the table", "% of lookups"),
            self.names.iter().zip(&self.counts).map(line),
        )
    }
}
