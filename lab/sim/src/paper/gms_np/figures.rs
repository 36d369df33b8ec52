//! The paper's Figures 5 and 6, and what its text states about them.

use mapwire_gms::{CheckPoints, RowSize};

use super::bench::Lookup;
use super::tables::Tables;
use crate::directory::{HostLoad, MachineError, Placement};
use crate::hardware::{Cost, Lane, Ps};
use crate::paper::numbers::{count, one_decimal, tenths, us};
use crate::paper::{Cell, Figure, Group, Line, Plot, Role, Table};

use Role::{Input, Predicted};

/// All row sizes, smallest first.
pub(super) const ROW_SIZES: [RowSize; 3] = [RowSize::Eight, RowSize::ThirtyTwo, RowSize::SixtyFour];

/// Places of a chain that are looked up.
pub(super) const PLACES: usize = 128;

/// When the entry was found, from the begin of programming the first DMA (GMS-NP Figure 6).
fn fetch_and_scan(tables: &Tables, lookup: &Lookup) -> i64 {
    let at = |label| {
        let mut spans = lookup.spans.iter();
        let is_it = move |lane, name| lane == Lane::Nic && name == label;
        spans.find(move |span| is_it(span.lane, span.label))
    };
    let (decoded, found) = (at("decodes"), at("prepares"));
    let took = decoded.zip(found).map(|(from, to)| to.from_ps - from.to_ps);
    us(took.unwrap_or(0) + tables.profile.of(Cost::DmaSetup))
}

/// The first place of a chain, counted from 1, from which on `is_so` holds up to the last.
pub(super) fn from_place(places: usize, is_so: impl Fn(usize) -> bool) -> Option<i64> {
    let others = (0..places).rev().take_while(|&place| is_so(place)).count();
    (others > 0).then(|| (places - others + 1) as i64)
}

impl Tables {
    /// Figure 5, and a table of what §4.2 says about it.
    pub(super) fn figure_5(&self) -> Result<(Figure, Table), MachineError> {
        let keys = ["system", "step"];
        let caption = "steps of a getpage on the directory node, as §4.2 states them";
        let mut table = Table::new("Figure 5", caption, "us", &keys, &["time"]);
        let mut groups = Vec::new();
        for placement in Placement::ALL {
            let lookup = self.bench(placement, HostLoad::Idle).lookup()?;
            let nic = |labels: &[&str]| us(lookup.took(labels));
            let locates = nic(&["looks up", "scans", "programs DMA"]);
            let prepares = nic(&["prepares"]);
            let mut row = |step, ours, theirs, role| {
                let cell = Cell::beside(ours, tenths(theirs), role);
                table.row(&[placement.name(), step], vec![cell]);
            };
            match placement {
                Placement::Host => {
                    row("interrupt after", us(lookup.nic_ps), 6_500, Input);
                    row("host completes after", us(lookup.host_ps), 21_500, Input);
                }
                Placement::NicHostMemory => {
                    row("decodes", nic(&["decodes"]), 4_000, Input);
                    row("locates the entry", locates, 4_500, Predicted);
                    row("prepares the message", prepares, 5_000, Predicted);
                }
                Placement::NicMemory => {
                    row("locates the entry", locates, 3_500, Input);
                    row("prepares the message", prepares, 2_500, Input);
                }
            }
            let name = placement.name().to_owned();
            let spans = lookup.spans;
            groups.push(Group { name, spans });
        }
        table.note("§4.2 says 21.5 us, Table 1 20.5 us; the machine has Table 1's.");
        let longer = Self { row_size: RowSize::SixtyFour, ..self.clone() };
        let lookup = longer.bench(Placement::NicHostMemory, HostLoad::Idle).lookup()?;
        let milli = us(lookup.took(&["prepares"]));
        table.note(&format!(
            "Preparing the message takes 2.5 us, twice that during a DMA. The DMA of the prototype's rows of 32 entries (§4.5) ends before the message is ready; the paper does not say what slows the rest. With rows of 64, whose DMA lasts throughout, it takes {} us.",
            one_decimal(milli)
        ));
        let figure = Figure {
            name: "Figure 5",
            caption: "getpage lookup on the directory node".to_owned(),
            x: "us since the request's first byte",
            y: "",
            plot: Plot::Spans(groups),
        };
        Ok((figure, table))
    }

    /// The last entry whose lookup is no slower on the NIC than on a host with cold caches, if DMA waits so long for its memory.
    fn beats_cold_host(&self, wait_ps: Ps) -> Result<i64, MachineError> {
        let lookups = |placement| {
            let mut bench = self.bench(placement, HostLoad::Cold);
            bench.profile = bench.profile.with(Cost::BusWaitCold, wait_ps);
            bench.lookups(PLACES)
        };
        let (nic, host) = (lookups(Placement::NicHostMemory)?, lookups(Placement::Host)?);
        let first = from_place(PLACES, |at| nic[at].total_ps() > host[at].total_ps());
        Ok(first.map_or(PLACES as i64, |place| place - 1))
    }

    /// Figure 6, and a table of what §4.4 and §4.5 say about it.
    pub(super) fn figure_6(&self) -> Result<(Figure, Table), MachineError> {
        let profile = &self.profile;
        let setup = profile.of(Cost::DmaSetup);
        let fetch = |entries: u64| us(setup + profile.dma(32 * entries));
        let points = |value: &dyn Fn(usize) -> i64| {
            let point = |place: usize| (place as i64 + 1, value(place));
            (0..PLACES).map(point).collect::<Vec<_>>()
        };
        let mut lines = vec![Line { name: "fetch".to_owned(), points: points(&|place| fetch(place as u64 + 1)) }];
        let mut took = Vec::new();
        for row_size in ROW_SIZES {
            let of_size = Self { row_size, profile: profile.clone().with(Cost::NicLookup, 0), ..self.clone() };
            let lookups = of_size.bench(Placement::NicHostMemory, HostLoad::Idle).lookups(PLACES)?;
            let times: Vec<i64> = lookups.iter().map(|lookup| fetch_and_scan(&of_size, lookup)).collect();
            lines.push(Line {
                name: format!("fetch + scan, {}-entry rows", row_size.entries()),
                points: points(&|place| times[place]),
            });
            took.push(times);
        }
        let keys = ["what", "unit"];
        let caption = "what §4.4 and §4.5 state about fetching and scanning rows";
        let mut table = Table::new("Figure 6", caption, "", &keys, &["value"]);
        let mut row = |what: &str, unit: &str, ours, theirs, role| {
            table.row(&[what, unit], vec![Cell::beside(ours, theirs, role)]);
        };
        row("fetch of 16 entries", "us", fetch(16), tenths(4_900), Input);
        row("fetch of 32 entries", "us", fetch(32), tenths(8_900), Input);
        let in_dma = profile.of(Cost::NicScanInDma);
        let block = profile.of(Cost::DmaBlock);
        let ratio = (in_dma * 1000 / block.max(1)) as i64;
        row("entries that come while one is scanned", "", ratio, tenths(6_400), Input);
        let checks = CheckPoints::new(block / 1000, in_dma / 1000, 64);
        let last = checks.last().map_or(0, |entries| entries as i64);
        row("last check of a row of 64, behind entry", "", 1000 * last, count(37), Predicted);
        let least = (0..PLACES).take_while(|&at| took[0][at] <= took[1][at]).count() as i64;
        row("8-entry rows are best up to entry", "", 1000 * least, count(9), Predicted);
        let better = |at: &usize| took[2][*at] < took[1][*at];
        let behind = (0..PLACES).rev().take_while(better);
        let first = (PLACES - behind.count()) as i64;
        row("64-entry rows are better beyond entry", "", 1000 * first, count(96), Predicted);
        let wait_ps = profile.of(Cost::BusWaitCold);
        let (of_use, at_once) = (self.beats_cold_host(wait_ps)?, self.beats_cold_host(0)?);
        row("the NIC beats a cold host up to entry", "", 1000 * of_use, count(96), Predicted);
        table.note("The fetches, and how many entries come while one is scanned, are sums and a ratio of §4.4's 0.9, 0.25 and 1.6 us, which are input.");
        table.note(&format!(
            "At entry 9 both row sizes take the same within {} ns: programming a second DMA costs what the first row's longer DMA costs in slowness.",
            took[0][8] - took[1][8]
        ));
        table.note(&format!(
            "The NIC beats a cold host up to entry {of_use} only because each row's DMA waits for the memory of that host; if none waited, it would up to entry {at_once}.",
        ));
        table.note("The machine's lookup is shown without what it takes besides its entries (2.3 us), which §4.4 does not count.");
        let early: Vec<usize> = (0..first as usize).filter(better).collect();
        if let (Some(from), Some(to)) = (early.first(), early.last()) {
            table.note(&format!(
                "64-entry rows are also better somewhere from entry {} to {}, as 32-entry rows begin their second row earlier; the paper does not say so.",
                from + 1,
                to + 1
            ));
        }
        let figure = Figure::lines("Figure 6", "fetching and scanning rows of the directory", ("entries", "us"), lines);
        Ok((figure, table))
    }
}
