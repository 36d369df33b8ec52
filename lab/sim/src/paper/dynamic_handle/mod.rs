//! Dynamic handle lookup: tables of translations in host memory, cached on the NIC, whose misses drop what came.
//!
//! | module | |
//! |---|---|
//! | `constants` | the machine of Table II, each constant with its source |
//! | `memory` | NIC memory and prices: Figure 3, Table I |
//! | `bench` | two nodes, of which one misses as often as is wanted |
//! | `micro` | Figure 4, the miss penalty, negative acks |
//! | `patterns`, `misses`, `figure_5` | what applications move, and how often the cache misses |
//! | `applications` | Figures 6 and 7 |

mod applications;
pub(super) mod bench;
mod constants;
mod figure_5;
mod memory;
mod micro;
mod misses;
mod patterns;

use super::{Options, Paper, PaperError, Report};
use applications::Times;
use figure_5::Ratios;
use micro::Micro;

pub use constants::testbed;

pub const PAPER: Paper = Paper {
    name: "dynamic-handle",
    title: "Dynamic handle lookup, evaluated with VMMC on Myrinet, LANai 9 (the copy at hand has no title page)",
    run,
};

/// Runs all tables and figures.
///
/// # Errors
/// A row size; a cache that cannot be built; the firmware refuses what a run does.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let micro = Micro { profile: testbed(), seed: options.seed };
    let applications = patterns::all(options.seed);
    let ratios = Ratios::new(&applications)?;
    let times = Times::new(&micro, &applications, &ratios)?;
    let mut tables = vec![memory::table()?, memory::ratios()];
    let (of_figure_4, mut figures) = micro.figure_4()?;
    tables.extend(of_figure_4);
    tables.push(micro.penalties()?);
    tables.push(micro.negative_acks()?);
    tables.push(micro.assumed()?);
    tables.extend(ratios.tables());
    tables.push(ratios.highest(options.seed)?);
    figures.push(ratios.figure());
    let (figure_6, drawn) = times.figure_6();
    tables.extend([figure_6, times.figure_7(), times.described(), times.computing_times()]);
    figures.push(drawn);
    Ok(Report { profiles: vec![testbed()], tables, figures })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Cost;
    use bench::Link;

    #[test]
    fn what_the_text_says_holds_save_where_notes_say_why_not() {
        let report = run(&Options::default()).unwrap();
        let (mut holds, mut not) = (0, Vec::new());
        for row in report.tables.iter().flat_map(|table| &table.rows) {
            match row.keys.get(1).map(String::as_str) {
                Some("holds") => holds += 1,
                Some("does not hold") => not.push(row.keys[0].as_str()),
                _ => {}
            }
        }
        assert_eq!(
            not,
            [
                "misses lie between 0 and 40 %",
                "Ocean stays within 0 to 2 %",
                "2 to 4 ways help most applications",
                "Ocean's non-cold misses more than double from L16 to L64 with C8 and C16",
                "LUContiguous's speed-up varies by more than 100 %",
                "Ocean: 8 K entries do about as well as tables on the NIC",
                "at most 3 % slower with the best cache, but for Radix",
            ]
        );
        assert_eq!(holds, 21);
        // What documents say: what a miss may cost FFT and Radix for 3 %, in nanoseconds.
        let table = report.table("Computing times").unwrap();
        let may_take = |name: &str| {
            let row = table.rows.iter().find(|row| row.keys[0] == name).unwrap();
            row.cells[3].milli.unwrap()
        };
        let (fft, radix) = (may_take("FFT"), may_take("Radix"));
        assert!((600_000..650_000).contains(&fft), "{fft}");
        assert!((150_000..170_000).contains(&radix), "{radix}");
    }

    #[test]
    fn asking_for_a_packet_wins_more_the_longer_the_timeout_and_keeping_what_follows_wins_more() {
        let micro =
            |timeout_us: u64| Micro { profile: testbed().with(Cost::LinkTimeout, timeout_us * 1_000_000), seed: 1 };
        use crate::computers::OnMiss;
        let took = |timeout_us: u64, link| micro(timeout_us).penalty(link).unwrap();
        let timed_out = |us: u64| took(us, Link::Other(OnMiss::TimesOut(us * 1_000_000)));
        assert!(timed_out(1000) < timed_out(2000));
        let asked = took(1000, Link::Other(OnMiss::AsksForAll));
        assert!(4 * asked < timed_out(1000), "{asked}");
        assert!(took(1000, Link::Other(OnMiss::AsksForOne)) <= asked);
        assert!(4 * took(1000, Link::Firmware) < timed_out(1000));
    }
}
