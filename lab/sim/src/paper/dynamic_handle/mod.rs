//! Dynamic handle lookup: tables of translations in host memory, cached on the NIC, whose misses drop what came.

mod figure_5;
mod memory;
mod misses;
mod patterns;

use super::{Options, Paper, PaperError, Report};
use figure_5::Ratios;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "dynamic-handle",
    title: "Dynamic handle lookup: reducing the memory of user-level network interfaces (evaluated on VMMC and Myrinet, LANai 9)",
    run,
};

/// Runs all tables and figures.
///
/// # Errors
/// A row size; a cache that cannot be built; the firmware refuses what a run does.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let applications = patterns::all(options.seed);
    let ratios = Ratios::new(&applications)?;
    let mut tables = vec![memory::table()?, memory::ratios()];
    tables.extend(ratios.tables());
    Ok(Report {
        profiles: Vec::new(),
        tables,
        figures: vec![ratios.figure()],
    })
}
