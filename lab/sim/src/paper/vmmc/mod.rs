//! VMMC: virtual memory-mapped communication on Myrinet.
//!
//! The figures' plots are not in the text that is at hand; what the text states of them is.
//!
//! | module | |
//! |---|---|
//! | `constants` | the machine, each constant with its source |
//! | `bench` | two computers that send to each other |
//! | `tables` | what §5 states, ours beside the published |
//! | `rpc` | remote procedure calls (§5.4) |
//! | `beyond` | what the paper did not ask: other thresholds, another command, why ours differ |

pub(super) mod bench;
mod beyond;
mod constants;
mod rpc;
mod tables;
#[cfg(test)]
mod tests;

use super::{Options, Paper, PaperError, Report};
use crate::computers::Shape;
use bench::Bench;
use tables::Tables;

pub use constants::machine;

pub const PAPER: Paper = Paper {
    name: "vmmc",
    title: "Dubnicki, Bilas, Li, Philbin: Design and Implementation of Virtual Memory-Mapped Communication on Myrinet (IPPS 1997)",
    run,
};

fn tables() -> Tables {
    Tables(Bench { profile: machine(), shape: Shape::default() })
}

/// Runs all tables and figures.
pub fn run(options: &Options) -> Result<Report, PaperError> {
    options.without_rows(PAPER.name)?;
    let tables = tables();
    let mut all = vec![tables.limits()?];
    let mut figures = Vec::new();
    for (figure, table) in tables.figures()? {
        figures.push(figure);
        all.push(table);
    }
    figures.push(tables.steps()?);
    all.push(tables.rpc()?);
    all.extend(tables.beyond()?);
    Ok(Report { profiles: vec![machine()], tables: all, figures })
}
