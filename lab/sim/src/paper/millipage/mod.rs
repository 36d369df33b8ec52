//! Millipage: shared memory on Windows NT, and how its nodes learn of messages: by polling, or by interrupts.
//!
//! | module | |
//! |---|---|
//! | `bench` | reads, writes, locks and barriers between the machine's nodes |
//! | `basic` | what these cost, beside what the system's authors measured elsewhere |
//! | `figure_3`, `table_1` | the paper's |
//! | `applications` | the programs of Table 1 |
//! | `assumed` | how much constants matter that nobody states |
//! | `beyond` | what the paper did not ask |

mod applications;
mod assumed;
mod basic;
mod bench;
mod beyond;
mod figure_3;
mod table_1;
#[cfg(test)]
mod tests;

use super::numbers::us;
use super::{Options, Paper, PaperError, Report};
use crate::hardware::Ps;
use crate::hosts::{Notice, millipage, today};

pub const PAPER: Paper = Paper {
    name: "millipage",
    title: "Itzkovitz, Schuster, Talmor: Harnessing the Power of Fast, Low Latency, Networks for Software DSMs (1999)",
    run,
};

/// Thousandths of a second.
const fn seconds(ps: Ps) -> i64 {
    ((ps + 500_000_000) / 1_000_000_000) as i64
}

/// Runs all tables and figures.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let (figure_left, figure_right, responses, processor) = figure_3::all()?;
    let [table_1, from_sequential] = table_1::tables()?;
    let tables = vec![
        responses,
        processor,
        table_1,
        from_sequential,
        basic::table()?,
        beyond::costless()?,
        assumed::table()?,
        beyond::water()?,
        beyond::timers()?,
        beyond::machines()?,
    ];
    Ok(Report {
        profiles: vec![millipage(Notice::Interrupts).profile, today().profile],
        tables,
        figures: vec![figure_left, figure_right],
    })
}
