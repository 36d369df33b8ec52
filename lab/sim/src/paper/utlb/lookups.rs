//! Table 6: what a lookup costs, by running UTLB and the interrupt-based approach, and Table 4's rates as they come out.

use mapwire_study::published::{Paper, printed_rates, table};
use mapwire_translation::{CacheConfig, Counters, DesignConfig, InterruptConfig, PAGE_BYTES};

use super::constants::machine;
use super::stream::{Printed, Stream};
use crate::computers::{Computers, ComputersError, Do, FIRST_ADDRESS, Send, Shape};
use crate::hardware::Ps;
use crate::paper::numbers::{hundredths, us};
use crate::paper::vmmc::bench::at;
use crate::paper::{Cell, Figure, Line, Published, Role, Table};

use Role::Input;

/// Bytes of a transfer: more than a command carries, so that its page is looked up; within a page.
const BYTES: u64 = 256;
const SIZES: [(&str, usize); 3] = [("1K", 1 << 10), ("4K", 4 << 10), ("16K", 16 << 10)];
/// UTLB, and the interrupt-based approach.
const DESIGNS: [&str; 2] = ["UTLB", "Intr"];

#[derive(Clone, Copy, Debug)]
struct Outcome {
    counters: Counters,
    /// Of all lookups together: library, NIC, interrupts.
    took_ps: Ps,
}

impl Outcome {
    fn cost(&self) -> i64 {
        us(self.took_ps / self.counters.lookups.max(1))
    }

    /// So many of all lookups, in thousandths.
    fn rate(&self, count: u64) -> i64 {
        let lookups = self.counters.lookups.max(1);
        ((count * 2000 + lookups) / (2 * lookups)) as i64
    }
}

fn design(name: &str, entries: usize) -> DesignConfig {
    let cache = CacheConfig::default().with_entries(entries);
    match name {
        "UTLB" => DesignConfig::Hierarchical(cache.into()),
        _ => DesignConfig::Interrupt(InterruptConfig::default().with_cache(cache)),
    }
}

/// Sends from each page of a stream, one after the other.
fn outcome(printed: &Printed, name: &str, entries: usize) -> Result<Outcome, ComputersError> {
    let shape = Shape { design: design(name, entries), ..Shape::default() };
    let mut computers = Computers::new(machine(), shape)?;
    computers.export(at(1), "target", FIRST_ADDRESS, BYTES)?;
    let import = computers.import(at(0), at(1), "target")?;
    let pages = Stream::new(printed, printed.lookups);
    let sends = pages.map(move |page| Send { import, offset: 0, address: page * PAGE_BYTES as u64, bytes: BYTES });
    computers.start(at(0), sends.flat_map(|send| [Do::Send(send), Do::Await(0)]));
    computers.run()?;
    let load = computers.load(at(0).node);
    Ok(Outcome { counters: computers.counters(at(0)), took_ps: load.checks_ps + load.lookups_ps + load.handlers_ps })
}

/// All applications under both designs with all sizes.
#[derive(Debug)]
pub(super) struct Runs(Vec<(&'static str, [[Outcome; 2]; 3])>);

/// Runs applications, as Table 4 names them.
pub(super) fn run(applications: &[&'static str]) -> Result<Runs, ComputersError> {
    let mut all = Vec::new();
    for &application in applications {
        // The tables have all of them.
        let Some(printed) = Printed::of(application) else { continue };
        let mut of_it = Vec::new();
        for (_, entries) in SIZES {
            let one = outcome(&printed, DESIGNS[0], entries)?;
            of_it.push([one, outcome(&printed, DESIGNS[1], entries)?]);
        }
        if let Ok(of_it) = of_it.try_into() {
            all.push((application, of_it));
        }
    }
    Ok(Runs(all))
}

impl Runs {
    /// The rates that came out.
    pub(super) fn table_4(&self) -> Table {
        let columns = ["check misses", "NI misses, UTLB", "NI misses, Intr", "unpins, Intr"];
        let keys = ["application", "entries"];
        let caption = "misses and unpins of a lookup, without a limit on pinned memory";
        let mut table = Table::new("Table 4", caption, "ratio", &keys, &columns);
        for (application, sizes) in &self.0 {
            for ((entries, _), [utlb, intr]) in SIZES.into_iter().zip(sizes) {
                let Some(printed) = printed_rates("Table 4", entries, application) else { continue };
                let (utlb_met, intr_met) = (utlb.counters, intr.counters);
                let checks = utlb_met.check_misses;
                let cells = vec![
                    Cell::beside(utlb.rate(checks), hundredths(10 * printed.check_misses as i64), Input),
                    Cell::beside(
                        utlb.rate(utlb_met.nic_misses),
                        hundredths(10 * printed.utlb_nic_misses as i64),
                        Input,
                    ),
                    Cell::beside(
                        intr.rate(intr_met.nic_misses),
                        hundredths(10 * printed.intr_nic_misses as i64),
                        Input,
                    ),
                    Cell::beside(intr.rate(intr_met.unpins), hundredths(10 * printed.intr_unpins as i64), Input),
                ];
                table.row(&[application, entries], cells);
            }
        }
        table.note("The traces of the applications are lost. In their place run streams of lookups that are made from this table: pages used once, pairs of pages that lie in the same place of caches up to a size, and the page used last, in the shares that give its misses and unpins. That ours agree says only that the designs meet what was meant.");
        table.note("Order and places of the paper's lookups are not known. A node's processes are one here. The paper prints hundredths: a rate of 0.02 stands for any from 0.015 to 0.025.");
        table
    }

    /// Table 6, and the same of the other applications.
    pub(super) fn table_6(&self) -> Table {
        let keys = ["application", "entries"];
        let caption = "average cost of a lookup, by running the designs: library, NIC and interrupts";
        let mut table = Table::new("Table 6", caption, "us", &keys, &DESIGNS);
        let printed = table_of_paper();
        for (application, sizes) in &self.0 {
            for ((entries, _), outcomes) in SIZES.into_iter().zip(sizes) {
                let cells = outcomes.iter().zip(DESIGNS).map(|(outcome, design)| {
                    let theirs = printed.as_ref().and_then(|printed| {
                        let column = format!("{application} {design}");
                        printed.cell(&[entries], &column)?.value()
                    });
                    match theirs {
                        Some(us) => {
                            let milli = (us * 1000.0).round() as i64;
                            let digit_milli = 100;
                            let theirs = Published { milli, digit_milli };
                            Cell::beside(outcome.cost(), theirs, Input)
                        }
                        None => Cell::new(outcome.cost()),
                    }
                });
                table.row(&[application, entries], cells);
            }
        }
        table.note("The paper did not measure Table 6: §6.2's equation gives it from the rates of Table 4 and the costs of Tables 1 and 2. Here the library, the NIC's firmware and the handler run at these rates and costs, and what each takes is added up. That both agree says that the designs do what the equation says, and nothing of the costs. Intr's column says even less: what a handler takes to pin and unpin was taken from it.");
        table.note("A lookup that interrupts the host is made again when the host has answered, which the equation leaves out: Intr takes up to 2.3 % longer here.");
        table.note("The paper prints the table for Barnes and FFT only.");
        table
    }

    /// The cost by cache size.
    pub(super) fn figure(&self) -> Figure {
        let mut lines = Vec::new();
        for (application, sizes) in &self.0 {
            for (at, design) in DESIGNS.into_iter().enumerate() {
                let points = SIZES.into_iter().zip(sizes);
                let points = points.map(|((_, entries), outcomes)| ((entries >> 10) as i64, outcomes[at].cost()));
                lines.push(Line { name: format!("{application}, {design}"), points: points.collect() });
            }
        }
        Figure::lines("Table 6", "average cost of a lookup", ("K entries", "us"), lines)
    }
}

fn table_of_paper() -> Option<mapwire_study::published::PublishedTable> {
    table(Paper::Utlb, "Table 6")
}
