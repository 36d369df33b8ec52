//! VMMC: virtual memory-mapped communication on Myrinet.

pub(super) mod bench;
mod constants;

use super::{Cell, Options, Paper, PaperError, Published, Report, Role, Table};
use crate::computers::Shape;
use bench::Bench;

pub use constants::machine;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "vmmc",
    title: "Dubnicki, Bilas, Li, Philbin: Design and Implementation of Virtual Memory-Mapped Communication on Myrinet (IPPS 1997)",
    run,
};

/// Runs all tables and figures.
///
/// # Errors
/// A row size; the firmware refuses what a run does.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let bench = Bench {
        profile: machine(),
        shape: Shape::default(),
    };
    let mut table = Table::new(
        "Figure 2",
        "one-way latency",
        "us",
        &["bytes"],
        &["latency"],
    );
    let published = Published {
        milli: 9_800,
        digit_milli: 100,
    };
    let milli = (bench.one_way(4)? / 1000) as i64;
    let cell = Cell::beside(milli, published, Role::Predicted);
    table.row(&["4"], vec![cell]);
    Ok(Report {
        profiles: vec![machine()],
        tables: vec![table],
        figures: Vec::new(),
    })
}
